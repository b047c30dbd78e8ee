"""Votes on public records: how far a party can move the minimiser, that it is one, and that the noise is as stated."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits

import unspoken
from factories import make
from unspoken.learners.losses import CrossEntropy, HuberSVM, Logistic, Loss, SoftLabelLoss
from unspoken.methods.multiparty import Multiparty
from unspoken.noise.discrete_gaussian import DISTANCE
from unspoken.noise.stream import SecretStream
from unspoken.study import StudyError, make_study

KEY = bytes(range(32))


def method(folder: Path, classes: int = 2, records: int = 30, **keys: Any) -> Multiparty:
    rng = np.random.default_rng(0)
    np.savez(folder / "public.npz", X=rng.normal(size=(records, 3)))
    return Multiparty(
        make(
            data={"features": 3, "classes": classes},
            parties={"count": 5, "max_records": 10},
            method={"name": "multiparty", "public": str(folder / "public.npz"), "regularization": 0.1, **keys},
            unit="party",
        )
    )


@pytest.mark.parametrize("learner", ["softmax", "logistic", "svm"])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("labels", ["weighted", "majority"])
def test_one_party_moves_the_minimiser_by_less_than_the_sensitivity(
    learner: str, classes: int, labels: str, tmp_path: Path
) -> None:
    """A party votes otherwise everywhere, on public records that all point one way, so that the changes add up; with a
    strong regularization, so that the slopes are those at 0. Half of the stated sensitivity is reached."""
    voting = method(tmp_path, classes, learner=learner, labels=labels, regularization=20.0)
    worst = 0.0
    rng = np.random.default_rng(1)
    for trial in range(12):
        direction = np.array([1.0, 0.0, 0.0]) if trial % 2 else rng.normal(size=3)
        public = np.tile(direction / np.linalg.norm(direction), (30, 1)) if trial < 8 else voting.public
        voting.__dict__["public"] = public
        votes = rng.multinomial(4, np.ones(classes) / classes, size=30).astype(float)
        one, other = votes.copy(), votes.copy()
        first, second = (0, 1) if trial < 10 else (classes - 1, 0)
        one[:, first] += 1.0
        other[:, second] += 1.0
        if labels == "majority":
            one, other = np.eye(classes)[np.full(30, first)] * 5, np.eye(classes)[np.full(30, second)] * 5
        moved = np.linalg.norm(voting._minimise(one / 5.0, 5) - voting._minimise(other / 5.0, 5))
        worst = max(worst, float(moved))
    stated = voting.sensitivity()
    assert worst <= stated
    assert worst >= 0.5 * stated


@pytest.mark.parametrize("loss", [Logistic(2), Logistic(3), HuberSVM(2, 0.2), HuberSVM(3, 0.2), CrossEntropy(3)])
def test_shares_are_the_average_over_the_votes(loss: Loss) -> None:
    """Slopes and values for shares of votes are those of the votes, averaged."""
    rng = np.random.default_rng(0)
    shares = SoftLabelLoss(loss.classes, loss)
    votes = rng.integers(0, loss.classes, size=(7, 20))
    scores = rng.normal(size=(20, loss.outputs)) * 2.0
    targets = np.mean([shares.targets(vote) for vote in votes], axis=0)
    expected = np.mean([loss.slopes(scores.copy(), loss.targets(vote)) for vote in votes], axis=0)
    assert np.allclose(shares.slopes(scores.copy(), targets), expected)
    values = np.mean([loss.values(scores.copy(), loss.targets(vote)) for vote in votes], axis=0)
    assert np.allclose(shares.values(scores.copy(), targets), values)


def test_laplace_noise_has_the_stated_length_and_gaussian_noise_the_stated_deviation(tmp_path: Path) -> None:
    """Kolmogorov–Smirnov for 2,000 lengths, χ² for the deviation: false alarms 1 in 1,000; the key is fixed."""
    voting = method(tmp_path, classes=3, noise="laplace")
    voting.secrets = SecretStream(KEY)
    zero = np.zeros((3, 3))
    lengths = [np.linalg.norm(voting._noised(zero)) for _ in range(2000)]
    scale = voting.sensitivity() / voting.study.epsilon
    assert stats.kstest(lengths, stats.gamma(9, scale=scale).cdf).pvalue > 1e-3
    # In all directions alike, so that a number of it has the mean square length over nine.
    laplace, square = voting.plan().others[0].noise_std ** 2, float(np.square(lengths).mean()) / 9.0
    assert laplace == pytest.approx(stats.gamma(9, scale=scale).moment(2) / 9.0)
    assert square == pytest.approx(laplace, rel=0.08)
    gaussian = method(tmp_path, classes=3, noise="gaussian")
    gaussian.secrets = SecretStream(KEY)
    drawn = np.concatenate([gaussian._noised(zero).ravel() for _ in range(2000)])
    stated = gaussian.plan().others[0].noise_std
    assert drawn.std() == pytest.approx(stated, rel=0.03)
    # All that may be drawn is in δ.
    assert gaussian.plan().slack >= (1.0 + math.exp(gaussian.study.epsilon)) * 9 * DISTANCE
    mu = gaussian.plan().guarantee.mu
    assert mu is not None
    assert gaussian.sensitivity() / stated <= mu * (1 + 1e-9)


def test_far_less_noise_for_the_study_s_delta_is_pointed_out(tmp_path: Path) -> None:
    laplace, gaussian = (method(tmp_path, classes=40, noise=noise) for noise in ("laplace", "gaussian"))
    least = gaussian.plan().others[0].noise_std
    told = f'noise = "gaussian" would have {least:.4g} with the study\'s delta'
    assert least < laplace.plan().others[0].noise_std / 2.0
    assert [told in note for note in laplace.plan().notes].count(True) == 1
    assert not any("would have" in note for note in gaussian.plan().notes)
    few = method(tmp_path, classes=2, learner="logistic", noise="laplace")
    assert not any("would have" in note for note in few.plan().notes)


def test_a_study_that_names_no_noise_has_the_shorter_one(tmp_path: Path) -> None:
    """Laplace noise grows by the number of weights, and Gaussian noise needs a δ."""
    for classes, shorter in ((2, "laplace"), (40, "gaussian")):
        plans = {
            noise: method(tmp_path, classes, learner="logistic", **({"noise": noise} if noise else {})).plan()
            for noise in (None, "laplace", "gaussian")
        }
        deviation = {noise: plan.others[0].noise_std for noise, plan in plans.items()}
        assert deviation[None] == deviation[shorter] == min(deviation.values())
        assert not [note for note in plans[None].notes if "would have" in note]
    data = {"features": 300, "classes": 10, "norm": 1.0}
    for delta, noise in ((1e-6, "gaussian"), (1e-29, "laplace")):
        study = make("multiparty", data=data, method={"labels": "average"}, delta=delta)
        assert Multiparty(study).plan().others[0].noise == noise


def test_a_weighted_vote_needs_less_noise_than_a_majority_s(tmp_path: Path) -> None:
    weighted, majority = (method(tmp_path, labels=labels).sensitivity() for labels in ("weighted", "majority"))
    assert majority == pytest.approx(5 * weighted)
    assert method(tmp_path, learner="logistic", classes=2).sensitivity() == pytest.approx(1 / (0.1 * 5), rel=1e-5)
    assert method(tmp_path, learner="svm", classes=2).sensitivity() == pytest.approx(2 / (0.1 * 5), rel=1e-5)


def test_weighted_votes_beat_the_majority_and_a_single_party_on_digits(tmp_path: Path) -> None:
    """Without noise to speak of (epsilon 1,000, 60 parties of 15 records), and with noise the weighted votes."""
    features, labels = load_digits(return_X_y=True)
    features = features - features.mean(axis=1, keepdims=True)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    order = np.random.default_rng(0).permutation(len(labels))
    features, labels = features[order], labels[order]
    np.savez(tmp_path / "public.npz", X=features[900:1400])

    def accuracy(kind: str, epsilon: float) -> float:
        study = {
            "study": {"name": "votes", "task": "classification"},
            "data": {"features": 64, "classes": 10},
            "parties": {"count": 60, "records": 15, "max_records": 15},
            "privacy": {"epsilon": epsilon, "delta": 1e-5, "unit": "party"},
            "method": {
                "name": "multiparty",
                "labels": kind,
                "learner": "logistic",
                "public": str(tmp_path / "public.npz"),
                "regularization": 0.05,
            },
        }
        groups = np.arange(900) % 60
        done = unspoken.simulate(
            study, features[:900], labels[:900], groups, X_test=features[1400:], y_test=labels[1400:]
        )
        return done.metrics["accuracy"]

    weighted = float(np.mean([accuracy("weighted", 300.0) for _ in range(3)]))
    majority = float(np.mean([accuracy("majority", 300.0) for _ in range(3)]))
    assert weighted > majority + 0.1


def test_the_plan_says_whom_it_trusts_and_what_theorem_4_gives(tmp_path: Path) -> None:
    plan = method(tmp_path).plan()
    assert "trainer" in plan.guarantee.sentence()
    assert plan.guarantee.delta == 0.0
    assert any("Theorem 4" in note for note in plan.notes)
    content = plan.to_json()
    assert (content["summation"], content["rounds"]) == (None, 1)
    bound = method(tmp_path).risk_bound()
    size, s = 6, method(tmp_path).sensitivity()
    noise = (0.5 + 0.1) * (s * size * math.log(size / 0.05)) ** 2
    # Softmax is √2-Lipschitz, so the paper's constant, for a loss with slope 1, counts twice.
    assert bound == pytest.approx(noise + 2 * 16 * (32 + math.log(20)) / (0.1 * 30) + 0.05)


def test_the_bound_of_theorem_4_grows_with_the_norm_and_the_classes(tmp_path: Path) -> None:
    """For logistic loss and records of norm 1 it is the paper's."""
    one = method(tmp_path, learner="logistic")
    ours = 16 * (32 + math.log(20)) / (0.1 * 30) + 0.05
    assert one.risk_bound() - (0.25 + 0.1) * one.noise.likely_norm(0.05) ** 2 == pytest.approx(ours)
    four = method(tmp_path, classes=4)
    sampled = four.risk_bound() - (0.5 + 0.1) * four.noise.likely_norm(0.05) ** 2 - 0.05
    assert sampled == pytest.approx(2 * 16 * (32 * 8 + math.log(20)) / (0.1 * 30))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"\[data\] lacks public: .* to vote on \(in Python also public=…\)"):
        method(tmp_path, public=None).plan()
    with pytest.raises(ValueError, match="there is no such file"):
        method(tmp_path, public="nowhere.npz").plan()


def test_the_stated_sensitivity_has_what_rounding_adds(tmp_path: Path) -> None:
    """Shares of all parties' votes are turned by one of them, and the model is rounded to integers."""
    voting = method(tmp_path, learner="svm", noise="gaussian")
    release, planned = voting.plan().others[0], voting.noise._planned  # type: ignore[attr-defined]
    rounding = math.sqrt(release.dimension) / planned.encoding.scale
    assert release.sensitivity >= voting.sensitivity() + rounding * (1.0 - 1e-9)
    assert release.sensitivity / release.noise_std == pytest.approx(voting.plan().guarantee.mu)


def test_what_is_computed_is_the_trainer_s_model_whatever_votes(tmp_path: Path) -> None:
    voting = method(tmp_path, model="sklearn.svm:SVC", learner="logistic")
    assert Multiparty.computes(voting.study) == "logistic"


def test_the_bound_of_theorem_4_holds_for_the_largest_regularization_that_dropouts_bring(tmp_path: Path) -> None:
    """With 3 of 5 voters λ is 5/3 times as large: two terms grow with it, and the one that falls is for the least."""
    stays = method(tmp_path, learner="logistic")
    content = stays.study.model_dump(exclude_none=True)
    content["privacy"]["dropouts"] = 2
    leaves = Multiparty(make_study(content))
    noise = stays.noise.likely_norm(0.05)
    assert leaves.noise.likely_norm(0.05) == pytest.approx(noise)
    more = 0.1 * (5.0 / 3.0 - 1.0)
    assert leaves.risk_bound() - stays.risk_bound() == pytest.approx(more * noise**2 + more / 2.0)
    told = f"nine times in ten the excess risk over any model of norm 1 is at most {leaves.risk_bound():.3g}"
    assert told in " ".join(leaves.plan().notes)


@pytest.mark.parametrize("labels", ["weighted", "majority", "average"])
def test_noise_longer_than_any_model_is_said_before_the_votes(labels: str, tmp_path: Path) -> None:
    """And no model is longer, before noise: that of copies of one record with one label is nearly as long."""
    voting = method(tmp_path, classes=4, labels=labels)
    release = voting.plan().others[0]
    voting.__dict__["public"] = np.tile([1.0, 0.0, 0.0], (30, 1))
    longest = np.linalg.norm(voting._minimise(np.eye(4)[np.zeros(30, dtype=int)], 5))
    assert 0.85 * release.longest < longest <= release.longest

    def doubts(times: float) -> tuple[str, ...]:
        """At the ε at which the noise is so many times as long as the longest model."""
        length = release.noise_std * math.sqrt(release.dimension) / release.longest
        study = voting.study.model_copy(
            update={
                "privacy": voting.study.privacy.model_copy(update={"epsilon": voting.study.epsilon * length / times})
            }
        )
        return Multiparty(study).plan().doubts

    (almost,), (much,) = doubts(14.1), doubts(9.9)
    assert almost.startswith("the noise hides almost all of what the parties say: it has length")
    assert "expect a model that is little better than always saying the most frequent class" in almost
    assert "have at least 1.5 times as much epsilon" in almost
    assert much.startswith("the noise hides much of what the parties say")
    assert "have up to 5.0 times as much epsilon" in much
    assert ("as many times the parties" in much, 'labels = "average"' in much) == (
        labels != "majority",
        labels == "weighted",
    )
    assert doubts(1.9) == ()
