"""A participant's connection, as the coordinator has it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from unspoken.engines.network.frames import packed

ALIVE_SECONDS = 3.0
"""How long a participant may take to show that it is there, when another process comes with its key"""


@dataclass
class Presence:
    """An open connection, what waits to be sent over it, and who works on it."""

    socket: ServerConnection
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    extra: list[bytes] = field(default_factory=list)
    """Frames to send besides messages: acknowledgements and news"""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    leaves: bool = False
    """Whether the participant has said that it will not come back"""

    def put(self, frame: Any) -> None:
        self.extra.append(packed(frame))
        self.wake.set()

    def limit(self, most: int) -> None:
        """Set the most bytes of a frame that may come."""
        protocol: Any = self.socket.protocol
        # Version 15 of the library has one limit, later ones have two.
        setattr(protocol, "max_message_size" if hasattr(protocol, "max_message_size") else "max_size", most)

    async def is_alive(self) -> bool:
        """Whether anybody answers at the other side."""

        async def asked() -> None:
            await (await self.socket.ping())

        try:
            await asyncio.wait_for(asked(), ALIVE_SECONDS)
        except (TimeoutError, ConnectionClosed):
            return False
        return True
