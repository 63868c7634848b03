"""Heads of unlike depth in one fleet: small boards leave out the hidden layer of f, g or h.

Dai and Tan, "FedCFC", section 6 and Table 4: boards whose modules f, g and h have 1-1-1, 2-1-1 and 2-2-2 layers learn
together. That works because only the gradient by V, f's last layer, travels, and V has the same shape on all boards.
A head of one layer keeps the names of a deeper one, with a hidden layer of no units, and its last layer reads the
backbone. So it needs a hidden layer as wide as the backbone; the start of V is then common to all depths.
"""

from __future__ import annotations

from typing import Literal

from potluck.errors import BadInput, Code
from potluck.fleet import Params
from potluck.models.cfc import HEADS, has_hidden

Depth = Literal["1-1-1", "1-1-2", "1-2-1", "1-2-2", "2-1-1", "2-1-2", "2-2-1", "2-2-2"]  # layers of f, g and h


def layers(depth: str) -> tuple[int, ...]:
    return tuple(int(count) for count in depth.split("-"))


def of(weights: Params) -> str:
    """The layers of f, g and h that these weights have."""
    return "-".join(str(1 + has_hidden(weights, head)) for head in HEADS)


def shallower(weights: Params, depth: str) -> Params:
    """Remove the hidden layers that `depth` does not have; "" changes nothing."""
    if depth in ("", of(weights)):
        return weights
    out = dict(weights)
    for head, count in zip(HEADS, layers(depth), strict=True):
        if count == 1 + has_hidden(weights, head):
            continue
        if count == 2 or f"{head}.2.weight" not in weights:
            raise BadInput(
                Code.METHOD_NEEDS,
                f"method.depths: {depth} needs a model whose {head} has two layers. Set model.layers.",
            )
        hidden, last = weights[f"{head}.1.weight"], weights[f"{head}.2.weight"]
        if last.shape[1] != hidden.shape[1]:
            raise BadInput(
                Code.METHOD_NEEDS,
                f"method.depths: {depth} removes the hidden layer of {head}, whose last layer reads {last.shape[1]} "
                f"units, but the backbone has {hidden.shape[1]}. Set model.head = model.backbone.",
            )
        out |= {f"{head}.1.weight": hidden[:0], f"{head}.1.bias": weights[f"{head}.1.bias"][:0]}
    return out
