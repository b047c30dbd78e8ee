"""The two apps that Flower's programs start: `server_app` and `client_app`."""

from __future__ import annotations

import sys

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from unspoken.engines.flower.grid import QUESTION, FlowerGrid, content_of, record_of
from unspoken.errors import UnspokenError
from unspoken.flower import places
from unspoken.flower.coordinating import coordinate


def take_part(message: Message, context: Context) -> Message:
    """A SuperNode's answer, as party or as helper."""
    answered = places.answer(content_of(message), context.node_config.get(places.KEY))
    return Message(record_of(answered), reply_to=message)


def run_study(grid: Grid, context: Context) -> None:
    """The coordinator, for as long as the study takes."""
    try:
        coordinate(FlowerGrid(grid), context.run_config)
    except UnspokenError as error:
        print(f"unspoken: {error}", file=sys.stderr, flush=True)
        raise


client_app = ClientApp()
client_app.query(QUESTION)(take_part)
server_app = ServerApp()
server_app.main()(run_study)
