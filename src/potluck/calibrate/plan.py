"""What a calibration runs: clients with their limits, networks to fit on and networks to judge on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from potluck import keys
from potluck.calibrate.proxy import Shape
from potluck.errors import Code, must_be
from potluck.runs.experiment import Experiment, override

STEPS, CHANNELS, CLASSES = 128, 6, 5  # of the made windows
LIKE = "laptop-i7-11800h"  # whose power and storage the fitted devices inherit: neither is measured


@dataclass(frozen=True)
class Client:
    """The limits of one client's process."""

    name: str
    share: float  # of a core
    up: Shape
    down: Shape
    rows: int = 3000


def read_client(saved: Mapping[str, Any]) -> Client:
    """A client's limits as they were saved."""
    return Client(**{**saved, "up": Shape(**saved["up"]), "down": Shape(**saved["down"])})


@dataclass(frozen=True)
class Network:
    name: str
    model: Mapping[str, Any]
    batch: int
    epochs: int = 1  # passes over the rows in a task


def _client(place: int, share: float, up: float, down: float, latency: float, loss: float, rows: int) -> Client:
    up_way, down_way = (Shape(rate * 1e6, latency, 0.2, loss) for rate in (up, down))
    return Client(f"s{place:02d}", share, up_way, down_way, rows)


CLIENTS = tuple(
    _client(place, *limits)
    for place, limits in enumerate(
        (  # share, Mbit/s up and down, latency, loss, rows
            (0.05, 4.0, 10.0, 0.020, 0.000, 2800),
            (0.06, 8.0, 8.0, 0.010, 0.002, 4000),
            (0.07, 2.0, 13.0, 0.040, 0.005, 3600),
            (0.08, 10.0, 20.0, 0.005, 0.000, 4800),
            (0.10, 6.0, 6.0, 0.030, 0.002, 3200),
            (0.12, 12.0, 20.0, 0.010, 0.000, 4400),
        )
    )
)
# Batches and epochs are such that no task is short beside its message. The networks are unlike in what they cost: with
# fewer of them, the fit cannot tell arithmetic from new memory.
FIT = (
    Network("mlp-64", {"name": "mlp", "hidden": [64]}, 1),
    Network("mlp-512", {"name": "mlp", "hidden": [512]}, 2),
    Network("cnn1d-8-16", {"name": "cnn1d"}, 2),
    Network("convnet-16", {"name": "convnet", "width": 16}, 32),
    Network("convnet-32", {"name": "convnet", "width": 32}, 16),
    Network("lstm-16", {"name": "lstm", "hidden": 16}, 32),
    Network("lstm-48", {"name": "lstm", "hidden": 48}, 64),
    Network("rnn-16", {"name": "rnn", "hidden": 16}, 8),
    Network("mlp-256", {"name": "mlp", "hidden": [256], "activation": "tanh"}, 16, epochs=6),
)
# Drawn once the form of the fit was fixed (docs/calibrate.md says how), so they had no part in any choice.
JUDGE = (
    Network("cnn1d-18-32", {"name": "cnn1d", "channels": [18, 32]}, 4),
    Network("rnn-51", {"name": "rnn", "hidden": 51}, 8),
)
# In view while the form of the fit was chosen: they measure a device, and judge nothing any more.
MORE = (
    Network("cnn1d-32-64", {"name": "cnn1d", "channels": [32, 64]}, 4),
    Network("gru-32", {"name": "gru", "hidden": 32}, 64),
)
FLAG = "--judge"


def read_network(words: str) -> Network:
    """A network to judge on, as a user writes it: `gru hidden=24 batch=32 epochs=2`."""
    first, *rest = words.split() or [""]
    if not first or not all(re.fullmatch(r"\w+=.+", word) for word in rest):
        raise must_be(Code.FLAG_VALUE, FLAG, "a model and its settings, as in 'gru hidden=24 batch=32'", words)
    settings = dict(override({"model": {}}, [f"model.{word}" for word in rest])["model"])
    sizes = {name: settings.pop(name, usual) for name, usual in (("batch", 32), ("epochs", 1))}
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 10_000:
            raise must_be(Code.FLAG_VALUE, f"{FLAG}: {name}", "a whole number from 1 to 10000", size)
    title = "-".join([first, *(part for value in settings.values() for part in re.findall(r"[\w.]+", str(value)))])
    return Network(title, {"name": first, **settings}, **sizes)


def not_fitted(judge: Sequence[Network], fit: Sequence[Network] = FIT) -> None:
    """Refuse networks that the fit sees, and two of one name: a certificate would say less than it seems to."""
    for one in judge:
        same = [each.name for each in fit if each.model == one.model and each.batch == one.batch]
        if same:
            raise must_be(Code.FLAG_VALUE, FLAG, "a network that the fit does not see", same[0])
    names = [one.name for one in (*fit, *judge)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise must_be(Code.FLAG_VALUE, FLAG, "networks that differ in more than batch and epochs", twice)


def write_windows(path: Path, clients: Sequence[Client], seed: int = 0) -> None:
    """Make a data file of random windows: what a task costs does not depend on their values."""
    rng = keys.rng("calibrate", seed)
    rows = [client.rows for client in clients]
    x = rng.standard_normal((sum(rows), STEPS, CHANNELS)).astype(np.float32)
    y = np.concatenate([np.arange(count) % CLASSES for count in rows])
    np.savez(path, x=x, y=y, subject=np.repeat(np.arange(len(rows)), rows))


def experiment_of(network: Network, method: str, data: Path, rounds: int, out: Path, **fleet: Any) -> Experiment:
    """One run: so many passes over the rows per task, one message per task, and no evaluation before the end."""
    settings: dict[str, Any] = {
        "name": method,
        "recipe": {"epochs": network.epochs, "batch": network.batch, "lr": 0.01},
    }
    if method == "echopfl":  # one message per task; its predictor would be trained first
        settings |= {"legs": 1, "broadcast": {"predictor": "always"}}
    return Experiment.of(
        {
            "data": {"source": str(data), "standardise": "none"},
            "model": dict(network.model),
            "method": settings,
            "stop": {"rounds": rounds},
            "fleet": fleet,
            "run": {"out": str(out), "name": f"{method}-{network.name}", "evaluate_every": 1_000_000},
        }
    )
