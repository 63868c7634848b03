"""Looks for one client's numbers in what the server sends to the others.

A run on the Flower engine, in one process, keeps every envelope. What a client has (its rows; after each task its
update, its private state and its own model) is cut into blocks of four numbers. None of these may be in an envelope to
another client, but for blocks that the server had sent before the task was done. A mean over several clients has other
numbers, so it passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.data import Federation
from potluck.engines.flower.protocol import Envelope
from potluck.runs import drive
from potluck.runs.deal import federation_of
from potluck.runs.evaluate import stacked
from potluck.runs.experiment import Experiment
from potluck.runs.watcher import Silent
from potluck.wire.codec import flatten

BLOCK = 4  # numbers; four equal ones by chance are out of the question


class Ears:
    """Hears all envelopes of a run, and finds numbers of one client in those to another."""

    def __init__(self, names: Iterable[str]) -> None:
        self._received: dict[str, set[bytes]] = {name: set() for name in names}  # blocks in all envelopes to a client
        self._own: dict[str, set[bytes]] = {name: set() for name in self._received}  # blocks that began with a client

    def hear(self, name: str, machine: Any, ask: Envelope, answer: Envelope) -> None:
        """An envelope to a client, and its honest answer."""
        self._received[name] |= _everywhere(ask.body)
        if ask.kind == "task" and answer.body:
            done = machine.client(ask).journal.finished(str(ask.head["ticket"]))
            self._own[name] |= _blocks(flatten([done.update, done.mine, done.own])[1]) - self._received[name]

    def leaks(self, federation: Federation) -> list[str]:
        """What reached a client that is another's."""
        found = []
        for index, name in enumerate(federation.names):
            own = self._own[name] | _blocks([stacked(federation, [index], "train", int(federation.sizes[index])).x])
            for other in (one for one in self._received if one != name):
                for block in own & self._received[other]:
                    numbers = np.frombuffer(block, dtype=np.float32).tolist()
                    found.append(f"server: an envelope to {other} has numbers of {name}: {numbers}.")
        return found


def leaks(experiment: Experiment, folder: Path, loopback: ModuleType) -> list[str]:
    """Run the experiment and list what reached a client that is another's."""
    homes = loopback.machines(experiment, folder / "machines", **loopback.owners(experiment))
    ears = Ears(homes)

    def overhear(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        name, machine = wire.machines[node]
        ears.hear(name, machine, ask, answer)
        return [answer]

    wire = loopback.Loopback(homes, overhear)
    (folder / "run").mkdir()
    drive.carry_out(folder / "run", loopback.staged(experiment, wire), Silent())
    return ears.leaks(federation_of(experiment))


def _blocks(tensors: Sequence[Tensor]) -> set[bytes]:
    """Blocks of four neighbours in a tensor, of which no two are equal."""
    found: set[bytes] = set()
    for tensor in tensors:
        if tensor.dtype == torch.float32 and tensor.numel() >= BLOCK:
            found |= _distinct(tensor.detach().contiguous().numpy().reshape(-1))
    return found


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
