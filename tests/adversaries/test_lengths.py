"""Whoever watches the connections sees how long messages are. This depends on the study alone, not on records or on how
many there are, except with lists of tokens, which tell everyone how many each party has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cast import EACH_SCENE, STUDIES
from small_studies import FEATURES, KEY, PARTIES, RECORDS, method_of, small
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines.actors import Actors, Vanishing
from unspoken.noise.stream import SecretStream
from unspoken.study import Study
from unspoken.summation.base import Envelope

FEWEST = RECORDS - 3


class Watched(Actors):
    """Notes the length of every message."""

    def __init__(self, study: Study, counts: list[int], scale: float) -> None:
        rng, total = np.random.default_rng(len(counts)), sum(counts)
        labels = {"classification": rng.integers(0, 3, total), "regression": rng.uniform(-1, 1, total)}
        records = Records(scale * rng.normal(size=(total, FEATURES)) / FEATURES, labels[study.task])
        federation = ArrayFederation(study, records, np.repeat(np.arange(PARTIES), counts))
        method = method_of(study)
        super().__init__(method, method.plan(), federation, SecretStream(KEY))
        self.lengths = Counter[tuple[str, str, int]]()
        self.run([])

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        self.lengths[sender, to, len(body)] += 1
        return super().step(to, body, gone, sender)


@EACH_SCENE
def test_the_lengths_of_messages_tell_nothing_of_records(kind: str, protocol: str, public: Path) -> None:
    method, keys, _ = STUDIES[kind]
    task = "regression" if kind == "tokens" else "classification"
    parties = {"count": PARTIES, "records": FEWEST, "max_records": RECORDS}
    study = small(public, method, task, keys=keys, summation=protocol, colluding=1, parties=parties)
    usual, other = Watched(study, [RECORDS] * PARTIES, 1.0).lengths, Watched(study, [FEWEST] * PARTIES, 0.0).lengths
    if kind != "tokens":
        assert usual == other
        return
    assert usual != other, "the numbers of records are public"
    assert usual == Watched(study, [RECORDS] * PARTIES, 0.0).lengths


@pytest.mark.parametrize("who", [0, PARTIES - 1])
def test_a_party_with_fewer_records_sends_as_much_as_the_others(who: int, public: Path) -> None:
    parties = {"count": PARTIES, "records": FEWEST, "max_records": RECORDS}
    study = small(public, "helmet", "classification", summation="secagg+", colluding=1, parties=parties)
    counts = [RECORDS] * PARTIES
    usual = Watched(study, counts, 1.0).lengths
    counts[who] = FEWEST
    assert Watched(study, counts, 1.0).lengths == usual
