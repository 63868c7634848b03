"""Small models of three numbers, and the steps of EchoPFL's clusters without a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from potluck import methods
from potluck.fleet import Params
from potluck.methods.echopfl import Config, Grouping, Pushed
from potluck.methods.parts.echopfl import clusters, merging
from potluck.methods.parts.echopfl.merging import Sent
from potluck.settings import moved_to

METHOD = methods.load("echopfl")
NAMES = ("w", "b")
L1 = merging.l1(NAMES)


def rules(**values: Any) -> Config:
    """A Config from the last parts of its settings' names (`count` is clusters.count), with the predictor ewma."""
    short = {"predictor": "ewma", **values}
    config: Config = METHOD.configure({moved_to(METHOD.config, name) or name: value for name, value in short.items()})
    return config


EWMA = rules()


def say(models: Sequence[Params]) -> Tensor:
    """In place of what models answer: their numbers, as rows of length 1."""
    return torch.nn.functional.normalize(torch.stack([torch.cat([one["w"], one["b"]]) for one in models]), dim=1)


def model(*numbers: float) -> Params:
    return {"w": torch.tensor(numbers[:-1]), "b": torch.tensor(numbers[-1:])}


def nothing_yet() -> Grouping:
    return Grouping(model(0.0, 0.0, 0.0))


def pushed(weights: Params, examples: float, version: tuple[int, int] = (0, 0), g: float = 0.0) -> Pushed:
    return Pushed(weights, torch.tensor(examples), torch.tensor(version), torch.tensor(g))


def push(grouping: Grouping, client: str, update: Pushed, cfg: Config = EWMA) -> Grouping:
    return clusters.push(replace(grouping, to_broadcast=(), events=()), client, update, cfg, NAMES, L1)


def pulled(grouping: Grouping, client: str, cfg: Config = EWMA) -> tuple[Grouping, Sent]:
    """As the server does it when it sends a client its next task."""
    what, _ = clusters.reply(grouping, client, cfg)
    newcomers = grouping.newcomers
    if client not in grouping.members:
        newcomers = newcomers.put(client, grouping.arrivals)
    return replace(grouping, sent=grouping.sent.put(client, what), newcomers=newcomers), what
