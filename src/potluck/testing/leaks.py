"""Looks for one client's numbers in what the server sends to the others.

A run on the Flower engine, in one process, keeps every envelope. What a client said or holds (rows, updates, private
state, personal model) is cut into blocks of four numbers. None of its blocks may be in an envelope to another client,
unless the client had it from the server. A mean over several clients has other numbers, so it passes.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.engines.flower.protocol import Envelope
from potluck.runs import drive
from potluck.runs.build import federation_of
from potluck.runs.evaluate import stacked
from potluck.runs.experiment import Experiment
from potluck.runs.watcher import Silent

BLOCK = 4  # numbers; four equal ones by chance are out of the question


def leaks(experiment: Experiment, folder: Path, loopback: ModuleType) -> list[str]:
    """Run the experiment and list what reached a client that is another's."""
    homes = loopback.machines(experiment, folder / "machines", **loopback.owners(experiment))
    said: list[tuple[str, bytes]] = []

    def overhear(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        said.append((wire.machines[node][0], answer.body))
        return [answer]

    wire = loopback.Loopback(homes, overhear)
    (folder / "run").mkdir()
    drive.carry_out(folder / "run", loopback.staged(experiment, wire), Silent())
    sent = {
        name: b"".join(ask.body + bytes(-len(ask.body) % 8) for to, ask in wire.asked if to == name) for name in homes
    }
    received = {name: _everywhere(body) for name, body in sent.items()}
    federation, models, found = federation_of(experiment), loopback.kept_models(homes), []
    for index, name in enumerate(federation.names):
        rows = stacked(federation, [index], "train", int(federation.sizes[index]))
        held: list[Tensor] = [rows.x, *models[name].values()]
        blocks = _blocks(held) | {one for to, body in said if to == name for one in _of_bytes(body)}
        for other in (one for one in homes if one != name):
            shared = (blocks & received[other]) - received[name]
            if shared:
                numbers = np.frombuffer(min(shared), dtype=np.float32)
                found.append(f"server: an envelope to {other} has numbers of {name}: {numbers.tolist()}.")
    return found


def _blocks(tensors: list[Tensor]) -> set[bytes]:
    """Blocks of four neighbours in a tensor, of which no two are equal."""
    found: set[bytes] = set()
    for tensor in tensors:
        if tensor.dtype == torch.float32 and tensor.numel() >= BLOCK:
            found |= _distinct(tensor.detach().contiguous().numpy().reshape(-1))
    return found


def _of_bytes(body: bytes) -> set[bytes]:
    """The blocks of all tensors in an encoded message."""
    if not body:
        return set()
    start = 8 + int.from_bytes(body[:8], "little")
    data = body[start : start + (len(body) - start) // 4 * 4]
    return _distinct(np.frombuffer(data, dtype=np.float32))


def _distinct(values: Any) -> set[bytes]:
    rows = values[: len(values) // BLOCK * BLOCK].reshape(-1, BLOCK)
    ranked = np.sort(rows, axis=1)
    good = np.isfinite(rows).all(1) & (np.diff(ranked, axis=1) != 0).all(1) & (rows != 0).all(1)
    return {row.tobytes() for row in rows[good]}


def _everywhere(body: bytes) -> set[bytes]:
    """Every block in these bytes, at any place a float may begin."""
    values = np.frombuffer(body[: len(body) // 4 * 4], dtype=np.float32)
    if len(values) < BLOCK:
        return set()
    windows = np.lib.stride_tricks.sliding_window_view(values, BLOCK)
    return {row.tobytes() for row in windows}
