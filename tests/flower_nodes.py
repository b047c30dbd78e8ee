"""Studies over a federation without Flower: the same server and sessions, and a grid that is a list of bytes.

Like a SuperNode, a node forgets everything after each question but the bytes that its session has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loopback import DEADLINES, Loopback, Meanwhile, engine
from unspoken.data.federation import Federation
from unspoken.engines.flower.exchanges import AnsweringSide, Declines, Hello
from unspoken.engines.flower.server import FlowerServer
from unspoken.engines.flower.session import KEPT_BACK, Session, leaving
from unspoken.engines.network.deadlines import Events
from unspoken.engines.network.frames import packed
from unspoken.engines.network.participant import Finished, Told
from unspoken.engines.network.sign_in import SignInRefused
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.noise.stream import SecretStream


class Node:
    """A SuperNode with a role."""

    def __init__(self, role: Any, study: str, identity: Any, roster: Any) -> None:
        self.role, self._study, self.identity, self._roster = role, study, identity, roster
        self.told = Told()
        self.kept = b""
        self.finished: Finished | None = None
        self.questions = 0

    def answer(self, content: bytes) -> bytes:
        self.questions += 1
        answering = AnsweringSide(self._study, self.identity, self._roster)
        try:
            asked = answering.read(content)
            session = Session(self.role, 1 << 20, self.told, b"" if isinstance(asked, Hello) else self.kept)
            answered = session.answer(asked)
        except SignInRefused as refused:
            return packed(Declines(str(refused)))
        except KEPT_BACK as error:
            return answering.answer(leaving(error))
        self.kept, self.finished = session.dump(), session.finished or self.finished
        return answering.answer(answered)


@dataclass
class Pushed:
    name: str
    node: int
    content: bytes
    seconds: float


class ListGrid:
    """Nodes by their numbers, and questions that wait to be answered when someone asks for answers."""

    def __init__(self) -> None:
        self.there: dict[int, Node] = {}
        self.pushed: list[Pushed] = []
        self.count = 0
        self.before: Callable[[Pushed], bytes | str | None] = lambda pushed: None
        """May answer in a node's place; an empty answer is none"""

    def nodes(self) -> set[int]:
        return set(self.there)

    def push(self, node: int, content: bytes, seconds: float) -> str:
        self.count += 1
        self.pushed.append(Pushed(f"message {self.count}", node, content, seconds))
        return self.pushed[-1].name

    def pull(self, names: list[str]) -> list[tuple[str, bytes | str]]:
        waiting, self.pushed, answers = self.pushed, [], []
        for pushed in waiting:
            answer = self.before(pushed)
            if answer is None and pushed.node in self.there:
                answer = self.there[pushed.node].answer(pushed.content)
            if answer and pushed.name in names:
                answers.append((pushed.name, answer))
        return answers


class Nodes(Loopback):
    """A federation of one node for each participant."""

    def __init__(self, method: Method, plan: Plan, federation: Federation, secrets: SecretStream) -> None:
        super().__init__(method, plan, federation, secrets)
        self.grid = ListGrid()
        self.server = FlowerServer(
            self.actors.coordinator, self.keys.coordinator, self.keys.roster, DEADLINES, self.grid, Events()
        )
        self.server.poll_seconds = 0.001

    def node(self, address: str, role: Any) -> Node:
        return Node(role, self.study, self.identities()[address], self.keys.roster)

    async def run(self, vanishing: list[int], meanwhile: Meanwhile | None = None) -> None:
        assert meanwhile is None
        gone, roles = self.vanishing(vanishing)
        for number, (address, role) in enumerate(roles.items()):
            self.grid.there[100 + number] = self.node(address, role)
        watching = asyncio.create_task(self.drop(gone))
        try:
            await self.server.carrying(self.conduct())
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


run = engine(Nodes, "Flower")
