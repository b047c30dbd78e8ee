"""Public records that a study's [data] names: linear methods learn better, and nothing else changes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unspoken
from factories import make
from unspoken.data.federation import ArrayFederation, party_block
from unspoken.data.files import DataError, Records
from unspoken.engines import actors, local
from unspoken.engines.conditions import Conditions
from unspoken.methods.base import Total
from unspoken.methods.moments import Moments
from unspoken.methods.planning.directions import signal_of
from unspoken.methods.registry import method_for, plan_for
from unspoken.methods.workloads import Query, answered_by
from unspoken.noise.stream import SecretStream
from unspoken.privacy.gaussian import mu_for
from unspoken.study import Study, StudyError, make_study, read_study

RNG = np.random.default_rng(0)
FEATURES, PARTIES, EACH = 12, 6, 50
LINEAR: list[dict[str, Any]] = [
    {"name": "helmet"},
    {"name": "moments"},
    {"name": "moments", "function": "logistic-regression"},
    {"name": "cape"},
    {"name": "cross-silo", "rounds": 5, "rate": 0.5, "learning_rate": 4.0},
]


def mixed(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Records with a large common part, and three classes that lie in two directions of twelve."""
    labels = rng.integers(0, 3, count)
    features = rng.normal(size=(count, FEATURES)) * np.array([0.3, 0.3, *[0.02] * 9, 0.0])
    features[:, :2] += 0.6 * np.column_stack([np.cos(2.0 * labels), np.sin(2.0 * labels)])
    features[:, 11] = 3.0
    return features / np.linalg.norm(features, axis=1, keepdims=True), labels


TRAIN, LABELS = mixed(np.random.default_rng(1), PARTIES * EACH)
TEST, TEST_LABELS = mixed(np.random.default_rng(2), 600)
PUBLIC, _ = mixed(np.random.default_rng(3), 300)
GROUPS = np.arange(PARTIES * EACH) % PARTIES


def study(method: dict[str, Any] | None = None, data: dict[str, Any] | None = None, **said: Any) -> Study:
    return make(
        data={"features": FEATURES, "classes": 3, **(data or {})},
        parties={"count": PARTIES, "records": EACH, "max_records": EACH},
        method=method or {"name": "helmet"},
        **{"summation": "ideal", "epsilon": 0.5, "delta": 1e-5, **said},
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "public.npz", X=PUBLIC)
    return tmp_path / "public.npz"


@pytest.mark.parametrize(
    "method",
    [pytest.param(method, marks=() if method["name"] == "helmet" else pytest.mark.long) for method in LINEAR],
    ids=lambda method: " ".join(map(str, method.values())),
)
def test_every_linear_method_learns_better_in_public_directions(
    method: dict[str, Any], seeded: Callable[[], None]
) -> None:
    """By 18 points of accuracy or more on average; the limit of 8 lies four deviations below."""
    agreed, runs = study(method, epsilon=0.4), 10 if method["name"] == "cross-silo" else 30

    def accuracy(public: Any) -> float:
        seeded()
        test = {"X_test": TEST, "y_test": TEST_LABELS}
        done = [unspoken.simulate(agreed, TRAIN, LABELS, GROUPS, public=public, **test) for _ in range(runs)]
        return float(np.mean([run.metrics["accuracy"] for run in done]))

    assert accuracy(PUBLIC) > accuracy(None) + 0.08


def test_a_regression_is_learnt_as_without_them(file: Path) -> None:
    """Its second moments say themselves which directions there are, and a mean that is shrunk is missed."""
    labels = {"label_bounds": [-1, 1], "public": str(file)}
    agreed = make(task="regression", data={"features": FEATURES, **labels}, method="cape")
    assert method_for(agreed).directions is None
    assert any("makes no use of the public records" in note for note in plan_for(agreed).notes)


def test_both_engines_give_the_same_model(file: Path) -> None:
    method = method_for(study(data={"public": str(file)}, summation="secagg+"))
    federation = ArrayFederation(method.study, Records(TRAIN, LABELS), GROUPS, method.directions)
    models = [
        engine(method, method.plan(), federation, Conditions(secrets=SecretStream(bytes(32)))).release.weights
        for engine in (local.run, actors.run)
    ]
    np.testing.assert_array_equal(*models)


def test_a_party_by_itself_maps_its_records_as_a_simulation_does(file: Path) -> None:
    method = method_for(study(data={"public": str(file)}))
    federation = ArrayFederation(method.study, Records(TRAIN, LABELS), GROUPS, method.directions)
    parties, block = next(federation.blocks())
    for row, party in enumerate(parties.tolist()):
        own = Records(TRAIN[party == GROUPS], LABELS[party == GROUPS])
        alone = party_block(method.study, own, method.directions)
        np.testing.assert_allclose(alone.features[0], block.features[row], rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(alone.labels[0], block.labels[row])


def test_helpers_plan_without_the_file() -> None:
    method = method_for(study(data={"public": "elsewhere.npz", "public_sha256": "0" * 64}))
    assert any("of 12 directions" in note for note in method.agreed_plan.notes)


def test_records_that_were_not_mapped_are_refused(file: Path) -> None:
    method = method_for(study(data={"public": str(file)}))
    federation = ArrayFederation(method.study, Records(TRAIN, LABELS), GROUPS)
    for run in (local.run, actors.run):
        with pytest.raises(ValueError, match="went through the method's directions"):
            run(method, method.plan(), federation)


def test_the_promise_and_the_noise_stay_what_they_were(file: Path) -> None:
    with_file, without = plan_for(study(data={"public": str(file)})), plan_for(study())
    assert with_file.guarantee == without.guarantee
    assert with_file.sums == without.sums


def test_the_plan_says_what_the_file_does(file: Path) -> None:
    notes = plan_for(study(data={"public": str(file)})).notes
    assert any("of 12 directions that the public records vary in" in note for note in notes)
    assert any(hashlib.sha256(file.read_bytes()).hexdigest() in note for note in notes)
    unused = plan_for(study({"name": "moments", "function": "network"}, {"public": str(file)})).notes
    assert any('"moments" makes no use of the public records' in note for note in unused)
    assert not any("public records" in note for note in plan_for(study()).notes)


def test_moments_do_without_public_records_where_their_own_say_more(file: Path) -> None:
    """From X = d^1.5 on."""
    edge = PARTIES * EACH * math.sqrt((PARTIES - 1) / PARTIES) / FEATURES**1.5
    for multiplier, used in ((1.01 * edge, True), (0.99 * edge, False)):
        said = {"epsilon": None, "noise_multiplier": multiplier}
        method = method_for(study({"name": "moments"}, {"public": str(file)}, **said))
        assert (method.directions is not None) == used
        assert any("makes no use of the public records here" in note for note in method.agreed_plan.notes) != used


def test_steps_are_as_long_as_records_that_public_ones_mapped_allow(file: Path) -> None:
    """8K/(λn), where there is no noise: the first total moves the weights by that much, and the others are empty."""
    method = method_for(study({"name": "moments"}, {"public": str(file)}))
    assert isinstance(method, Moments)
    assert method.directions is not None
    method.workload.directions = method.directions

    def total(query: Query) -> Total:
        return Total(np.full(FEATURES * 3, float(query.turn == 0)), np.array([300]), PARTIES, 0.0)

    with pytest.raises(StopIteration) as concluded:
        next(method.workload.conclude(answered_by(total)))
    longest = 8.0 * 3 / (method.directions.largest * 300)
    np.testing.assert_allclose(concluded.value.value.weights, np.full((3, FEATURES), longest))


def test_the_signal_is_the_records_over_the_noise() -> None:
    """n·μ, less by √(parties/honest) for noise that others know (one party always knows its own), and by k for groups
    of k."""
    everything = PARTIES * EACH * mu_for(0.5, 1e-5)
    whole = everything * math.sqrt((PARTIES - 1) / PARTIES)
    for method in ({"name": "helmet"}, {"name": "moments"}):
        assert signal_of(plan_for(study(method))) == pytest.approx(whole, rel=0.02)
    assert signal_of(plan_for(study(colluding=3))) == pytest.approx(everything / math.sqrt(2.0), rel=0.02)
    assert signal_of(plan_for(study(unit={"group": 5}))) == pytest.approx(whole / 5.0, rel=0.02)
    assert signal_of(plan_for(study(unit="party"))) == pytest.approx(whole / EACH, rel=0.02)
    assert signal_of(plan_for(study({"name": "conv"}))) == pytest.approx(everything / math.sqrt(PARTIES), rel=0.02)


def test_whoever_has_another_file_has_another_study(file: Path, tmp_path: Path) -> None:
    other, moved = tmp_path / "other.npz", tmp_path / "moved.npz"
    np.savez(other, X=PUBLIC[:-1])
    moved.write_bytes(file.read_bytes())
    digests = [study(data={"public": str(path)}).digest() for path in (file, other, moved)]
    assert digests[0] == digests[2] != digests[1]
    assert digests[0] != study().digest()
    pinned = hashlib.sha256(file.read_bytes()).hexdigest()
    assert study(data={"public": str(file), "public_sha256": pinned}).digest() == digests[0]


def test_a_pinned_study_can_be_read_without_its_file_but_not_planned(file: Path) -> None:
    agreed = study(data={"public": "nowhere.npz", "public_sha256": "0" * 64})
    with pytest.raises(StudyError, match=r'public is "nowhere.npz", but there is no such file'):
        plan_for(agreed)
    with pytest.raises(StudyError, match=r'public_sha256 is "0+", but .*public.npz has the SHA-256 [0-9a-f]{64}; use'):
        plan_for(study(data={"public": str(file), "public_sha256": "0" * 64}))


def test_a_file_that_is_not_used_is_checked_if_it_is_there(file: Path) -> None:
    unused = {"name": "moments", "function": "network"}
    plan_for(study(unused, {"public": "nowhere.npz", "public_sha256": "0" * 64}))
    with pytest.raises(StudyError, match=r'public_sha256 is "0+", but .*public.npz has the SHA-256 [0-9a-f]{64}; use'):
        plan_for(study(unused, {"public": str(file), "public_sha256": "0" * 64}))
    np.savez(file, X=PUBLIC[:, :-1])
    with pytest.raises(DataError, match=r"public.npz: X has the shape"):
        plan_for(study(unused, {"public": str(file)}))


def test_the_file_may_lie_beside_the_study(file: Path) -> None:
    path = file.parent / "study.toml"
    path.write_text(
        f"""
        study = {{ name = "beside", task = "classification" }}
        data = {{ features = {FEATURES}, classes = 3, public = "public.npz" }}
        parties = {{ count = 6, records = 50 }}
        privacy = {{ epsilon = 1.0, delta = 1e-5 }}
        method = {{ name = "helmet" }}
        """
    )
    assert method_for(read_study(path)).directions is not None


def _save(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (_save(X=PUBLIC[:9]), r"public.npz: has 9 public records, too few .* 10 or more"),
        (_save(X=PUBLIC[:, :5]), r"public.npz: X has the shape \(300, 5\), but .* features = 12"),
        (_save(X=PUBLIC, y=np.zeros(300)), r"public.npz: has the labels 'y', but public records have none; save"),
        (
            _save(X=np.where(np.equal(PUBLIC, PUBLIC[7, 3]), np.nan, PUBLIC)),
            r"public.npz: X\[7, 3\] is nan, .* repair or",
        ),
        (_save(X=np.zeros((20, FEATURES))), r"public.npz: has zeros only; name"),
        (_save(X=PUBLIC * 1e-165), r"public.npz: has no number above 1e-165, too small to multiply; name"),
        (_save(X=PUBLIC * 1e-320), r"public.npz: has no number above 1e-320, too small to multiply; name"),
        (_save(Z=PUBLIC), r"public.npz: has no array 'X'"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_the_place_the_value_and_the_remedy(
    tmp_path: Path, save: Callable[[Path], None], message: str
) -> None:
    save(tmp_path / "public.npz")
    with pytest.raises(DataError, match=message):
        plan_for(study(data={"public": str(tmp_path / "public.npz")}))


def test_public_records_that_are_hardly_large_enough_give_numbers(tmp_path: Path) -> None:
    _save(X=PUBLIC * 2e-75)(tmp_path / "public.npz")
    directions = method_for(study(data={"public": str(tmp_path / "public.npz")})).directions
    assert directions is not None
    assert np.isfinite(directions.matrix).all()
    assert np.isfinite(directions.apply(TRAIN)[0]).all()


def test_a_table_s_public_records_have_its_columns_and_no_label(tmp_path: Path) -> None:
    columns = {"a": {"min": 0, "max": 1}, "b": {"categories": ["x", "y"]}}
    data = {"label": "died", "classes": ["no", "yes"], "columns": columns, "public": str(tmp_path / "public.csv")}
    table = pd.DataFrame({"a": np.linspace(0, 1, 20), "b": ["x", "y"] * 10})
    table.to_csv(tmp_path / "public.csv", index=False)
    agreed = make(data=data, method="helmet")
    assert method_for(agreed).directions is not None
    table.assign(died="no").to_csv(tmp_path / "public.csv", index=False)
    with pytest.raises(DataError, match=r"public.csv: has the labels 'died', but public records have none"):
        plan_for(make(data=data, method="helmet"))
    table.rename(columns={"a": "c"}).to_csv(tmp_path / "public.csv", index=False)
    with pytest.raises(DataError, match=r"public.csv: lacks the column 'a'"):
        plan_for(make(data=data, method="helmet"))


def test_votes_may_be_on_the_records_that_data_names(file: Path) -> None:
    keys = {"name": "voting", "queries": 20}
    assert method_for(study(keys, {"public": str(file)}, unit="party")).plan().facts["queries"] == 20
    with pytest.raises(StudyError, match=r"\[method\] public is given, but \[data\] names public records too"):
        plan_for(study({**keys, "public": str(file)}, {"public": str(file)}, unit="party"))
    with pytest.raises(StudyError, match="lacks public: a file with public records"):
        plan_for(study(keys, unit="party"))


def test_a_hash_without_a_file_is_refused() -> None:
    with pytest.raises(StudyError, match="has public_sha256, but no public"):
        study(data={"public_sha256": "0" * 64})


def test_arrays_and_frames_can_be_given_in_python(file: Path) -> None:
    given = unspoken.simulate(study(), TRAIN, LABELS, GROUPS, public=pd.DataFrame(PUBLIC))
    assert given.plan.study.data.public_sha256 is not None
    assert given.plan.study.digest() != study().digest()
    model = unspoken.PrivateClassifier("helmet", epsilon=5.0, intercept=False, classes=range(3), protocol="ideal")
    model.fit(TRAIN, LABELS, groups=GROUPS, public=PUBLIC)
    assert model.score(TEST, TEST_LABELS) > 0.6
    with pytest.raises(DataError, match=r"the public records: X has the shape \(300, 5\)"):
        model.fit(TRAIN, LABELS, groups=GROUPS, public=PUBLIC[:, :5])
    with pytest.raises(DataError, match="names a file of public records, but public is given too"):
        unspoken.simulate(study(data={"public": str(file)}), TRAIN, LABELS, GROUPS, public=PUBLIC)


def test_a_study_without_public_records_keeps_its_digest() -> None:
    """As it was before there were any."""
    content = {
        "study": {"name": "old", "task": "classification"},
        "data": {"features": 4, "classes": 3},
        "parties": {"count": 5},
        "privacy": {"epsilon": 1.0, "delta": 1e-6},
        "method": {"name": "helmet"},
    }
    assert make_study(content).digest() == "812fc7e6169c83e7cb51a2144aa562fa5344190d5ce55df9ce4116c2ad6f8741"
