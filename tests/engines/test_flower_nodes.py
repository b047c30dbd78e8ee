"""A study over a federation: what is lost is said again, never made again, and who does not come back is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flower_nodes import Node, Nodes, Pushed
from small_studies import KEY, federation_of, method_of, public_file, small
from unspoken.engines.flower.exchanges import AnsweringSide, Begins, Joins, Taken
from unspoken.engines.flower.server import NotReached
from unspoken.engines.network import link
from unspoken.engines.network.deadlines import Deadlines
from unspoken.engines.network.frames import Done, Leaving
from unspoken.noise.stream import SecretStream
from unspoken.roles.charging import LimitReached
from unspoken.roles.store import StoreError
from unspoken.summation.base import Aborted, Envelope
from unspoken.summation.keys import Identity


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], Nodes]:
    """Federations for one helmet study of six parties, of which two may drop out."""
    study = small(public_file(tmp_path), "helmet", "classification", summation="secagg+", colluding=1, dropouts=2)
    plan = method_of(study).plan()

    def made() -> Nodes:
        nodes = Nodes(method_of(study), plan, federation_of(study), SecretStream(KEY))
        nodes.server.again_seconds = 0.01
        return nodes

    return made


@pytest.fixture
def nodes(make: Callable[[], Nodes]) -> Nodes:
    return make()


@pytest.fixture
def expected(make: Callable[[], Nodes]) -> Any:
    """What the study releases when nothing goes wrong."""
    undisturbed = make()
    asyncio.run(undisturbed.run([]))
    return released(undisturbed)


def released(nodes: Nodes) -> Any:
    release = nodes.actors.coordinator.release
    assert release is not None
    return release.to_json()


def survivors(nodes: Nodes) -> int:
    ((there,),) = nodes.actors.coordinator.totals.participation.values()
    return there.sent


def listen(nodes: Nodes) -> list[str]:
    said: list[str] = []
    nodes.server._events.told = said.append
    return said


def count_vectors(nodes: Nodes) -> list[int]:
    vectors: list[int] = []
    for party in nodes.actors.parties.values():
        made = party._contributor.vectors

        def once(*given: Any, made: Any = made, index: int = party._index) -> Any:
            vectors.append(index)
            return made(*given)

        party._contributor.vectors = once  # type: ignore[method-assign]
    return vectors


def test_answers_that_are_lost_are_given_again_and_no_vector_is_made_twice(nodes: Nodes, expected: Any) -> None:
    """Every third answer is lost, after its node has taken the question."""
    vectors, count = count_vectors(nodes), 0
    nodes.server._deadlines = Deadlines(60.0, 60.0, 30.0)

    def lose(pushed: Pushed) -> str | None:
        nonlocal count
        count += 1
        if count % 3:
            return None
        nodes.grid.there[pushed.node].answer(pushed.content)
        return "Flower: the answer is gone"

    nodes.grid.before = lose
    asyncio.run(nodes.run([]))
    assert released(nodes) == expected
    assert sorted(vectors) == list(range(6))
    assert count > 30


def test_what_flower_does_not_take_is_sent_again(nodes: Nodes, expected: Any) -> None:
    """And it is told once, not with every try."""
    push, said, count = nodes.grid.push, listen(nodes), 0

    def fail(node: int, content: bytes, seconds: float) -> str:
        nonlocal count
        count += 1
        if count % 4 < 2:
            raise NotReached("the line is busy")
        return push(node, content, seconds)

    nodes.grid.push = fail  # type: ignore[method-assign]
    asyncio.run(nodes.run([]))
    assert released(nodes) == expected
    told = [line for line in said if "the line is busy" in line]
    assert 0 < len(told) < count / 3


@pytest.mark.parametrize("stage", ["setup", "vectors"])
def test_while_flower_takes_nothing_for_one_node_the_others_are_asked(nodes: Nodes, expected: Any, stage: str) -> None:
    """From the first greeting on, or from a stage on."""
    nodes.server._deadlines = Deadlines(60.0, 60.0, 30.0)
    push, first, others = nodes.grid.push, list[int](), set[int]()

    def fail(node: int, content: bytes, seconds: float) -> str:
        if not first and nodes.actors.coordinator.stage == stage:
            first.append(node)
        if first == [node] and not others:
            raise NotReached("a message for this node was not taken")
        if first:
            others.add(node)
        return push(node, content, seconds)

    nodes.grid.push = fail  # type: ignore[method-assign]
    asyncio.run(nodes.run([]))
    assert others
    assert released(nodes) == expected


def test_what_was_answered_is_not_kept(nodes: Nodes) -> None:
    """Only the end of the study is, and what came with it."""
    asyncio.run(nodes.run([]))
    assert max(len(peer.kept) for peer in nodes.server.relay.peers.values()) <= 3


def test_a_node_that_comes_back_under_another_number_is_the_same_party(nodes: Nodes, expected: Any) -> None:
    """Its SuperNode was killed after the vector was made and before it left: all but its role's store is gone."""
    vectors, moved = count_vectors(nodes), []

    def move(pushed: Pushed) -> bytes | None:
        node = nodes.grid.there[pushed.node]
        before = len(vectors)
        answer = node.answer(pushed.content)
        if moved or len(vectors) == before:
            return answer
        moved.append(pushed.node)
        del nodes.grid.there[pushed.node]
        index = vectors[-1]
        nodes.grid.there[7_000] = nodes.node(f"party:{index}", nodes.actors.party(index))
        return b""

    nodes.grid.before = move
    said = listen(nodes)
    asyncio.run(nodes.run([]))
    assert moved
    assert released(nodes) == expected
    assert survivors(nodes) == 6
    assert sorted(vectors) == list(range(6))
    assert any(line.endswith("has gone") for line in said)


def test_a_node_that_does_not_come_back_counts_as_dropped(nodes: Nodes) -> None:
    dead: list[int] = []

    def kill(pushed: Pushed) -> bytes | None:
        if not dead and nodes.actors.coordinator.stage == "vectors":
            dead.append(pushed.node)
            del nodes.grid.there[pushed.node]
        return b"" if pushed.node in dead else None

    nodes.grid.before = kill
    asyncio.run(nodes.run([]))
    assert dead
    assert survivors(nodes) == 5


def test_a_stage_closes_in_time_though_flower_says_that_a_node_is_there(nodes: Nodes) -> None:
    nodes.server._deadlines = Deadlines(1.0, 60.0, 60.0)
    silent: list[int] = []

    def keep_silent(pushed: Pushed) -> bytes | None:
        if not silent and nodes.actors.coordinator.stage == "vectors":
            silent.append(pushed.node)
        return b"" if pushed.node in silent else None

    nodes.grid.before = keep_silent
    asyncio.run(asyncio.wait_for(nodes.run([]), 300.0))
    assert silent
    assert survivors(nodes) == 5


def test_a_node_that_is_lost_when_half_its_answer_has_arrived_gives_all_of_it_again(
    nodes: Nodes, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has answered is not forgotten before the answer is here."""
    for name in ("PIECE_BYTES", "WINDOW_BYTES"):
        monkeypatch.setattr(link, name, 100)
    nodes.server._deadlines = Deadlines(60.0, 60.0, 30.0)
    vectors, moved = count_vectors(nodes), []

    def move(pushed: Pushed) -> bytes | None:
        if pushed.node not in nodes.grid.there:
            return b""
        answer = nodes.grid.there[pushed.node].answer(pushed.content)
        if vectors and not moved:
            moved.append(nodes.grid.there.pop(pushed.node))
            nodes.grid.there[7_000] = nodes.node(f"party:{vectors[0]}", nodes.actors.party(vectors[0]))
        return answer

    nodes.grid.before = move
    asyncio.run(nodes.run([]))
    assert moved
    assert released(nodes) == expected
    assert survivors(nodes) == 6


def test_a_node_without_a_session_is_greeted_again(nodes: Nodes, expected: Any) -> None:
    forgot: list[int] = []

    def forget(pushed: Pushed) -> None:
        if nodes.actors.coordinator.stage == "vectors" and pushed.node not in forgot:
            forgot.append(pushed.node)
            nodes.grid.there[pushed.node].kept = b""

    nodes.grid.before = forget
    asyncio.run(nodes.run([]))
    assert len(forgot) >= 6
    assert released(nodes) == expected


@pytest.mark.parametrize(("error", "why"), [(LimitReached("over"), "ledger"), (StoreError("full"), "state")])
def test_a_party_that_cannot_go_on_leaves_and_is_not_asked_again(nodes: Nodes, error: Exception, why: str) -> None:
    said, party = listen(nodes), nodes.actors.parties["party:0"]
    receive = party.receive

    def leave(body: bytes) -> list[Envelope]:
        if nodes.actors.coordinator.stage == "vectors":
            raise error
        return receive(body)

    party.receive = leave  # type: ignore[method-assign]
    asyncio.run(nodes.run([]))
    assert survivors(nodes) == 5
    assert [line for line in said if "(party:0) is left out" in line and why in line]


def test_a_stranger_and_another_copy_of_the_study_are_left_out_and_the_reason_is_told(nodes: Nodes) -> None:
    said = listen(nodes)
    stranger = Node(nodes.actors.party(0), nodes.study, Identity(bytes(range(32))), nodes.keys.roster)
    other = Node(nodes.actors.party(1), "0" * 64, nodes.keys.identity(1), nodes.keys.roster)
    nodes.grid.there |= {5: stranger, 6: other}
    asyncio.run(nodes.run([]))
    assert survivors(nodes) == 6
    assert stranger.questions == other.questions == 1
    told = [line for line in said if "is left out" in line]
    assert any("node 5 " in line and "not in the study's roster" in line for line in told)
    assert any("node 6 " in line and "copy of the study differs" in line for line in told)


def test_a_node_that_answers_as_somebody_else_is_left_out(nodes: Nodes) -> None:
    """What is asked of one party is not answered by another, whose key is in the roster as well."""
    said = listen(nodes)

    def swap(pushed: Pushed) -> bytes | None:
        node = nodes.grid.there[pushed.node]
        if nodes.actors.coordinator.stage != "vectors" or node.identity.public != nodes.keys.identity(0).public:
            return None
        answering = AnsweringSide(nodes.study, node.identity, nodes.keys.roster)
        answering.read(pushed.content)
        answering._identity = nodes.keys.identity(1)
        return answering.answer(Joins(bytes(16)))

    nodes.grid.before = swap
    asyncio.run(nodes.run([]))
    assert survivors(nodes) == 5
    assert [line for line in said if "(party:0) is left out: it answers as somebody else" in line]


@pytest.mark.parametrize("answer", [Taken((0, 0), (), Done(-1, -1), more=False), Begins(), Joins(b"short")], ids=str)
def test_a_greeting_that_is_answered_otherwise_than_by_joining_is_left_for_later(nodes: Nodes, answer: Any) -> None:
    said, odd = listen(nodes), [0]

    def answered(pushed: Pushed) -> bytes | None:
        node = nodes.grid.there[pushed.node]
        if node.identity.public != nodes.keys.identity(0).public or odd[0] == 3:
            return None
        odd[0] += 1
        answering = AnsweringSide(nodes.study, node.identity, nodes.keys.roster)
        answering.read(pushed.content)
        return answering.answer(answer)

    nodes.grid.before = answered
    asyncio.run(nodes.run([]))
    assert survivors(nodes) == 6
    assert len([line for line in said if "is left out: " in line]) == 3


def test_of_two_nodes_with_one_key_the_newest_is_the_party(nodes: Nodes, expected: Any) -> None:
    """And the other is not greeted again, though Flower still says that it is there."""
    second = nodes.node("party:0", nodes.actors.parties["party:0"])

    def appear(pushed: Pushed) -> None:
        if nodes.actors.coordinator.stage == "vectors":
            nodes.grid.there[9] = second

    nodes.grid.before = appear
    said = listen(nodes)
    asyncio.run(nodes.run([]))
    assert released(nodes) == expected
    assert said.count("party:0 has joined") == 2
    assert second.finished is not None


def test_a_second_node_with_a_party_s_key_that_cannot_go_on_takes_nothing_from_the_first(
    nodes: Nodes, expected: Any
) -> None:
    """Such as the one where the party was before, whose disk is full."""
    second, said = nodes.node("party:0", nodes.actors.parties["party:0"]), listen(nodes)

    def appear(pushed: Pushed) -> bytes | None:
        if nodes.actors.coordinator.stage == "vectors":
            nodes.grid.there[9] = second
        if pushed.node != 9:
            return None
        second.questions += 1
        answering = AnsweringSide(nodes.study, second.identity, nodes.keys.roster)
        answering.read(pushed.content)
        return answering.answer(Leaving("disk"))

    nodes.grid.before = appear
    asyncio.run(nodes.run([]))
    assert second.questions == 1
    assert released(nodes) == expected
    assert not [line for line in said if line == "party:0 has gone"]


def test_what_a_node_answers_when_its_party_is_at_another_one_changes_nothing(nodes: Nodes, expected: Any) -> None:
    second, late = nodes.node("party:0", nodes.actors.parties["party:0"]), list[tuple[str, bytes]]()
    pull, said = nodes.grid.pull, listen(nodes)

    def withhold(pushed: Pushed) -> bytes | None:
        node = nodes.grid.there[pushed.node]
        first = node.identity.public == second.identity.public and node is not second
        if not first or nodes.actors.coordinator.stage != "vectors":
            return None
        answering = AnsweringSide(nodes.study, node.identity, nodes.keys.roster)
        answering.read(pushed.content)
        late.append((pushed.name, answering.answer(Begins())))
        nodes.grid.there[9] = second
        return b""

    def pulled(names: list[str]) -> list[tuple[str, bytes | str]]:
        """The answers, also those that were withheld until the party is at the other node."""
        found = pull(names)
        return found + [answer for answer in late if answer[0] in names and second.questions]

    nodes.grid.before, nodes.grid.pull = withhold, pulled  # type: ignore[method-assign]
    asyncio.run(nodes.run([]))
    assert late
    assert released(nodes) == expected
    assert said.count("party:0 has joined") == 2


def test_too_few_nodes_end_the_study_before_anyone_is_asked(nodes: Nodes) -> None:
    nodes.server._deadlines = Deadlines(2.0, 2.0, 0.1)
    nodes.grid.before = lambda pushed: b"" if pushed.node < 103 else None
    with pytest.raises(Aborted, match="3 of 6 parties"):
        asyncio.run(nodes.run([]))
