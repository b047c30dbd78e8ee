"""Endpoints that stay aborted: after a failure every step raises the same error, and all secrets are deleted."""

from __future__ import annotations

from abc import abstractmethod

import msgspec

from unspoken.summation.base import Aborted, Endpoint, Envelope, SignedStatement


class AbortableState(msgspec.Struct, kw_only=True):
    failed: str = ""
    """The reason of the abort, if there was one"""
    blamed: tuple[str, ...] = ()
    """The addresses of those who caused it, as far as that is known"""
    evidence: tuple[SignedStatement, ...] = ()


class AbortableEndpoint(Endpoint):
    """An endpoint that remembers in its state why it was aborted, and whom to blame."""

    state: AbortableState

    def step(self, incoming: bytes) -> list[Envelope]:
        self._check_alive()
        try:
            return self._step(incoming)
        except Aborted as error:
            self._forget()
            self.state.failed, self.state.blamed, self.state.evidence = str(error), error.blamed, error.evidence
            raise

    def _check_alive(self) -> None:
        """Raise the error of the abort again, if there was one."""
        if self.state.failed:
            raise Aborted(self.state.failed, self.state.blamed, self.state.evidence)

    @abstractmethod
    def _step(self, incoming: bytes) -> list[Envelope]:
        """`step`, called only while nothing has failed."""

    def _forget(self) -> None:
        """Delete all secrets: nothing of them is needed after an abort."""
