"""What a participant is told again, and what not, when attempts follow each other."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cast import Cast, study_of
from small_studies import public_file, small
from unspoken.engines.network.client import Client, CoordinatorAddress, Told
from unspoken.engines.network.frames import Done
from unspoken.engines.network.link import Arrived, Link
from unspoken.engines.network.relay import Peer, Relay
from unspoken.roles.messages import Ask, Assist, Carried, Over
from unspoken.summation.base import Aborted, Rejected


def ask(turn: int) -> bytes:
    return msgspec.msgpack.encode(Ask(bytes([turn]) * 16, "sum", "model", turn))


def carried(turn: int, content: bytes) -> bytes:
    return msgspec.msgpack.encode(Carried(bytes([turn]) * 16, memoryview(content)))


def peer() -> Peer:
    return Peer("party:0", Link(lambda: 10_000), b"first")


def delivered(made: Peer, receiver: Link, most: int = 100) -> list[bytes]:
    """Bring so many messages to the other side."""
    found = []
    for piece in list(made.link.pieces())[:most]:
        got, whole = receiver.take(piece)
        made.link.acknowledge(got)
        found += [] if whole is None else [whole.body]
    return found


def test_an_attempt_that_a_participant_never_heard_of_is_not_told_when_the_next_one_begins() -> None:
    made, receiver = peer(), Link(lambda: 10_000)
    for body in (ask(0), carried(0, b"keys"), msgspec.msgpack.encode(Over(bytes(16))), ask(1)):
        made.put("coordinator", body)
    assert delivered(made, receiver) == [ask(1)]
    assert [kept.body for kept in made.kept] == [ask(1)]


def test_the_rest_of_an_attempt_that_it_takes_part_in_is_told_before_the_next_one() -> None:
    made, receiver = peer(), Link(lambda: 10_000)
    made.put("coordinator", ask(0))
    assert delivered(made, receiver) == [ask(0)]
    for body in (carried(0, b"the last confirmation"), ask(1)):
        made.put("coordinator", body)
    assert delivered(made, receiver) == [carried(0, b"the last confirmation"), ask(1)]


def test_the_rest_of_an_attempt_is_told_also_if_several_begin_before_it_has_come() -> None:
    """A party that was away while a list of tokens was completed, and while an attempt with the list failed."""
    made, receiver, last = peer(), Link(lambda: 10_000), carried(0, b"the last confirmation")
    made.put("coordinator", ask(0))
    assert delivered(made, receiver) == [ask(0)]
    for body in (last, ask(1), carried(1, b"keys"), ask(2), carried(2, b"keys"), ask(3)):
        made.put("coordinator", body)
    assert [kept.body for kept in made.kept] == [ask(0), last, ask(3)]
    assert delivered(made, receiver) == [last, ask(3)]


def test_the_rest_of_an_attempt_that_is_over_is_not_told_when_the_next_one_begins() -> None:
    made, receiver = peer(), Link(lambda: 10_000)
    made.put("coordinator", ask(0))
    assert delivered(made, receiver) == [ask(0)]
    for body in (carried(0, b"keys"), msgspec.msgpack.encode(Over(bytes(16))), ask(1)):
        made.put("coordinator", body)
    assert delivered(made, receiver) == [ask(1)]


def test_a_new_process_is_told_all_since_its_last_answer() -> None:
    made, receiver = peer(), Link(lambda: 10_000)
    for body in (ask(0), carried(0, b"keys"), carried(0, b"shares")):
        made.put("coordinator", body)
    delivered(made, receiver)
    made.done(Done(2, 0))
    made.begin(b"second", (7, 7), lambda: 10_000)
    assert delivered(made, Link(lambda: 10_000)) == [carried(0, b"keys"), carried(0, b"shares")]


class SlowLink(Link):
    """Puts a message, and goes on a moment later."""

    def __init__(self) -> None:
        super().__init__(lambda: 10_000)
        self.put_one, self.goes_on = threading.Event(), threading.Event()

    def put(self, peer: str, body: bytes) -> int:
        number = super().put(peer, body)
        self.put_one.set()
        assert self.goes_on.wait(10.0)
        return number


def test_a_message_that_the_relay_puts_while_a_new_process_signs_in_is_not_lost() -> None:
    """The relay works in a thread of its own."""
    made, slow = peer(), SlowLink()
    made.put("coordinator", ask(0))
    made.link = slow
    putting = threading.Thread(target=made.put, args=("coordinator", carried(0, b"keys")))
    putting.start()
    assert slow.put_one.wait(10.0)
    beginning = threading.Thread(target=made.begin, args=(b"second", (0, 0), lambda: 10_000))
    beginning.start()
    beginning.join(0.05)
    slow.goes_on.set()
    for thread in (putting, beginning):
        thread.join(10.0)
    assert delivered(made, Link(lambda: 10_000)) == [ask(0), carried(0, b"keys")]


def test_participants_neither_begin_nor_end_an_attempt_of_others_nor_speak_from_party_to_party(tmp_path: Path) -> None:
    cast = Cast(study_of(public_file(tmp_path), "turns", "compute-nodes"))
    helper = next(iter(cast.helpers))
    relay = Relay(cast.coordinator, [*cast.parties, *cast.helpers])
    assist = msgspec.msgpack.encode(Assist(bytes(16), "sum", "model", 0))
    for body in (ask(0), assist, msgspec.msgpack.encode(Over(bytes(16)))):
        for sender, to in (("party:0", helper), (helper, "party:0")):
            with pytest.raises(Rejected, match="that only the coordinator may send"):
                relay.arrived(sender, Arrived(0, to, body))
    with pytest.raises(Rejected, match="a message came for party:1, to which no party speaks"):
        relay.arrived("party:0", Arrived(0, "party:1", carried(0, b"keys")))
    assert not any(peer.kept for peer in relay.peers.values())
    assert relay.arrived("party:0", Arrived(0, helper, carried(0, b"a vector"))) == {helper}


def test_a_vector_of_an_attempt_that_is_over_does_not_stand_for_one_of_the_next(tmp_path: Path) -> None:
    """A party that comes back sends again what it had not got rid of."""
    study = small(public_file(tmp_path), "helmet", "classification", summation="compute-nodes", attempts=2)
    cast = Cast(study)
    relay = Relay(cast.coordinator, [*cast.parties, *cast.helpers])
    relay.start()
    while relay.coordinator.stage != "vectors":
        relay.close_stage()
    old, waited_for = relay.coordinator.attempt, relay.coordinator.missing
    assert "party:0" in waited_for
    relay.fail(Aborted("two parties were lost"))
    relay.again()
    while relay.coordinator.stage != "vectors":
        relay.close_stage()

    def sent_to_all_nodes(attempt: bytes) -> None:
        body = msgspec.msgpack.encode(Carried(attempt, memoryview(b"a vector")))
        for helper in cast.helpers:
            relay.arrived("party:0", Arrived(0, helper, body))

    sent_to_all_nodes(old)
    assert relay.coordinator.missing == waited_for
    sent_to_all_nodes(relay.coordinator.attempt)
    assert relay.coordinator.missing == waited_for - {"party:0"}


def test_a_role_hears_of_no_request_that_another_participant_has_sent() -> None:
    heard: list[bytes] = []
    said: list[str] = []

    class Role:
        largest = 1000

        def receive(self, body: bytes) -> list[Any]:
            heard.append(body)
            return []

    none: Any = None
    role: Any = Role()
    client = Client(role, "", none, none, CoordinatorAddress("localhost", 1), told=Told(line=said.append))
    for sender, body in (("party:1", ask(0)), ("party:1", carried(0, b"keys")), ("coordinator", ask(1))):
        asyncio.run(client._answers(Arrived(0, sender, body)))
    assert heard == [carried(0, b"keys"), ask(1)]
    assert said == ["a message is ignored: it asks for something, and the coordinator has not sent it"]
