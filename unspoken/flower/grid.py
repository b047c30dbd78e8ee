"""Flower's public interface: one record of bytes in a message, there and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from httpx import HTTPError

from unspoken.engines.flower.server import NotReached
from unspoken.errors import printable

QUESTION = "unspoken"
"""The name of the function that nodes are asked for"""
_RECORD, _KEY = "unspoken", "content"
Result = TypeVar("Result")


def content_of(message: Message) -> bytes:
    """The bytes of a message; nothing if it has none."""
    record = message.content.config_records.get(_RECORD) if message.has_content() else None
    content = record.get(_KEY) if record is not None else None
    return content if isinstance(content, bytes) else b""


def record_of(content: bytes) -> RecordDict:
    """What a message carries."""
    return RecordDict({_RECORD: ConfigRecord({_KEY: content})})


class FlowerGrid:
    """The nodes of a federation, for `server.FlowerServer`."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> set[int]:
        return set(_tried(self._grid.get_node_ids))

    def push(self, node: int, content: bytes, seconds: float) -> str:
        message = Message(record_of(content), dst_node_id=node, message_type=f"query.{QUESTION}", ttl=seconds)
        names = list(_tried(lambda: self._grid.push_messages([message])))
        if len(names) != 1 or not names[0]:
            raise NotReached(f"a message of {len(content):,} bytes for node {node} was not taken")
        return str(names[0])

    def pull(self, names: list[str]) -> list[tuple[str, bytes | str]]:
        if not names:
            return []
        found: list[tuple[str, bytes | str]] = []
        for message in _tried(lambda: self._grid.pull_messages(names)):
            # An error's reason may be what someone else's program printed: enough of it to know where to look.
            why = printable(f"Flower: {message.error.reason}", 200) if message.has_error() else ""
            found.append((message.metadata.reply_to_message_id, why or content_of(message)))
        return found


def _tried(call: Callable[[], Result]) -> Result:
    try:
        return call()
    except (HTTPError, RuntimeError) as error:
        raise NotReached(printable(f"{type(error).__name__}: {error}", 200)) from error
