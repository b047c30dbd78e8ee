"""Answers to requests in the form in which they are stored, so that a run can go on after its process was stopped: in a
coordinator's log on a network (`roles.coordinator_log`), or in a simulation's journal (`engines.journal`)."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from unspoken.methods.base import Collect, Request, Total, ZeroSum
from unspoken.methods.planning.mechanisms import Participation
from unspoken.roles.totals import CommonNoise, Messages, Totals


class _Array(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    content: bytes

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> _Array:
        return cls(array.dtype.str, array.tobytes())

    def array(self) -> npt.NDArray[Any]:
        return np.frombuffer(self.content, dtype=self.kind).copy()


class KeptAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a request, and what `Totals` noted of it. All of it is public, except messages whose noise is still
    to be added up."""

    noisy: _Array
    exact: _Array
    survivors: int
    noise_std: float
    there: tuple[int, int] | None = None
    """The numbers of parties in the total, if the request was for one: prepared, sent"""
    counted: _Array | None = None
    """Flags of the parties in a sum or a vote"""
    common: tuple[_Array, _Array] | None = None
    """Common noise that was prepared: who is in it, and its sum"""
    messages: tuple[_Array, _Array] | None = None
    """Messages whose noise is still to be added up: who sent them, and their vectors"""

    @classmethod
    def of(cls, request: Request, answer: Total, totals: Totals) -> KeptAnswer:
        """The answer that a request has just got."""
        name, there = request.name, totals.there(request)
        counted = totals.counted.get(name) if there else None
        common = totals.common[name] if isinstance(request, ZeroSum) else None
        messages = totals.messages.get(name) if isinstance(request, Collect) else None
        return cls(
            _Array.of(answer.noisy),
            _Array.of(answer.exact),
            answer.survivors,
            float(answer.noise_std),
            None if there is None else (there.prepared, there.sent),
            None if counted is None else _Array.of(counted),
            None if common is None else (_Array.of(common.prepared), _Array.of(common.total)),
            None if messages is None else (_Array.of(messages.senders), _Array.of(messages.vectors)),
        )

    def recall(self, request: Request, totals: Totals) -> Total:
        """The answer. The totals then know what they knew when it was kept."""
        name = request.name
        if self.there is not None:
            totals.add(name, Participation(*self.there), self.noise_std)
        if self.counted is not None:
            totals.counted[name] = self.counted.array()
        if self.common is not None:
            prepared, total = self.common
            totals.common[name] = CommonNoise(prepared.array(), total.array())
        if self.messages is not None:
            senders, vectors = (kept.array() for kept in self.messages)
            totals.messages[name] = Messages(senders, vectors.reshape(len(senders), -1))
        return Total(self.noisy.array(), self.exact.array(), self.survivors, self.noise_std)
