"""Evaluates a client's models on its own machine, on its own test rows, and keeps the personal one there if asked.

The model as its training left it never leaves the machine: only its figures do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from potluck.deploy.client.joined_run import JoinedRun
from potluck.deploy.client.rows import LocalRows
from potluck.deploy.state_fields import PartialState
from potluck.engines.flower.client.client import FlowerClient
from potluck.engines.flower.protocol import Envelope
from potluck.files import make_folder
from potluck.fleet import ClientId, Data, Params
from potluck.learn import parts
from potluck.models import Model
from potluck.runs import model_files
from potluck.wire.codec import decode, walk


def evaluate(ask: Envelope, client: FlowerClient, run: JoinedRun, rows: LocalRows) -> Envelope:
    """Answer an `evaluate` message with the figures."""
    method, name = run.method(), client.name
    model = method.answering(run.model())
    content = decode(ask.body, client.classes)
    taken = str(ask.head["taken"].get(name, ""))
    mine, own = client.mine(taken), client.journal.own(taken)
    weights = content["weights"] or method.personal(PartialState(content["state"]), name, mine)
    count = rows.count("test")
    answer: dict[str, Any] = {"kind": "evaluate", "client": name, "samples": count}
    if count:
        data: Data = walk(rows.rows("test", count), lambda stack: stack[0])
        answer["right"], answer["loss"] = _measure(model, weights, data)
        shared, received = content["shared"], content.get("received")
        answer["shared"] = None if shared is None else _measure(model, shared, data)[0]
        for kind, other in (("received", received), ("own", own)):
            answer[kind] = None if other is None else list(_measure(model, other, data))
    if ask.head.get("keep"):
        answer["kept"] = str(_keep(run, name, rows, model, weights))
    return Envelope(answer)


def _keep(run: JoinedRun, name: ClientId, rows: LocalRows, model: Model, weights: Params) -> Path:
    """Write the personal model and the scale of its inputs to the owner's folder."""
    folder = run.owner.home / "models" / run.name
    make_folder(folder, private=True)
    path = folder / f"{model_files.file_name(name)}.safetensors"
    model_files.save(path, weights, model_files.about_of(model, rows.dataset), private=True)
    scale = rows.scale()
    scales = {} if scale is None else {f"{name}.mean": scale[0], f"{name}.factor": scale[1]}
    model_files.save(folder / "inputs.safetensors", scales, {}, private=True)
    return path


@torch.no_grad()
def _measure(model: Model, weights: Params, data: Data) -> tuple[float, float]:
    """The number of right answers and the summed loss, by parts, so that a small memory suffices."""
    right = loss = 0.0
    for part in parts(data):
        logits = model.logits(weights, part.x, t=part.t, length=part.length)
        right += float((logits.argmax(-1) == part.y).sum())
        loss += float(model.losses(logits, part.y).sum())
    return right, loss
