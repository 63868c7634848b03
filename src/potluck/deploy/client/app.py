"""The client program for Flower's own SuperNode: a process per message, with everything that must last on disk.

It runs what is installed on this machine and reads its owner's decisions from a file named in the node's own config.
`potluck deploy client` is the usual way, and quicker: it stays (see `potluck.deploy.client.process`).
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
    """Always a reply: a handler that returns none would leave its SuperNode waiting for ever."""
    try:
        answer = _machine(str(context.node_config["owner"])).handle(from_records(message.content))
    except (BadInput, KeyError) as error:
        reason = error.told if isinstance(error, BadInput) else f"{error} [{Code.DEPLOY_FOLDER}]"
        answer = Envelope({"refused": f"this node cannot serve: {reason}"})
    return Message(to_records(answer), reply_to=message)


@lru_cache(maxsize=4)
def _machine(path: str) -> ClientMachine:
    return ClientMachine(read_owner(Path(path)))
