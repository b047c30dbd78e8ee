"""The coordinator's port: a listening socket that bounds the number of connections that have not signed in (strangers).

Every stranger costs memory from its first byte on, above all for the TLS handshake. When there are too many, the one
that has waited longest is closed, not the newest: a real participant signs in at once, and so is not kept out by
connections that stay idle.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from typing import Any

from unspoken.engines.network.hosts import is_host
from unspoken.errors import UnspokenError

_BACKLOG = 512
QUIET = logging.getLogger("unspoken.network")
"""The log for what strangers do wrong, which is not shown on the coordinator's screen"""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class CannotListen(UnspokenError):
    """The port cannot be opened."""


class Door(socket.socket):
    """A listening socket that counts strangers."""

    def __init__(self, host: str, port: int, most: int) -> None:
        """Listen. `most` is the largest number of strangers."""
        if not is_host(host):
            raise CannotListen(f"{host!r} is no name of a machine; 0.0.0.0 stands for all of this one's addresses.")
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            super().__init__(family, kind, proto)
            self._listen(address)
        except OSError as error:
            reason = error.strerror or error
            raise CannotListen(f"{host}:{port}: cannot be listened on ({reason}); choose another --listen.") from None
        self._most = most
        self._strangers: dict[Any, socket.socket] = {}
        """Connections that have not signed in, by where they come from, in the order in which they came"""
        self.sent_away = 0

    def _listen(self, address: Any) -> None:
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
            self.listen(_BACKLOG)
            self.setblocking(False)
        except OSError:
            self.close()
            raise

    @property
    def strangers(self) -> int:
        """The number of connections that are open and have not signed in."""
        self._strangers = {place: each for place, each in self._strangers.items() if each.fileno() >= 0}
        return len(self._strangers)

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, as asyncio asks for it."""
        connection, place = super().accept()
        if self.strangers >= self._most:
            oldest = next(iter(self._strangers))
            # Its owner, the event loop, sees that it has ended, and closes it.
            with suppress(OSError):
                self._strangers.pop(oldest).shutdown(socket.SHUT_RDWR)
            self.sent_away += 1
        self._strangers[place] = connection
        return connection, place

    def known(self, place: Any) -> None:
        """A connection has signed in: it is no stranger's any more."""
        self._strangers.pop(place, None)
