"""Studies over a real SuperLink and stock SuperNodes, on this machine. They run with --flower, where Flower is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flower.federation import Federation
from network.town import NAMES, STUDY, Town
from unspoken import verify
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records, read_records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.engines.network.cards import make_keys
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.privacy.ledger import Ledger
from unspoken.report.results import ResultFile

pytestmark = [
    pytest.mark.flower,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("flower"),
]
APP = Path(__file__).parents[2] / "examples" / "flower"
DROPOUTS = STUDY.replace("delta = 1e-5", "delta = 1e-5\ndropouts = 1")
INJECTED = '''
"""The app, with secrets that a test knows."""
from unspoken.sites import joining
from unspoken.flower.apps import client_app, server_app
from unspoken.noise.stream import SecretStream

class Known(joining.Party):
    def __init__(self, *given, **named):
        super().__init__(*given, root_of=lambda attempt: SecretStream(bytes(range(32))).key(), **named)

joining.Party = Known
__all__ = ["client_app", "server_app"]
'''


class Sites:
    """Three sites, whose SuperNodes run from the first test to the last. For each study they get other files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.federation = Federation(folder)

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    def town(self, title: str, text: str = STUDY, protocol: str = "secagg+") -> Town:
        folder = self.folder / title
        folder.mkdir()
        town = Town(folder, protocol, text)
        town.stop()
        for name in NAMES:
            self.write(name, town)
        return town

    def write(self, name: str, town: Town, **said: str) -> None:
        home = town.key(name).parent
        content = {"study": town.file, "home": home, "data": town.folder / f"{name}.npz", **said}
        lines = [f'{key} = "{value}"\n' for key, value in content.items()]
        self.file(name).write_text("".join([*lines, "yes = true\n"]), encoding="utf-8")

    def config(self, town: Town, **said: Any) -> dict[str, Any]:
        terms = {"stage_seconds": 240.0, "join_seconds": 240.0, "grace_seconds": 120.0}
        return {"study": str(town.file), "home": str(town.key("hub").parent), **terms, **said}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    made = Sites(tmp_path_factory.mktemp("federation"))
    try:
        made.federation.link()
        for name in NAMES:
            made.federation.node(name, made.file(name))
        yield made
    finally:
        made.federation.stop()


def certificate_of(town: Town, name: str) -> dict[str, Any]:
    """The certificate that a participant has, if there is nothing wrong with it."""
    results = town.key(name).parent / "results"
    verify(results / "sites.certificate.json", town.file, results / "sites.model.skops")
    return json.loads((results / "sites.certificate.json").read_text())


def local_model(town: Town) -> str:
    """The SHA-256 of the model that the local engine makes of the same records and secrets."""
    parts = [read_records(town.folder / f"{name}.npz", town.study) for name in NAMES]
    features, labels = (np.concatenate([getattr(part, what) for part in parts]) for what in ("features", "labels"))
    groups = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    method = method_for(town.study)
    federation = ArrayFederation(town.study, Records(features, labels), groups)
    outcome = local.run(method, method.plan(), federation, Conditions(secrets=SecretStream(bytes(range(32)))))
    return ResultFile.of(outcome.release, town.study).sha256


def test_a_study_ends_with_the_local_engines_model_signed_by_all_and_charged_to_each(
    sites: Sites, tmp_path: Path
) -> None:
    """The bundle injects secrets. That it can is why sites pin what runs (docs/flower.md)."""
    town = sites.town("first", protocol="pairwise")
    (tmp_path / "injected.py").write_text(INJECTED)
    text = (APP / "pyproject.toml").read_text().replace("unspoken.flower.apps:", "injected:")
    (tmp_path / "pyproject.toml").write_text(text)
    with sites.federation.run(tmp_path, **sites.config(town)) as lines:
        lines.until("Signed by the coordinator and 3 of 3 parties.")
    for name in ("hub", *NAMES):
        certificate = certificate_of(town, name)
        assert certificate["happened"]["survivors"] == 3
        assert certificate["happened"]["engine"].startswith("Flower")
        assert certificate["model_sha256"] == local_model(town)
        assert len(certificate["signatures"]) == 4
    for name in NAMES:
        spent = Ledger(town.key(name).parent / "ledger.sqlite", name).guarantee(delta=1e-5)
        assert spent.epsilon == pytest.approx(2.0, rel=0.01)


def test_a_node_that_comes_back_is_the_same_party_and_one_that_does_not_has_dropped_out(sites: Sites) -> None:
    town = sites.town("second", DROPOUTS)
    with sites.federation.run(APP, **sites.config(town, grace_seconds=10.0)) as lines:
        lines.until("agreeing on keys")
        sites.federation.kill("Charité")
        sites.federation.node("Charité", sites.file("Charité"))
        lines.until("computing and sending")
        sites.federation.kill("Inselspital")
        lines.until("Signed by the coordinator and 2 of 3 parties; not by Inselspital.")
    joined = [line for line in lines.seen if "Charité has joined" in line]
    assert len(joined) == 2
    for name in ("hub", "St Mary", "Charité"):
        certificate = certificate_of(town, name)
        assert certificate["happened"]["survivors"] == 2
        assert certificate["happened"]["dropped"] == 1
    sites.federation.node("Inselspital", sites.file("Inselspital"))


def test_an_unknown_key_and_a_changed_study_are_refused(sites: Sites, tmp_path: Path) -> None:
    town = sites.town("third")
    changed = tmp_path / "changed.toml"
    changed.write_text(town.file.read_text().replace("epsilon = 2.0", "epsilon = 3.0"))
    sites.write("St Mary", town, study=str(changed))
    make_keys("stranger", tmp_path / "stranger.secret", tmp_path / "stranger.card")
    sites.write("Charité", town, keys=str(tmp_path / "stranger.secret"))
    with sites.federation.run(APP, **sites.config(town)) as lines:
        lines.until(
            "its copy of the study differs from the coordinator's", "its own log says why", "Inselspital has joined"
        )
    assert "stranger.secret: has a key that is not in" in sites.federation.log("Charité").read_text()
    assert not [line for line in lines.seen if "St Mary has joined" in line or "Charité has joined" in line]
