"""What every grouping does for the server program: say what a client is offered, and take what clients sent.

A `Grouping` is a value with four functions over the state of a composed method. Its own record is `state.book`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from potluck.fleet import Arrival, ClientId, Fleet, Params
from potluck.methods.parts.compose.messages import Towards
from potluck.methods.parts.compose.shapes import Upload


class Offer(NamedTuple):
    """What a client is to begin with, in the coordinates of its group's model."""

    number: int  # of the group
    weights: Params  # empty where it goes on with its own model
    version: tuple[int, int]
    last_layer: bool = False
    legs: int = 0  # of the whole task; 0: it is one piece
    towards: Towards = Towards()
    models: tuple[Params, ...] = ()  # of all groups, where the client chooses
    serial: int = 0  # by which sub-models of it are known to be the same

    @property
    def stamp(self) -> Tensor:
        return torch.tensor(self.version)


class Grouping(NamedTuple):
    """Who learns with whom, as functions of the state."""

    begin: Callable[[Fleet, Any], Any]  # once before the tasks of a step: what `ask` needs aside
    ask: Callable[[Any, Any, ClientId], tuple[Any, Offer]]
    take: Callable[[Fleet, Any, Sequence[tuple[Arrival, Upload]]], Any]
    lost: Callable[[Any, ClientId], Any]
    until: Callable[[Fleet, Any], float | None] = lambda fleet, state: None  # when the server must look again
    turn: Callable[[Fleet, Any], Sequence[ClientId]] = lambda fleet, state: fleet.idle  # who may get a task now
    wake: Callable[[Fleet, Any, float], Any] = lambda fleet, state, before: state  # after waiting since `before`


def nothing(fleet: Fleet, state: Any) -> None:
    return None


def unchanged(state: Any, client: ClientId) -> Any:
    return state
