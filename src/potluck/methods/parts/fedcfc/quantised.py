"""A vector on the wire: float32, float16, or int8 with one scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Vector:
    values: Tensor
    scale: Tensor  # one number for int8, none otherwise


def packed(vector: Tensor, wire: str) -> Vector:
    if wire == "int8":
        largest = vector.abs().amax().reshape(1) if vector.numel() else vector.new_zeros(1)
        scale = (largest / 127.0).clamp_min(1e-30)
        return Vector(torch.round(vector / scale).to(torch.int8), scale)
    return Vector(vector.half() if wire == "float16" else vector, vector.new_zeros(0))


def unpacked(vector: Vector) -> Tensor:
    values = vector.values.float()
    return values * vector.scale if vector.scale.numel() else values
