"""A coordinator of compute nodes that plays at random, and what must hold after every move."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adversaries.lying_nodes import NodeStage, session
from unspoken.summation.base import Aborted, Rejected
from unspoken.summation.node_messages import (
    Fold,
    Folded,
    Propose,
)
from unspoken.types import Words


class RandomCoordinator:
    """Chooses its moves at random. What honest nodes reveal must be for one list."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        nodes, per_party, corrupt = [(3, 3, 2), (3, 3, 1), (3, 2, 0), (4, 3, 1)][int(self.rng.integers(0, 4))]
        self.stage = NodeStage(session(6, 2), nodes, per_party, set(self.rng.permutation(nodes)[:corrupt].tolist()))
        self.shares = [self.stage.messages(party) for party in range(6)] + [self.stage.messages(5)]
        self.proposals: list[Propose] = []
        self.signed: dict[tuple[int, bytes], bytes] = {}
        self.revealed: dict[int, tuple[bytes, Words]] = {}
        self.accepted = 0

    def play(self) -> None:
        for share in self.shares:
            for number, body in share.items():
                if self.rng.random() < 0.9:
                    self.attempt(lambda number=number, body=body: self.stage.endpoints[number].step(body))
        for _ in range(40):
            self.attempt(self.move)

    def attempt(self, move: Callable[[], object]) -> None:
        try:
            move()
            self.accepted += 1
        except (Rejected, Aborted):
            pass

    def move(self) -> None:
        stage, number = self.stage, int(self.rng.choice(self.stage.honest))
        match int(self.rng.integers(0, 6)):
            case 0:
                held = stage.held(number)
                some = [party for party in held if self.rng.random() < 0.8]
                assert isinstance(stage.say(number, Fold([held[party] for party in some])), Folded)
            case 1 | 2:
                if len(self.proposals) < 4 or self.rng.random() < 0.1:
                    self.proposals.append(stage.proposal(self.rng.permutation(6)[: self.rng.integers(3, 7)].tolist()))
                proposal = self.proposals[int(self.rng.integers(0, len(self.proposals)))]
                self.signed[number, stage.statement(proposal)] = stage.signature(number, proposal)
            case 3 | 4 if self.proposals:
                self.reveal(number)
            case _:
                stage.restart(number)

    def reveal(self, number: int) -> None:
        proposal = self.proposals[int(self.rng.integers(0, len(self.proposals)))]
        statement = self.stage.statement(proposal)
        signatures = [
            self.stage.signature(each, proposal) if each in self.stage.corrupt else self.signed.get((each, statement))
            for each in range(self.stage.nodes)
        ]
        part = self.stage.reveal(number, [signature or bytes(64) for signature in signatures])
        self.revealed[number] = (statement, part)


def play(seed: int) -> bool:
    """Play one run, and check what must hold, whatever was said. Did a list open?"""
    player = RandomCoordinator(seed)
    player.play()
    statements = {statement for statement, _ in player.revealed.values()}
    assert len(statements) <= 1, f"seed {seed}: two lists were opened"
    for statement in statements:
        flags = np.unpackbits(np.frombuffer(statement[-33:-32], dtype=np.uint8))[:6]
        assert flags.sum() >= 4, f"seed {seed}: a list below the least was opened"
        for number in player.revealed:
            mine = [player.stage.uses(party, number) for party in range(6)]
            counted = player.stage.endpoints[number].state.counted
            assert (counted == flags.astype(bool) & mine).all(), f"seed {seed}: node {number} counted others"
    return bool(statements)
