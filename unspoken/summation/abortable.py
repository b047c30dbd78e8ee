"""Endpoints that stay aborted: after a failure every step raises the same error."""

from __future__ import annotations

from abc import abstractmethod

import msgspec

from unspoken.summation.base import Aborted, Endpoint, Envelope


class AbortableState(msgspec.Struct, kw_only=True):
    failed: str = ""
    """The reason of the abort, if there was one"""


class AbortableEndpoint(Endpoint):
    """An endpoint that remembers in its state why it was aborted."""

    state: AbortableState

    def step(self, incoming: bytes) -> list[Envelope]:
        if self.state.failed:
            raise Aborted(self.state.failed)
        try:
            return self._step(incoming)
        except Aborted as error:
            self.state.failed = str(error)
            raise

    @abstractmethod
    def _step(self, incoming: bytes) -> list[Envelope]:
        """`step`, called only while nothing has failed."""
