"""The networks of the comparison in plain PyTorch, as an encoder and a head, for libraries that want both apart.

Potluck is not imported here. `about.json` of an export says what to build; `weights-*.npz` are the first weights.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Image(nn.Module):
    """Give a sample the shape (channels, height, width)."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], *self.shape)


def encoder_and_head(spec: Mapping[str, Any], shape: Sequence[int], classes: int) -> tuple[nn.Sequential, nn.Linear]:
    """Build the network that `spec` (an entry of `cases.NETWORKS`) describes.

    Layers of batch norm are called bn1, bn2 and so on: PFLlib finds them by these two letters.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    if spec["name"] == "mlp":
        layers["flatten"] = nn.Flatten()
        inputs = prod(shape)
        for i, outputs in enumerate(spec["hidden"], 1):
            layers[f"fc{i}"], layers[f"relu{i}"] = nn.Linear(inputs, outputs), nn.ReLU()
            inputs = outputs
        return nn.Sequential(layers), nn.Linear(inputs, classes)
    channels, *sides = shape if len(shape) == 3 else (1, *shape)
    layers["image"] = Image((channels, *sides))
    kernel, stride, padding, pool = (int(spec[name]) for name in ("kernel", "stride", "padding", "pool"))
    for i, outputs in enumerate(spec["channels"], 1):
        layers[f"conv{i}"] = nn.Conv2d(channels, outputs, kernel, stride, padding)
        layers[f"bn{i}"] = nn.BatchNorm2d(outputs)
        layers[f"pool{i}"], layers[f"relu{i}"] = nn.MaxPool2d(pool), nn.ReLU()
        sides = [((side + 2 * padding - kernel) // stride + 1) // pool for side in sides]
        channels = outputs
    layers["flatten"] = nn.Flatten()
    return nn.Sequential(layers), nn.Linear(channels * prod(sides), classes)


def start(folder: Path, network: str) -> tuple[nn.Sequential, nn.Linear]:
    """Return encoder and head with the first weights of an export."""
    about = json.loads((folder / "about.json").read_text())
    encoder, head = encoder_and_head(about["networks"][network], about["shape"], about["classes"])
    with np.load(folder / f"weights-{network}.npz", allow_pickle=False) as saved:
        weights = {name: torch.from_numpy(saved[name]) for name in saved.files}
    parameters = dict(nn.ModuleDict({"encoder": encoder, "head": head}).named_parameters())
    if parameters.keys() != weights.keys():
        raise SystemExit(f"{folder}: weights-{network}.npz has other layers than its network.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    return encoder, head


def clients(folder: Path) -> list[dict[str, Tensor]]:
    """Return the rows of each client: x and y for training (split 0), x_test and y_test (split 1)."""
    found = []
    for path in sorted((folder / "clients").glob("*.npz")):
        with np.load(path, allow_pickle=False) as saved:
            x, y, side = torch.from_numpy(saved["x"]), torch.from_numpy(saved["y"]).long(), saved["split"]
        train, test = np.flatnonzero(side == 0), np.flatnonzero(side == 1)
        found.append({"x": x[train], "y": y[train], "x_test": x[test], "y_test": y[test]})
    return found
