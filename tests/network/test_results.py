"""What parties get when a study is over: the model, and the certificate that all have signed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from network.town import NAMES, NODES, Town
from unspoken import sites
from unspoken.engines.network import client, server
from unspoken.engines.network.frames import Ending, Signatures
from unspoken.engines.network.server import Server
from unspoken.engines.signing import canonical, is_signature
from unspoken.methods.parameters import Refused
from unspoken.roles.file_store import Disk
from unspoken.roles.party import Party
from unspoken.roles.store import StoreError
from unspoken.summation.base import Aborted, Rejected


def files_of(files: dict[str, str]) -> tuple[bytes, dict[str, Any]]:
    return Path(files["model"]).read_bytes(), json.loads(Path(files["certificate"]).read_text(encoding="utf-8"))


def test_everyone_has_the_same_model_and_the_certificate_with_all_signatures(town: Town, tmp_path: Path) -> None:
    serving, port = town.serve()
    joining = {name: town.join(name, port) for name in NAMES}
    served = serving.result(300)
    joined = {name: each.result(300) for name, each in joining.items()}
    model, content = files_of(served.save(tmp_path / "hub"))
    assert content["model_sha256"] == hashlib.sha256(model).hexdigest()
    assert [signature["address"] for signature in content["signatures"]] == [
        "coordinator",
        *(f"party:{index}" for index in range(3)),
    ]
    for signature in content["signatures"]:
        key, made = (bytes.fromhex(signature[part]) for part in ("key", "signature"))
        assert is_signature(key, canonical(content), made)
    for name in NAMES:
        assert files_of(joined[name].save(tmp_path / name)) == (model, content)
        assert (joined[name].missing, joined[name].disagrees) == ("", "")
    again = joined[NAMES[0]].save(tmp_path / NAMES[0])
    assert Path(again["model"]).name == "sites-2.model.skops", "nothing is overwritten"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        later = sites.serve(town.study, sites.Entrance(*taken.getsockname()), key=town.key("hub"))
    assert (later.is_old, later.certificate) == (True, served.certificate), "what has ended needs no port"
    assert later.outcome.bytes == served.outcome.bytes


def test_helpers_need_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "home"))
    town = Town(tmp_path, "compute-nodes")
    serving, port = town.serve()
    joining, assisting = [town.join(name, port) for name in NAMES], [town.assist(name, port) for name in NODES]
    assert len(serving.result(300).signatures) == 4
    assert all(each.result(300).file is not None for each in joining)
    for each in assisting:
        helped = each.result(300)
        assert helped.file is None
        assert helped.certificate == serving.result().certificate
    town.stop()


@pytest.mark.parametrize("lie", ["model", "epsilon", "no model", "name", "unsigned"])
def test_a_party_signs_no_certificate_of_another_model_or_promise(
    lie: str, town: Town, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = server.Server.finish

    async def lying(self: Server, ending: Ending, signed: Any = None) -> None:
        changed = json.loads(ending.certificate)
        changed["guarantee"]["epsilon"] = 0.1
        other = {
            "model": Ending(ending.certificate, "", ending.signature, ending.name, ending.file + b"x"),
            "epsilon": Ending(canonical(changed), "", ending.signature, ending.name, ending.file),
            "no model": Ending(ending.certificate, "", ending.signature),
            "name": Ending(ending.certificate, "", ending.signature, "../model.skops", ending.file),
            "unsigned": Ending(ending.certificate, "", b"", ending.name, ending.file),
        }
        await told(self, other[lie], signed)

    monkeypatch.setattr(server.Server, "finish", lying)
    serving, port = town.serve()
    joining = [town.join(name, port) for name in NAMES]
    assert [signature.address for signature in serving.result(300).signatures] == ["coordinator"]
    for each in joining:
        joined = each.result(300)
        assert {
            "model": "the model that came is not the one that the certificate names",
            "epsilon": "promises something else than this study's plan",
            "no model": "the released file did not come",
            "name": "the released file did not come",
            "unsigned": "the coordinator has not signed the certificate",
        }[lie] in joined.disagrees
        assert joined.save(tmp_path / "out") == {}
    assert not (tmp_path / "out").exists()


def test_a_party_keeps_its_own_signature_and_the_coordinators_whatever_comes_at_last(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = server.Server.finish

    async def silent(self: Server, ending: Ending, signed: Any = None) -> None:
        await told(self, ending, lambda: Signatures({"coordinator": b"", "party:0": b"", "party:7": b""}))

    monkeypatch.setattr(server.Server, "finish", silent)
    serving, port = town.serve()
    joining = [town.join(name, port) for name in NAMES]
    assert len(serving.result(300).signatures) == 4
    for index, each in enumerate(joining):
        assert [made.address for made in each.result(300).signatures] == ["coordinator", f"party:{index}"]


def test_a_party_that_was_away_gets_the_result_while_the_coordinator_waits(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is cut in the middle of the result, and made again."""
    monkeypatch.setattr("unspoken.engines.network.link.PIECE_BYTES", 3000)
    took, cuts = client.Client._receive, dict.fromkeys(NAMES[:1], 1)

    async def cut(self: client.Client, socket: Any) -> None:
        class Cut:
            def __aiter__(self) -> Any:
                return self._frames()

            async def _frames(self) -> Any:
                async for content in socket:
                    if b"ending" in content[:40] and cuts.pop(NAMES[0], 0):
                        await socket.close()
                        return
                    yield content

        await took(self, Cut())

    monkeypatch.setattr(client.Client, "_receive", cut)
    serving, port = town.serve(deadlines=sites.Deadlines(300.0, 300.0, 200.0))
    joining = [town.join(name, port) for name in NAMES]
    assert len(serving.result(300).signatures) == 4
    assert not cuts
    assert all(len(each.result(300).signatures) == 4 for each in joining)


def test_without_the_others_signatures_a_party_keeps_what_it_has_and_says_what_is_missing(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = server.Server.finish

    async def half(self: Server, ending: Ending, signed: Any = None) -> None:
        await told(self, ending)

    monkeypatch.setattr(server.Server, "finish", half)
    monkeypatch.setattr(client, "SIGNATURES_SECONDS", 0.2)
    serving, port = town.serve()
    joining = [town.join(name, port) for name in NAMES]
    assert len(serving.result(300).signatures) == 4
    for index, each in enumerate(joining):
        joined = each.result(300)
        assert joined.missing == "the other parties' signatures"
        assert [signature.address for signature in joined.signatures] == ["coordinator", f"party:{index}"]
        assert joined.file is not None


def test_an_abort_is_told_to_all(town: Town) -> None:
    serving, port = town.serve(deadlines=sites.Deadlines(300.0, 3.0, 0.2))
    joining = [town.join(name, port) for name in NAMES[:2]]
    with pytest.raises(Aborted, match="2 of 3 parties"):
        serving.result(300)
    for each in joining:
        assert each.result(300).certificate is None
        assert "2 of 3 parties" in each.result().reason


@pytest.mark.parametrize("is_long", [False, True])
def test_a_signature_that_was_lost_with_its_connection_is_sent_again(
    town: Town, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """However long the connection has lasted, compared with the time for which a coordinator is missed."""
    ended, lost = client.Client._end, [1]
    if is_long:
        monkeypatch.setattr(client, "LASTING_SECONDS", 0.0)
        monkeypatch.setattr(client, "SIGNATURES_SECONDS", 0.0)

    async def losing(self: client.Client, body: bytes) -> None:
        await ended(self, body)
        if lost and self._result is not None:
            lost.clear()
            self._extra.clear()
            raise Rejected("the line is cut")

    monkeypatch.setattr(client.Client, "_end", losing)
    serving, port = town.serve(deadlines=sites.Deadlines(300.0, 300.0, 200.0))
    joining = [town.join(name, port) for name in NAMES]
    assert len(serving.result(300).signatures) == 4
    assert all(len(each.result(300).signatures) == 4 for each in joining)


def test_one_certificate_is_signed_and_no_other_also_after_a_restart(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites.joining, "_check_ending", lambda *given: None)
    monkeypatch.setattr(sites.joining, "received", lambda *given: None)

    def signed(certificate: bytes) -> bytes:
        """By a process that has just begun."""
        ready = sites.prepare(town.study, town.folder / f"{NAMES[0]}.npz", key=town.key(NAMES[0]))
        return ready._signature(Ending(certificate), {})

    first = signed(b"one")
    with pytest.raises(Refused, match="another certificate of this study was signed before"):
        signed(b"two")
    assert signed(b"one") == first


def test_no_vector_leaves_after_the_certificate_was_signed_also_after_a_restart(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator could have a certificate of few attempts signed, and then ask for more that the plan allows."""
    monkeypatch.setattr(sites.joining, "_check_ending", lambda *given: None)
    monkeypatch.setattr(sites.joining, "received", lambda *given: None)
    ready = sites.prepare(town.study, town.folder / f"{NAMES[0]}.npz", key=town.key(NAMES[0]))

    def may_send(participant: sites.Participant) -> bool:
        party = participant.role
        assert isinstance(party, Party)
        with suppress(Refused), party.gate.passed(lambda: None):
            return True
        return False

    with ready.participant() as begun:
        assert may_send(begun)
        begun.agrees(Ending(b"one"))
        assert not may_send(begun)
    with ready.participant() as again:
        assert not may_send(again)


def test_nothing_is_signed_if_that_cannot_be_kept(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Disk, file: int, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    ready = sites.prepare(town.study, town.folder / f"{NAMES[0]}.npz", key=town.key(NAMES[0]))
    monkeypatch.setattr(sites.joining, "_check_ending", lambda *given: None)
    monkeypatch.setattr(sites.joining, "received", lambda *given: None)
    monkeypatch.setattr(Disk, "write", full)
    with pytest.raises(StoreError, match="No space left on device"):
        ready._signature(Ending(b"one"), {})


def test_an_abort_names_people_as_the_roster_does(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    async def aborting(self: Server) -> None:
        raise Aborted("too few are there (no answer came from party:0 and party:1)")

    monkeypatch.setattr(server.Server, "run", aborting)
    serving, _ = town.serve()
    with pytest.raises(Aborted, match=r"no answer came from St Mary and Charité\)"):
        serving.result(300)
