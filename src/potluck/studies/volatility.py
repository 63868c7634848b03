"""Which head of a CFC depends least on the classes it was trained on: principal angles between trained heads.

Dai and Tan, "FedCFC", section 3.2: one network per pair of classes, all from the same start; a head's Π is the product
of its weight matrices (inputs x outputs), and the angle between two networks' heads the largest principal angle between
the column spaces of their Π. Figure 4 shows all of them for f, g and h. With Π square all angles would be 0, so the
backbone must be wider than the state. How far a head moves depends on the optimiser: plain gradient descent, the
paper's, follows the size of its gradient; Adam moves all weights alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from potluck import keys
from potluck.data.dataset import Dataset
from potluck.errors import BadInput, Code
from potluck.fleet import Data, Params
from potluck.models import build
from potluck.models.cfc import HEADS, in_head
from potluck.studies import stacks


@dataclass(frozen=True)
class Volatility:
    angles: dict[str, list[float]]  # by head, degrees, one for each pair of networks
    accuracy: list[float]  # of each network on the training rows of its classes


def span(weights: Params, head: str) -> Tensor:
    """Π of one network: the product of a head's weight matrices, inputs x outputs."""
    layers = [weights[name].T for name in sorted(weights) if in_head(name, head) and name.endswith(".weight")]
    out = layers[0]
    for layer in layers[1:]:
        out = out @ layer
    return out


def angle(a: Tensor, b: Tensor) -> float:
    """The largest principal angle between two column spaces, in degrees."""
    first, second = (torch.linalg.qr(m.double()).Q for m in (a, b))
    cosines = torch.linalg.svdvals(first.T @ second).clamp(0.0, 1.0)
    return float(torch.rad2deg(torch.arccos(cosines.min())))


def measure(
    dataset: Dataset,
    settings: dict[str, object],
    *,
    rows: int = 100,
    epochs: int = 10,
    lr: float = 0.03,
    seed: int = 0,
    optimiser: str = "sgd",
) -> Volatility:
    """Train one network per pair of classes, all in one stack, with `rows` training rows per class."""
    model = build("cfc", dataset.sample_shape, dataset.classes, settings)
    if int(model.settings["backbone"]) <= int(model.settings["hidden"]):
        raise BadInput(
            Code.SETTINGS_CLASH,
            f"model.backbone: {model.settings['backbone']} given for a state of {model.settings['hidden']}; it must be "
            "wider, or all principal angles are 0.",
        )
    every = stacks.rows_of(stacks.together(dataset, seed), "train", 0, seed)
    pairs = list(combinations(range(dataset.classes), 2))
    chosen = torch.stack([_rows(every.y, pair, rows, seed) for pair in pairs])
    data = Data(
        every.x[chosen],
        every.y[chosen],
        torch.ones(chosen.shape),
        None if every.t is None else every.t[chosen],
        None if every.length is None else every.length[chosen],
    )
    begin = stacks.stacked([model.init(seed)] * len(pairs))
    trained = stacks.train(model, begin, data, seed=seed, lr=lr, epochs=epochs, batch=8, own=True, optimiser=optimiser)
    single = [{name: value[k] for name, value in trained.items()} for k in range(len(pairs))]
    angles = {head: [angle(span(a, head), span(b, head)) for a, b in combinations(single, 2)] for head in HEADS}
    known = [
        stacks.accuracies(
            model,
            stacks.stacked([weights]),
            Data(data.x[k], data.y[k], data.weight[k], *(None if v is None else v[k] for v in (data.t, data.length))),
        )[0]
        for k, weights in enumerate(single)
    ]
    return Volatility(angles, known)


def _rows(y: Tensor, pair: tuple[int, int], rows: int, seed: int) -> Tensor:
    draw, picked = keys.rng(seed, "volatility", *pair), []
    for label in pair:
        own = np.flatnonzero(y.numpy() == label)
        picked.append(draw.choice(own, rows, replace=len(own) < rows))
    return torch.from_numpy(np.concatenate(picked))
