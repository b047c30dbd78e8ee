"""Bad lines: TCP proxies that delay, cut connections after some bytes, and have the rest of them arrive late."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import numpy as np


class BadLine:
    """Every connection is cut after a random number of bytes, up to a number of cuts in all."""

    def __init__(self, seed: int, cuts: int, mean_bytes: float, delay: float = 0.0) -> None:
        self._rng, self.cuts, self._mean, self._delay = np.random.default_rng(seed), cuts, mean_bytes, delay
        self.made = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int) -> int:
        self._port = port
        self._server = await asyncio.start_server(self._line, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        away_reader, away_writer = await asyncio.open_connection("127.0.0.1", self._port)
        # The handshake is always let through: what comes later is cut.
        left = [2500 + int(self._rng.exponential(self._mean))] if self.cuts > 0 else [1 << 60]
        self.cuts -= 1
        pumps = [
            asyncio.create_task(self._pump(reader, away_writer, left)),
            asyncio.create_task(self._pump(away_reader, writer, left)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for each in (writer, away_writer):
            each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]) -> None:
        with suppress(OSError):
            while left[0] > 0 and (content := await reader.read(4096)):
                if self._delay:
                    await asyncio.sleep(self._delay * float(self._rng.random()))
                writer.write(content[: max(0, left[0])])
                left[0] -= len(content)
                await writer.drain()


class WorseLine:
    """Slow and lossy. A connection that is cut at one side goes on for a while at the other, so that what was sent over
    it arrives after what is sent over the next one; and some connections are refused."""

    def __init__(self, seed: int, cuts: int = 12, mean_bytes: float = 6000.0) -> None:
        self._rng, self._cuts, self._mean = np.random.default_rng(seed), cuts, mean_bytes

    async def start(self, to: int, port: int) -> None:
        self._to = to
        self._server = await asyncio.start_server(self._line, "127.0.0.1", port)

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if self._rng.random() < 0.15:
                writer.transport.abort()
                return
            away_reader, away_writer = await asyncio.open_connection("127.0.0.1", self._to)
            left = [int(self._rng.exponential(self._mean))] if self._cuts > 0 else [1 << 60]
            self._cuts -= 1
            pumps = [
                asyncio.create_task(self._pump(reader, away_writer, left)),
                asyncio.create_task(self._pump(away_reader, writer, left)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            writer.transport.abort()
            await asyncio.sleep(float(self._rng.uniform(0.0, 0.5)))
            for pump in pumps:
                pump.cancel()
            away_writer.transport.abort()
        writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]) -> None:
        with suppress(OSError):
            while left[0] > 0 and (content := await reader.read(4096)):
                await asyncio.sleep(0.01 * float(self._rng.random()))
                left[0] -= len(content)
                writer.write(content)
                await writer.drain()
