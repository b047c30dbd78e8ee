"""The ledger at the front doors: estimators, `simulate`, `compute`, and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from typer.testing import CliRunner

import unspoken
from unspoken import Ledger, PrivateClassifier, PrivateRegressor
from unspoken.cli import app
from unspoken.data.digests import digest_of
from unspoken.data.files import DataError
from unspoken.privacy.gaussian import epsilon_of
from unspoken.privacy.ledger import OverLimit

DELTA = 1e-6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)) / 4
Y = (X[:, 0] > 0).astype(int)
GROUPS = np.arange(120) % 6
STUDY: dict[str, Any] = {
    "study": {"name": "heart", "task": "classification"},
    "data": {"features": 3, "norm": 1.0, "classes": 2},
    "parties": {"count": 6, "records": 20},
    "privacy": {"epsilon": 1.0, "delta": DELTA},
    "method": {"name": "helmet"},
}


def fits(ledger: Ledger) -> int:
    return len(ledger.account().charges)


def test_the_fits_of_a_search_are_told_as_what_they_cost() -> None:
    """19 fits of μ each are √19·μ together: far more than one, and far less than 19 ε.

    That neighbours in such folds cost no more: `test_searches`.
    """
    ledger = Ledger()
    model = PrivateClassifier(method="helmet", classes=[0, 1], epsilon=1.0, delta=DELTA, ledger=ledger, parties=4)
    search = GridSearchCV(model, {"regularization": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0]}, cv=KFold(3)).fit(X, Y)
    one = search.best_estimator_.guarantee_
    assert fits(ledger) == 19
    assert one.epsilon == pytest.approx(1.0)
    assert ledger.guarantee(DELTA).epsilon == pytest.approx(epsilon_of(np.sqrt(19) * one.mu, DELTA), rel=1e-3)
    assert "everything that 19 runs revealed" in (said := ledger.guarantee(DELTA).sentence())
    assert "that the rows of each run, and their parties, were chosen without regard to records" in said


def test_estimators_share_a_ledger_and_its_limit() -> None:
    ledger = Ledger()
    ledger.set_limit(1.6, DELTA)
    classifier = PrivateClassifier(method="helmet", classes=[0, 1], epsilon=1.0, delta=DELTA, ledger=ledger)
    regressor = PrivateRegressor(label_bounds=(0, 1), epsilon=1.0, delta=DELTA, ledger=ledger)
    classifier.fit(X, Y, groups=GROUPS)
    clone(regressor).fit(X, Y, groups=GROUPS)
    with pytest.raises(OverLimit, match=r"would bring it to 1\.8"):
        clone(classifier).fit(X, Y, groups=GROUPS)
    assert fits(ledger) == 2


def test_without_a_ledger_nothing_is_charged_and_what_is_none_is_refused() -> None:
    unspoken.simulate(STUDY, X, Y, GROUPS)
    with pytest.raises(DataError, match=r"ledger is 'budget.sqlite', but should be an unspoken.Ledger"):
        unspoken.simulate(STUDY, X, Y, GROUPS, ledger="budget.sqlite")  # type: ignore[arg-type]


def test_simulations_and_computations_are_charged_together(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    mus = [unspoken.simulate(STUDY, X, Y, GROUPS, ledger=ledger).plan.guarantee.mu or 0.0]
    promise: dict[str, Any] = {"sensitivity": 1, "bound": 1000, "epsilon": 0.5, "delta": DELTA}
    found = unspoken.compute(lambda rows: [(rows > 0).sum()], X, GROUPS, dimension=1, ledger=ledger, **promise)
    mus.append(found.guarantee.mu or 0.0)
    assert Ledger(tmp_path / "ledger").guarantee(DELTA).epsilon == pytest.approx(epsilon_of(np.hypot(*mus), DELTA))


@pytest.mark.parametrize(("method", "again"), [("helmet", 1), ("central", 2)])
def test_a_run_that_goes_on_from_its_checkpoint_is_charged_once(method: str, again: int, tmp_path: Path) -> None:
    """A curator's noise is not in the checkpoint: it is drawn anew, and is another release."""
    study, ledger = {**STUDY, "method": {"name": method}}, Ledger()
    for _ in range(2):
        unspoken.simulate(study, X, Y, GROUPS, checkpoint=tmp_path / "checkpoint", ledger=ledger)
    assert fits(ledger) == again
    (tmp_path / "checkpoint").unlink()
    unspoken.simulate(study, X, Y, GROUPS, checkpoint=tmp_path / "checkpoint", ledger=ledger)
    assert fits(ledger) == again + 1


def said(*arguments: object, status: int = 0) -> Any:
    done = CliRunner().invoke(app, ["ledger", *map(str, arguments), "--json"])
    assert done.exit_code == status, done.output
    return json.loads(done.stdout) if status == 0 else done.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "home"))
    np.savez("mine.npz", X=X, y=Y)
    sections = {name: [f"{key} = {json.dumps(value)}\n" for key, value in part.items()] for name, part in STUDY.items()}
    Path("heart.toml").write_text("".join(f"[{name}]\n{''.join(lines)}" for name, lines in sections.items()))
    return tmp_path


def simulated(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["simulate", "heart.toml", "--data", "mine.npz", "--ledger", "l.sqlite", *arguments])


def test_a_limit_is_set_kept_and_shown(folder: Path) -> None:
    assert "--dataset" in simulated().stderr
    there = ("--ledger", "l.sqlite")
    set_ = said("limit", *there, "--data", "mine.npz", "--dataset", "heart", "--epsilon", 1.6, "--delta", DELTA)
    assert set_["limit"] == {"epsilon": 1.6, "delta": DELTA, "unit": "record", "left": pytest.approx(1.6, rel=0.02)}
    assert [simulated().exit_code for _ in range(3)] == [0, 0, 4]
    assert 'the ledger\'s limit for "heart" is epsilon = 1.6' in simulated().stderr
    shown = said("show", *there)
    assert len(shown["entries"]) == 2
    entry = {"study_sha256", "attempt", "epsilon", "delta", "unit", "when"}
    assert all(entry <= set(found) and found["epsilon"] == pytest.approx(1.0) for found in shown["entries"])
    certificate = json.loads(Path("heart.certificate.json").read_text())
    assert shown["entries"][0]["study_sha256"] == certificate["study_sha256"]
    mu = np.sqrt(2) * certificate["guarantee"]["mu"]
    assert shown["total"]["epsilon"] == pytest.approx(epsilon_of(mu, DELTA))
    assert 0 < shown["limit"]["left"] < 1
    assert said("show", *there, "--delta", 1e-5)["total"]["delta"] == 1e-5
    (trust,) = shown["rests_on"]
    assert trust["colluding"] == 0
    assert trust["assumptions"]
    assert said("limit", *there, "--remove")["limit"] is None
    assert simulated().exit_code == 0


@pytest.mark.parametrize("kind", ["by-class", "dirichlet:0.5", "classes:1", "nonsense"])
def test_a_run_that_is_split_by_labels_is_not_charged(kind: str, folder: Path) -> None:
    done = simulated("--dataset", "heart", "--split", kind)
    assert done.exit_code == 2
    assert f"--split is {kind!r}, but with --ledger it should be iid" in done.stderr
    assert not (folder / "l.sqlite").exists()


def test_an_export_has_all_events_and_no_digest_of_records(folder: Path) -> None:
    there = ("--ledger", "l.sqlite")
    simulated("--dataset", "heart")
    pages = said("export", *there)["pages"]
    assert [page["kind"] for page in pages] == ["run", "charge"]
    assert pages[1]["events"][0]["kind"] == "gaussian"
    assert digest_of([Path("mine.npz")]) not in json.dumps(pages)
    assert said("export", *there, "--output", "out.json") == {"file": "out.json", "pages": 2}
    assert json.loads(Path("out.json").read_text())["pages"] == pages
    assert "exists already" in said("export", *there, "--output", "out.json", status=2)
    said("export", *there, "--output", "out.json", "--force")


def test_people_are_told_in_words(folder: Path) -> None:
    simulated("--dataset", "heart")
    done = CliRunner().invoke(app, ["ledger", "show", "--ledger", "l.sqlite"])
    assert "everything that one run revealed" in " ".join(done.stdout.split())
    done = CliRunner().invoke(app, ["ledger", "limit", "--ledger", "l.sqlite", "--epsilon", "0.5"])
    assert done.stdout == '"heart". Limit: epsilon = 0.5 at delta = 1e-06 for one record; nothing is left.\n'


def test_without_a_file_it_is_the_ledger_of_whoever_runs_it(folder: Path) -> None:
    assert "there is no such ledger" in said("show", status=2)
    (folder / "empty").touch()
    assert "empty: there is no such ledger" in said("show", "--ledger", "empty", status=2)
    assert (folder / "empty").read_bytes() == b""
    said("limit", "--dataset", "heart", "--epsilon", 2)
    assert (folder / "home" / "ledger.sqlite").stat().st_mode & 0o777 == 0o600
    assert said("show")["dataset"] == "heart"
    assert said("show")["total"]["epsilon"] == 0.0
    said("limit", "--dataset", "lung", "--epsilon", 2, "--unit", "party")
    assert 'say which data set is meant with --dataset or --data (it has: "heart", "lung")' in said("show", status=2)
    assert said("show", "--dataset", "lung")["limit"]["unit"] == "party"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("limit", "--dataset", "a"), "give one of them"),
        (("limit", "--dataset", "a", "--epsilon", 1, "--remove"), "give one of them"),
        (("limit", "--dataset", "a", "--epsilon", -1), "the limit is epsilon = -1.0"),
        (("limit", "--dataset", "a", "--epsilon", 1, "--unit", "group:0"), '--unit is "group:0"'),
        (("limit", "--dataset", " ", "--epsilon", 1), "dataset is ' '"),
        (("limit", "--data", "gone.csv", "--dataset", "a", "--epsilon", 1), "gone.csv: there is no such file"),
        (("show", "--ledger", "mine.npz"), "mine.npz: is not a ledger"),
        (("show", "--ledger", "l.sqlite", "--delta", 2), "--delta is 2.0"),
        (("show", "--ledger", "l.sqlite", "--dataset", "b"), 'has no data set "b" (it has: "heart")'),
        (("export", "--ledger", "l.sqlite", "--output", "no/where"), "no/where: cannot be written"),
    ],
)
def test_mistakes_are_told_in_one_sentence(arguments: tuple[object, ...], sentence: str, folder: Path) -> None:
    Ledger(folder / "l.sqlite", "heart").set_limit(1.0)
    error = said(*arguments, status=2)
    assert sentence in error
    assert error.count("\n") == 1
