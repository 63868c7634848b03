"""Which layers of a model travel and which stay on the client."""

from __future__ import annotations

from collections.abc import Collection

from potluck.errors import BadInput, Code
from potluck.fleet import Local, Params


def without(weights: Params, names: Collection[str]) -> Params:
    return {name: value for name, value in weights.items() if name not in names}


def only(weights: Params, names: Collection[str]) -> Params:
    return {name: value for name, value in weights.items() if name in names}


def check(home: Local, last: int) -> None:
    """Refuse a model that has no layer left in front of its `last` ones."""
    count = len(home.model.layers())
    if count <= last:
        raise BadInput(
            Code.METHOD_NEEDS,
            f"model: must have more than {last} layers for this method, got {count} in {home.model.name}. "
            'Set model.name = "mlp".',
        )
