"""Who has signed a party's certificate is told, and a signature of another one is warned of."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest

from network.town import NAMES, Town
from unspoken.cli import endings as program
from unspoken.engines.network import relay, server
from unspoken.engines.network.cards import read_identity
from unspoken.engines.network.client import Unreachable
from unspoken.engines.network.frames import Ending, Signatures, packed
from unspoken.engines.signing import Signature, canonical, sign
from unspoken.methods.registry import plan_for
from unspoken.report.endings import Joined
from unspoken.sites import Told
from unspoken.summation.keys import Identity


def forked(body: bytes, address: str, hub: Identity) -> bytes:
    """A result of one party's own, signed by the coordinator."""
    ending: Any = msgspec.msgpack.decode(body, type=Ending | Signatures)
    if not isinstance(ending, Ending):
        return body
    content, file = json.loads(ending.certificate), ending.file + address.encode()
    certificate = canonical(content | {"model_sha256": hashlib.sha256(file).hexdigest()})
    return packed(Ending(certificate, "", sign(hub, certificate), ending.name, file))


def test_a_party_notices_that_others_have_signed_another_model(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator gives every party a model of its own, and all signatures that it gets."""
    hub, told, finish = read_identity(town.key("hub"))[1], relay.Peer.end, server.Server.finish

    async def passing_on(self: server.Server, ending: Ending, signed: Any = None) -> None:
        await finish(self, ending, lambda: Signatures(dict(self.signatures)))

    monkeypatch.setattr(server.Server, "finish", passing_on)
    monkeypatch.setattr(relay.Peer, "end", lambda self, body: told(self, forked(body, self.address, hub)))
    serving, port = town.serve()
    joining = [town.join(name, port) for name in NAMES]
    serving.result(300)
    for name, each in zip(NAMES, joining, strict=True):
        found, others = each.result(300).signers(), [other for other in NAMES if other != name]
        assert (found.signed, found.unsigned) == (["hub", name], others)
        assert sorted(found.misfits) == sorted(others)


def joined(town: Town, *addresses: str, misfits: tuple[str, ...] = ()) -> Joined:
    signatures = [Signature(address, "", "") for address in addresses]
    content = {"statement": "All is well.", "happened": {"survivors": 3}}
    return Joined(plan_for(town.study), content, "", 0, None, signatures, misfits=misfits)


def test_join_says_who_has_signed_and_who_has_not(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    program.finish(joined(town, "coordinator", "party:0", "party:1", "party:2"), {}, as_json=False)
    program.finish(joined(town, "coordinator", "party:0", misfits=("party:2", "party:9")), {}, as_json=False)
    said = capsys.readouterr()
    assert "Signed by hub, St Mary, Charité, Inselspital, who are all." in said.out
    assert "Signed by hub, St Mary; not by Charité, Inselspital." in said.out
    assert said.err.startswith("unspoken: warning: signatures came from Inselspital, party:9 that are not of this")
    assert said.err.count("\n") == 1


def test_for_programs_there_are_the_same_names(town: Town, capsys: pytest.CaptureFixture[str]) -> None:
    program.finish(joined(town, "coordinator", "party:0", misfits=("party:2",)), {}, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["signed"] == ["hub", "St Mary"]
    assert found["unsigned"] == ["Charité", "Inselspital"]
    assert found["misfits"] == ["Inselspital"]


def test_a_party_that_begins_again_after_it_has_signed_says_so(town: Town) -> None:
    """As a service does that is started at every boot."""
    serving, port = town.serve()
    said: list[str] = []
    joining = [town.join(name, port, told=Told(line=said.append)) for name in NAMES]
    serving.result(300)
    for each in joining:
        each.result(300)
    assert not any("has signed" in line for line in said)
    with pytest.raises(Unreachable):
        town.join(NAMES[0], port, told=Told(line=said.append), patience=0.0).result(300)
    assert any("this party has signed the certificate before" in line for line in said)
