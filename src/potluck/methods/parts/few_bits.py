"""Changes of a model in a few bits a number, for a client alone or inside a stack.

A tensor v becomes whole numbers q and one scale s, with v ≈ s q. With b bits there are the 2^b - 1 whole numbers from
-m to m, m = 2^(b-1) - 1. One bit keeps the sign, and s is the mean size (Seide et al., Interspeech 2014). From six bits
on, s fits the largest number. Below that, numbers far from zero are cut off: s is the best one for a normal
distribution (Max, IRE Transactions 1960). What rounding and cutting leave out is the caller's to add to the next
change: error feedback (Karimireddy et al., ICML 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Params

FLOAT = 32  # bits of a number that is sent as it is
BEST = {2: 1.224, 3: 0.651, 4: 0.353, 5: 0.193}  # scale over the root mean square, for 3, 7, 15 and 31 levels


@dataclass(frozen=True)
class Packed:
    """The changes of some tensors, one after the other."""

    numbers: Tensor  # bytes
    scales: Tensor  # one per tensor


def packed(change: Params, bits: int, draw: Tensor | None = None) -> Packed:
    """Round to the nearest; with a key in `draw`, up or down at random with the right mean (two bits or more)."""
    values = [value.reshape(-1) for value in change.values()]
    scales = torch.stack([_scale(value, bits) for value in values])
    flat = torch.cat(values) / torch.repeat_interleave(scales.clamp_min(1e-30), _counts(change))
    if bits == 1:
        return Packed(_bytes((flat >= 0).long(), 1), scales)
    most = 2 ** (bits - 1) - 1
    shift = 0.5 if draw is None else keys.uniform(draw, (flat.shape[0],))
    return Packed(_bytes(torch.floor(flat + shift).clamp(-most, most).long() + most, bits), scales)


def unpacked(sent: Packed, like: Mapping[str, Tensor], bits: int) -> Params:
    """The tensors, with the names and shapes of `like`."""
    counts = _counts(like)
    whole = _numbers(sent.numbers, bits, int(counts.sum()))
    values = (2.0 * whole - 1.0 if bits == 1 else whole - (2.0 ** (bits - 1) - 1.0)) * torch.repeat_interleave(
        sent.scales, counts
    )
    cuts = [0, *counts.cumsum(0).tolist()]
    parts = zip(like.items(), pairwise(cuts), strict=True)
    return {name: values[a:b].reshape(tensor.shape) for (name, tensor), (a, b) in parts}


def length(like: Mapping[str, Tensor], bits: int) -> int:
    """The bytes of the numbers."""
    return -(-bits * int(_counts(like).sum()) // 8)


def _counts(like: Mapping[str, Tensor]) -> Tensor:
    return torch.tensor([tensor.numel() for tensor in like.values()])


def _scale(value: Tensor, bits: int) -> Tensor:
    if not value.shape[0]:
        return value.new_zeros(())
    if bits == 1:
        return value.abs().mean()
    fits = value.abs().amax() / (2 ** (bits - 1) - 1)
    return torch.minimum(fits, BEST[bits] * value.square().mean().sqrt()) if bits in BEST else fits


def _bytes(whole: Tensor, bits: int) -> Tensor:
    """Whole numbers of so many bits, one after the other, as bytes."""
    ones = ((whole.unsqueeze(1) >> torch.arange(bits)) & 1).reshape(-1)
    eights = torch.cat((ones, ones.new_zeros(-ones.shape[0] % 8))).reshape(-1, 8)
    return (eights << torch.arange(8)).sum(1).to(torch.uint8)


def _numbers(data: Tensor, bits: int, count: int) -> Tensor:
    ones = ((data.long().unsqueeze(1) >> torch.arange(8)) & 1).reshape(-1)[: bits * count]
    return (ones.reshape(count, bits) << torch.arange(bits)).sum(1).to(torch.float32)


def names_of(bind: str, weights: Params, trainable: frozenset[str], last: frozenset[str]) -> list[str]:
    """The weights that `bind` names: body, all, or layers and modules such as f,backbone; [] where one is unknown."""
    if bind in ("body", "all"):
        return [name for name in weights if name in trainable and (bind == "all" or name not in last)]
    asked: Sequence[str] = [part.strip() for part in bind.split(",")]
    named = {part: [name for name in trainable if name == part or name.startswith(f"{part}.")] for part in asked}
    if not all(named.values()):
        return []
    return [name for name in weights if any(name in found for found in named.values())]
