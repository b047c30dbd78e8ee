"""The two apps that Flower's programs start: `server_app` and `client_app`."""

from __future__ import annotations

from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from unspoken.errors import UnspokenError
from unspoken.flower import taking_part
from unspoken.flower.coordinating import coordinate
from unspoken.flower.grid import QUESTION, FlowerGrid, content_of, record_of


class NotDone(Exception):
    """Ends a run without a result. Flower logs it with where it was raised: here that is nothing to anybody, so that
    the reason is one sentence."""

    __traceback__: Any = property(lambda self: None, lambda self, raised: None)


def take_part(message: Message, context: Context) -> Message:
    """A SuperNode's answer, as party or as helper."""
    answered = taking_part.answer(content_of(message), context.node_config.get(taking_part.KEY))
    return Message(record_of(answered), reply_to=message)


def run_study(grid: Grid, context: Context) -> None:
    """The coordinator, for as long as the study takes."""
    try:
        coordinate(FlowerGrid(grid), context.run_config)
    except UnspokenError as error:
        raise NotDone(f"{str(error).rstrip('.')}.") from None


client_app = ClientApp()
client_app.query(QUESTION)(take_part)
server_app = ServerApp()
server_app.main()(run_study)
