"""`unspoken verify`: what is wrong with a certificate is named, and so is what nobody could check."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import unspoken
from factories import make
from network.town import NAMES, Town
from unspoken.cli import app
from unspoken.engines.network.cards import read_identity
from unspoken.engines.outcome import NETWORK
from unspoken.engines.signing import canonical, sign
from unspoken.methods.registry import plan_for
from unspoken.report.certificate import statement
from unspoken.summation.keys import Identity

BEGAN = "2026-01-01T00:00:00+00:00"
"""When another study may have begun"""


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A town in which a study was run: its files are in the folder `out`."""
    folder = tmp_path_factory.mktemp("town")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSPOKEN_HOME", str(folder / "home"))
        found = Town(folder)
        serving, port = found.serve()
        joining = [found.join(name, port) for name in NAMES]
        serving.result(300).save(folder / "out")
        for each in joining:
            each.result(300)
        yield found
        found.stop()


@pytest.fixture(scope="module")
def content(town: Town) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((town.folder / "out/sites.certificate.json").read_text(encoding="utf-8"))
    return read


def signed_anew(town: Town, changed: dict[str, Any], *names: str) -> dict[str, Any]:
    """The certificate, signed by these, as if they had all lied."""
    found = []
    for name in names:
        identity = read_identity(town.key(name))[1]
        address = "coordinator" if name == "hub" else f"party:{NAMES.index(name)}"
        signature = sign(identity, canonical(changed)).hex()
        found.append({"address": address, "key": identity.public.hex(), "signature": signature})
    return changed | {"signatures": found}


def test_all_is_checked_and_all_have_signed(town: Town, tmp_path: Path) -> None:
    files = ["verify", str(town.folder / "out/sites.certificate.json"), "--study", str(town.file), "--json"]
    done = CliRunner().invoke(app, [*files, "--model", str(town.folder / "out/sites.model.skops")])
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["signed"] == ["hub", *NAMES]
    assert found["unsigned"] == []
    assert len(found["checked"]) == 5
    assert found["unchecked"] == [
        "Who took part, and in how many attempts: that is the word of those who signed. They say: 3 of 3 parties "
        "stayed to the end, in 1 attempt for 1 total (epsilon counts 1)."
    ]
    assert found["study_sha256"] == town.study.digest()
    assert found["guarantee"]["epsilon"] == 2.0
    formatted = tmp_path / "formatted.json"
    formatted.write_text(json.dumps(json.loads(Path(files[1]).read_text(encoding="utf-8")), sort_keys=True))
    shown = CliRunner().invoke(app, ["verify", str(formatted)])
    assert shown.exit_code == 0, shown.stderr
    for part in ("nothing is wrong", "no study is given (--study)", "no file is given (--model)", "epsilon = 2"):
        assert part in shown.stdout.replace("\n", " ")
    assert "Signed by hub, St Mary, Charité, Inselspital, who are all." in shown.stdout


def test_who_has_not_signed_is_named(town: Town, content: dict[str, Any]) -> None:
    fewer = {**content, "signatures": [content["signatures"][place] for place in (0, 1, 3)]}
    found = unspoken.verify(fewer, town.file)
    assert (found.signed, found.unsigned) == (["hub", "St Mary", "Inselspital"], ["Charité"])


def changed(content: dict[str, Any], *path: str | int, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(content)
    place: Any = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return made


PATHS: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("guarantee", "epsilon"), 0.5, r'"guarantee.epsilon" is 0.5, but its study makes \S+ of it: it was changed'),
    (("guarantee", "sentence"), "none", r'"guarantee.sentence" is "none", but'),
    (("releases", 0, "noise_std"), 9.0, r'"releases\[0\].noise_std" is 9.0, but its study makes'),
    (("notes",), ["fine"], r'"notes" is \["fine"\], but'),
    (("guarantee", "unit"), True, r'"guarantee.unit" is true, but its study makes "record" of it'),
    (("statement",), "All is well.", r'"statement" has "All is well\.", but its study promises "Whoever'),
    (("study_sha256",), "00" * 32, r'"study_sha256" is "0+…, but "agreement" has [0-9a-f]{64}: one of them was'),
    (("agreement", "privacy", "epsilon"), 3.0, r'"study_sha256" is "[0-9a-f]+…, but "agreement" has'),
    (("agreement", "privacy", "epsilon"), -1, r"agreement: \[privacy\] epsilon is -1, but should be"),
    (("happened", "epsilon"), 2.5, r'"happened.epsilon" is 2.5, but the study promises at most \S+: this cannot have'),
    (("happened", "survivors"), 2, r'"happened.survivors" is 2, but the study has 3 to 3: this cannot'),
    (("happened", "survivors"), True, r'"happened.survivors" is true, but the study has 3 to 3: this cannot'),
    (("happened", "secure_sum"), False, r'"happened.secure_sum" is false, but its study makes true of it: this cannot'),
    (("happened", "note"), "x", r'"happened" has "note", which no certificate of this study has'),
    (("happened", "dropped"), 2, r'"happened.dropped" is 2, but its study makes 0 of it'),
    (("happened", "attempts"), 10**9, r'"happened.attempts" is 1000000000, but the study has 1 to 1: this cannot'),
    (("began",), "1970-01-01", r'"began" is "1970-01-01", but should be a time such as'),
    (("versions",), None, r'"versions" is missing, but should have at least that of unspoken'),
    (("note",), "x", r'has "note", which no certificate of its study has: it was changed'),
    (("parties",), 4, r'"parties" is 4, but its study makes 3 of it'),
    (("releases",), None, r'"releases" is missing, but its study makes'),
]


@pytest.mark.parametrize(("path", "value", "told"), PATHS, ids=lambda part: str(part)[:30])
def test_another_promise_than_the_study_makes_is_found_whoever_signed_it(
    path: tuple[str | int, ...], value: Any, told: str, town: Town, content: dict[str, Any]
) -> None:
    lie = changed(content, *path, value=value)
    with pytest.raises(unspoken.CertificateError, match=f"^the certificate(:|,) ?{told}"):
        unspoken.verify(signed_anew(town, lie, "hub", *NAMES))


def stranger(content: dict[str, Any]) -> dict[str, Any]:
    identity = Identity(bytes(range(32)))
    signature = sign(identity, canonical(content)).hex()
    more = {"address": "party:3", "key": identity.public.hex(), "signature": signature}
    return {**content, "signatures": [*content["signatures"], more]}


SIGNATURES: list[tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = [
    (stranger, r'"signatures\[4\].key" is "[0-9a-f]+…, which is not in the study\'s roster'),
    (lambda content: {**content, "began": BEGAN}, r'"signatures\[0\]" by coordinator does not fit: certificate'),
    (lambda content: {**content, "signatures": content["signatures"][1:]}, r"lacks that of the coordinator, hub; ask"),
    (lambda content: {**content, "signatures": []}, "lacks that of the coordinator, hub; ask"),
    (
        lambda content: {key: content[key] for key in content if key != "signatures"},
        '"signatures" is missing, but should',
    ),
    (lambda content: changed(content, "signatures", 1, "address", value="party:2"), "whose key in the roster is anoth"),
    (lambda content: changed(content, "signatures", 1, "signature", value="xyz"), "should have an address, a key and"),
    (lambda content: changed(content, "signatures", 1, "name", value="Dr X"), r'"signatures\[1\].name" is signed by n'),
    (lambda content: changed(content, "signatures", 1, value=7), r'"signatures\[1\]" is 7, but should have an address'),
    (lambda content: changed(content, "model_sha256", value="00"), r'"signatures\[0\]" by coordinator does not fit'),
    (lambda content: changed(content, "simulation", value=True), '"statement" has "Whoever'),
]


@pytest.mark.parametrize(("lie", "told"), SIGNATURES)
def test_signatures_that_do_not_fit_are_found(lie: Any, told: str, town: Town, content: dict[str, Any]) -> None:
    with pytest.raises(unspoken.CertificateError, match=told):
        unspoken.verify(lie(content), town.study)


def test_signatures_of_another_certificate_do_not_fit(town: Town, content: dict[str, Any]) -> None:
    other = signed_anew(town, {**content, "began": BEGAN}, "hub", *NAMES)
    with pytest.raises(unspoken.CertificateError, match=r"signs another certificate; get the file anew\."):
        unspoken.verify({**content, "signatures": other["signatures"]})


def test_another_study_or_another_model_is_found(town: Town, content: dict[str, Any], tmp_path: Path) -> None:
    model = tmp_path / "model.skops"
    model.write_bytes(b"another")
    with pytest.raises(unspoken.CertificateError, match=r'"model_sha256" is .*, but .*model\.skops has [0-9a-f]{64}'):
        unspoken.verify(content, model=model)
    with pytest.raises(unspoken.CertificateError, match=r"gone: cannot be read \(No such file"):
        unspoken.verify(content, model=tmp_path / "gone")
    study = tmp_path / "study.toml"
    study.write_text(town.file.read_text(encoding="utf-8").replace("epsilon = 2.0", "epsilon = 1.0"), encoding="utf-8")
    told = rf'"study_sha256" is {town.study.digest()}, but .*study\.toml has [0-9a-f]{{64}}: this certificate is of'
    with pytest.raises(unspoken.CertificateError, match=told):
        unspoken.verify(content, study)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", 'is no certificate: "certificate" is []'),
        ('{"certificate": "unspoken/9"}', 'is no certificate: "certificate" is "unspoken/9", but should be'),
        ('{"certificate": "unspoken/1"}', '"agreement" is missing; get'),
        ('{"certificate": "unspoken/1", "certificate": "unspoken/1"}', "a key is there twice"),
        ('{"certificate": NaN}', "NaN is no number"),
        ("[" * 100_000, "is not JSON"),
        ('{"certificate": 1e999}', "1e999 is no number"),
        ('{"certificate": "unspoken/1", "began": "\\ud800"}', "cannot be signed, such as half a character"),
        ('{"certificate": "\\ud800"}', "is no certificate"),
    ],
)
def test_what_is_no_certificate_is_refused_in_one_sentence(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    file.write_text(text)
    done = CliRunner().invoke(app, ["verify", str(file), "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"unspoken: {file}: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    gone = CliRunner().invoke(app, ["verify", str(tmp_path / "gone.json")])
    assert (gone.exit_code, "cannot be read (No such file" in gone.stderr) == (2, True)


def test_of_a_simulation_is_said_that_nobody_signed_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    agreed = make("helmet", parties={"count": 4, "records": 5})
    run = unspoken.simulate(agreed, rng.normal(size=(20, 4)), rng.integers(3, size=20), np.arange(20) % 4)
    files = run.save(tmp_path)
    found = unspoken.verify(files["certificate"], model=files["model"])
    assert found.is_simulation
    assert found.signed == found.unsigned == []
    assert "Who says so: it is a simulation's, which nobody signs." in found.unchecked
    for meant in (False, True):
        with pytest.raises(unspoken.CertificateError, match="which nobody signs; leave --all-signed out"):
            unspoken.verify(files["certificate"], simulation=meant, all_signed=True)
    content = json.loads(Path(files["certificate"]).read_text(encoding="utf-8"))
    for lie, told in (
        (content | {"signatures": []}, "which nobody signs; take them out"),
        (content | {"simulation": False}, '"statement" has "SIMULATION'),
        (
            content
            | {"simulation": False, "statement": run.plan.guarantee.sentence()}
            | {"happened": content["happened"] | {"engine": NETWORK}},
            '"agreement.roster" is missing: nobody can have signed',
        ),
    ):
        with pytest.raises(unspoken.CertificateError, match=told):
            unspoken.verify(lie)


def simulated(town: Town, content: dict[str, Any], model: bytes) -> dict[str, Any]:
    """A certificate of a run on a network, turned into a simulation's of another model."""
    plan = plan_for(town.study)
    made = {key: value for key, value in content.items() if key != "signatures"}
    other = {"simulation": True, "statement": statement(plan, simulated=True)}
    return made | other | {"model_sha256": hashlib.sha256(model).hexdigest()}


def test_a_simulation_is_no_answer_where_signatures_are_due(
    town: Town, content: dict[str, Any], tmp_path: Path
) -> None:
    file, model = tmp_path / "made-up.json", tmp_path / "model.skops"
    model.write_bytes(b"anything")
    file.write_text(json.dumps(simulated(town, content, b"anything")), encoding="utf-8")
    command = ["verify", str(file), "--study", str(town.file), "--model", str(model)]
    for more in ([], ["--all-signed"], ["--simulation", "--all-signed"]):
        refused = CliRunner().invoke(app, [*command, *more])
        assert refused.exit_code == 2
        assert "it is a simulation's, which nobody signs, but its study has a roster" in refused.stderr
    meant = CliRunner().invoke(app, [*command, "--simulation", "--json"])
    assert meant.exit_code == 0, meant.stderr
    assert json.loads(meant.stdout)["simulation"] is True


def test_where_all_must_have_signed_a_missing_signature_is_refused(
    town: Town, content: dict[str, Any], tmp_path: Path
) -> None:
    file, command = tmp_path / "certificate.json", ["verify", str(tmp_path / "certificate.json"), "--all-signed"]
    file.write_text(json.dumps(content), encoding="utf-8")
    assert CliRunner().invoke(app, command).exit_code == 0
    file.write_text(json.dumps({**content, "signatures": content["signatures"][:3]}), encoding="utf-8")
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "2 parties have signed, but 3 are in it; not signed by Inselspital; ask" in refused.stderr
    assert CliRunner().invoke(app, command[:2]).exit_code == 0, "unless it is asked for, it is only told"


def test_without_its_public_file_a_promise_is_not_checked_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    np.savez("public.npz", X=rng.normal(size=(20, 4)))
    options = {"queries": 5, "public": "public.npz"}
    agreed = make("voting", parties={"count": 4, "records": 5}, method=options, summation="ideal")
    run = unspoken.simulate(agreed, rng.normal(size=(20, 4)), rng.integers(3, size=20), np.arange(20) % 4)
    files = run.save(tmp_path)
    assert not any("promise" in line for line in unspoken.verify(files["certificate"]).unchecked)
    Path("public.npz").unlink()
    found = unspoken.verify(files["certificate"])
    assert any("The promise, which cannot be computed here: " in line and "public" in line for line in found.unchecked)
