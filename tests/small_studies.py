"""Studies of every method that run in a fraction of a second, records for them, and what a run of one has shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from factories import make
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines.outcome import Outcome
from unspoken.methods.base import Conversation, Method, Total
from unspoken.methods.planning import Plan
from unspoken.methods.registry import METHODS, method_for
from unspoken.noise.stream import SecretStream
from unspoken.study import Study, StudyError

PARTIES, RECORDS, FEATURES = 6, 8, 4
KEY = bytes(range(32))
_FEW = {"queries": 5, "rounds": 2, "rate": 0.5}
"""Keys that make a method quick, where it has them."""


def public_file(folder: Path) -> Path:
    """A file of public records."""
    np.savez(folder / "public.npz", X=np.random.default_rng(1).normal(size=(12, FEATURES)) / FEATURES)
    return folder / "public.npz"


def small(public: Path, method: str, task: str, /, **said: Any) -> Study:
    """A small study by this method. `keys` are those of [method]; whatever else is said is as for `factories.make`."""
    has = METHODS[method].keys.model_fields
    keys = {key: value for key, value in {**_FEW, "public": str(public)}.items() if key in has}
    said = {"parties": {"count": PARTIES, "records": RECORDS, "max_records": RECORDS}, "epsilon": 2.0} | said
    keys |= said.pop("keys", {})
    for unit in ("record", "party"):
        try:
            study = make(method, task=task, **{"method": keys, "unit": unit, **said})
            method_for(study).plan()
            return study
        except StudyError as error:
            if "unit" not in str(error) or unit == "party":
                raise
    raise AssertionError("There is no unit left to try.")


def records_of(study: Study, seed: int = 0) -> Records:
    """Records that fit the study."""
    rng, count = np.random.default_rng(seed), study.parties.count * study.parties.records
    features = rng.normal(size=(count, FEATURES)) / FEATURES
    labels = {"classification": rng.integers(0, 3, count), "regression": rng.uniform(-1, 1, count)}
    return Records(features, labels.get(study.task, np.zeros(count)))


def federation_of(study: Study, seed: int = 0) -> ArrayFederation:
    groups = np.repeat(np.arange(study.parties.count), study.parties.records)
    return ArrayFederation(study, records_of(study, seed), groups)


def method_of(study: Study) -> Method:
    """The study's method. If it draws noise by itself, then by fixed secrets."""
    method = method_for(study)
    if hasattr(method, "secrets"):
        method.secrets = SecretStream(bytes(32))
    return method


class Recording:
    """Writes down the answers that a method gets."""

    def __init__(self, method: Method) -> None:
        self.answers: list[tuple[bytes, bytes, int, float]] = []
        self._coordinate = method.coordinate
        method.coordinate = self._recorded  # type: ignore[method-assign]

    def _recorded(self, plan: Plan) -> Conversation:
        conversation = self._coordinate(plan)
        request = next(conversation)
        try:
            while True:
                answer = yield request
                if isinstance(answer, Total):
                    numbers = answer.noisy.tobytes(), answer.exact.tobytes()
                    self.answers.append((*numbers, answer.survivors, answer.noise_std))
                request = conversation.send(answer)
        except StopIteration as end:
            return end.value


def shown(study: Study, outcome: Outcome) -> tuple[Any, ...]:
    """All that a run shows to the world, to be compared with another's."""
    release = outcome.release
    scores = b"" if release.kind == "statistics" else release.scores(study, records_of(study).features).tobytes()
    counted = {name: flags.tolist() for name, flags in outcome.counted.items()}
    # A certificate's epsilon follows from who took part and which attempts failed.
    happened = outcome.participation, outcome.failed, outcome.noise
    return scores, release.to_json(), release.details, *happened, counted


def methods_and_tasks() -> Iterator[tuple[str, str]]:
    """All methods of the registry, each with all its tasks."""
    for name, kind in METHODS.items():
        for task in kind.tasks:
            yield name, task
