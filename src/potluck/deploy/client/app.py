"""The client program for Flower's own SuperNode: one process per message; everything that must last is on disk.

It reads the owner's decisions from a file that the node's config names. `potluck deploy client` is the usual way, and
faster, because its process stays (see `potluck.deploy.client.process`).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from potluck.deploy.client.machine import ClientMachine
from potluck.deploy.client.owner import read_owner
from potluck.engines.flower.protocol import Envelope
from potluck.engines.flower.transport import from_records, to_records
from potluck.errors import BadInput, Code

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    return _answered(message, context)


@app.query()
def query(message: Message, context: Context) -> Message:
    return _answered(message, context)


def _answered(message: Message, context: Context) -> Message:
    """Always reply: without a reply the SuperNode would never stop waiting."""
    try:
        answer = _machine(str(context.node_config["owner"])).handle(from_records(message.content))
    except (BadInput, KeyError) as error:
        reason = error.told if isinstance(error, BadInput) else f"{error} [{Code.DEPLOY_FOLDER}]"
        answer = Envelope({"refused": f"this machine cannot answer: {reason}"})
    return Message(to_records(answer), reply_to=message)


@lru_cache(maxsize=4)
def _machine(path: str) -> ClientMachine:
    return ClientMachine(read_owner(Path(path)))
