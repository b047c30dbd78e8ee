"""Λ, radius and norm of blind averaging, chosen on public labelled records (DP-Helmet, Appendix B, "Hyperparameter
Search").

No private record is looked at, so a choice costs no privacy. Public records are split at random, class by class, into
two thirds to learn from and a third to measure on, several times. Those to learn from are dealt to parties of the
study's size, as many as they suffice for; their models are averaged, and get the noise that the study's own total would
have: of all its parties and records, for each ε. If public records are few, the average suffers, never the noise.

Scores are linear in the weights, so those of a model with noise are X·W + σ·X·Z for one draw Z: all candidates meet the
same draws, which leaves less chance in what separates them, and one product serves for every σ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows
from unspoken.data.federation import BLOCK_PARTIES, ArrayFederation
from unspoken.data.records import DataError, Records
from unspoken.data.splits import split, stratified
from unspoken.learners import sgd
from unspoken.learners.scores import classify
from unspoken.methods.base import Choice, Trials
from unspoken.methods.helmet_rules import weight_noise
from unspoken.study import Study, make_study
from unspoken.types import Floats, Integers, Labels

if TYPE_CHECKING:
    from unspoken.methods.helmet import Helmet

_STEPS = tuple(digit * 10.0**power for power in range(-3, 2) for digit in (1, 3))
"""Candidates for Λ/c²: 0.001 to 30"""
_RADII = (1.0, 0.5, 0.25, 0.125)
"""Candidates for the radius, as parts of R"""
_SHARES = (0.9, 0.5)
"""Candidates for the norm: the length that this part of public records does not exceed"""
_LEARNT = 2.0 / 3.0
_DRAWS = 3


@dataclass(frozen=True)
class _Part:
    """Public records that are split once: the models' records, and those that accuracy is measured on."""

    train: Records
    groups: Integers
    test: Records
    seed: int


@dataclass(frozen=True)
class _Candidate:
    regularization: float
    radius: float | None
    norm: float

    def study(self, study: Study, epsilon: float) -> Study:
        """The study with these settings."""
        content = study.model_dump(exclude_none=True, exclude={"compare", "roster"})
        content["privacy"] = {key: value for key, value in content["privacy"].items() if key != "noise_multiplier"}
        content["privacy"]["epsilon"] = epsilon
        for section, keys in self.settings(study).items():
            kept = {key: value for key, value in content[section].items() if key not in keys}
            content[section] = kept | {key: value for key, value in keys.items() if value is not None}
        return make_study(content, study.source, study.method_place)

    def settings(self, study: Study) -> dict[str, dict[str, float | None]]:
        method: dict[str, float | None] = {"regularization": self.regularization}
        if self.radius is not None or study.method.own_keys.get("radius") is not None:
            method["radius"] = self.radius
        return {"method": method} | ({} if self.norm == study.data.norm else {"data": {"norm": self.norm}})


def choose(kind: type[Helmet], study: Study, public: Records, trials: Trials) -> list[Choice]:
    """The best settings for each ε."""
    epsilons = trials.epsilons
    parts = [_part(study, public, trials.split, trials.seed + number) for number in range(trials.repeats)]
    found: dict[float, list[tuple[_Candidate, Floats]]] = {epsilon: [] for epsilon in epsilons}
    for norm in _norms(study, public):
        draws = [_noise_scores(kind(_Candidate(1.0, None, norm).study(study, epsilons[0])), part) for part in parts]
        for step in _STEPS:
            for candidate, scores in _models(kind, study, _rounded(step * norm**2), norm, parts):
                for epsilon in epsilons:
                    method = kind(candidate.study(study, epsilon))
                    noise = weight_noise(method.study, method.learner, method.by_records, method.noise.in_the_open)
                    found[epsilon].append((candidate, _accuracies(noise, scores, draws, parts)))
    return [_best(study, epsilon, tried) for epsilon, tried in found.items()]


def _best(study: Study, epsilon: float, tried: list[tuple[_Candidate, Floats]]) -> Choice:
    candidate, accuracies = max(tried, key=lambda each: float(each[1].mean()))
    deviation = float(accuracies.mean(axis=1).std()) if len(accuracies) > 1 else None
    return Choice(epsilon, candidate.settings(study), float(accuracies.mean()), deviation, len(tried))


def _part(study: Study, public: Records, how: str, seed: int) -> _Part:
    """Records to learn from and to measure on, class by class in the same shares."""
    learnt = stratified(public.labels, _LEARNT, seed)
    if learnt.all() or len(np.unique(public.labels)) < 2:
        classes = len(np.unique(public.labels))
        raise DataError(
            f"there are {len(public)} public records of {classes} class{'es' * (classes > 1)}, too few to learn from "
            "some and measure on others; give more, of all classes."
        )
    train, test = (Records(public.features[rows], public.labels[rows]) for rows in (learnt, ~learnt))
    parties = min(max(1, len(train) // study.parties.records), study.parties.count)
    return _Part(train, split(how, train.labels, parties, seed), test, seed)


def _norms(study: Study, public: Records) -> list[float]:
    """The study's norm, and shorter ones that public records of usual length have."""
    lengths = np.linalg.norm(clip_rows(public.features, study.data), axis=1)
    shorter = [_rounded(float(np.quantile(lengths, share))) for share in _SHARES]
    return [study.data.norm, *sorted({norm for norm in shorter if 1e-6 <= norm < 0.95 * study.data.norm})]


def _models(
    kind: type[Helmet], study: Study, regularization: float, norm: float, parts: Sequence[_Part]
) -> Iterator[tuple[_Candidate, list[Floats]]]:
    """Candidates of this Λ and norm, each with the scores of its average without noise, for each part."""
    if regularization < 1e-6:
        return
    free = kind(_Candidate(regularization, None, norm).study(study, 1.0))
    longest = free.learner.loss.longest(regularization, norm)
    # Where single records are protected, the distance of two models hardly ever depends on their length.
    radii: Sequence[float | None] = (None,) if study.group == 1 else [_rounded(part * longest) for part in _RADII]
    sums: list[list[Floats]] = [[] for _ in radii]
    for part in parts:
        agreed, total = free.study.with_parties(int(part.groups.max()) + 1), [0.0 for _ in radii]
        for block in _blocks(agreed, part):
            models = replace(free.learner, radius=None).fit(block)
            lengths = np.einsum("bij,bij->b", models, models)
            weights = block.counts / block.counts.sum() if free.by_records else np.full(len(block), 1.0 / len(block))
            share = (block.counts.sum() / len(part.train)) if free.by_records else len(block) / agreed.parties.count
            for number, radius in enumerate(radii):
                shrunk = 1.0 if radius is None else sgd.shrinking(lengths, radius)
                total[number] = total[number] + share * np.einsum("b,bij->ij", weights * shrunk, models)
        test = clip_rows(part.test.features, free.study.data)
        for number, average in enumerate(total):
            sums[number].append(test @ np.asarray(average).T)
    yield from ((_Candidate(regularization, radius, norm), scores) for radius, scores in zip(radii, sums, strict=True))


def _blocks(agreed: Study, part: _Part) -> Iterator[Block]:
    """The parties' bounded records. Public parties may have fewer or more than the study says: they are none of its."""
    sizes = np.bincount(part.groups)
    parties = {"count": len(sizes), "records": int(sizes.min()), "max_records": int(sizes.max())}
    section = agreed.parties.model_copy(update=parties)
    federation = ArrayFederation(agreed.model_copy(update={"parties": section}), part.train, part.groups)
    return (block for _, block in federation.blocks(BLOCK_PARTIES))


def _noise_scores(method: Helmet, part: _Part) -> list[Floats]:
    """The scores of standard normal weights, for some draws."""
    rng, test = np.random.default_rng(part.seed), clip_rows(part.test.features, method.study.data)
    shape = (_DRAWS, test.shape[1], method.learner.loss.outputs)
    return [test @ draw for draw in rng.normal(size=shape)]


def _accuracies(noise: float, scores: list[Floats], draws: list[list[Floats]], parts: Sequence[_Part]) -> Floats:
    """One row a part, one column a draw of noise."""
    return np.array(
        [
            [_right(quiet + noise * drawn, part.test.labels) for drawn in of_part]
            for quiet, of_part, part in zip(scores, draws, parts, strict=True)
        ]
    )


def _right(scores: Floats, labels: Labels) -> float:
    return float((classify(scores) == labels).mean())


def _rounded(number: float) -> float:
    """Three digits: a number for a study file."""
    return float(f"{number:.3g}")
