"""Floating-point operations of whatever runs inside, with grouped convolutions counted right.

PyTorch's own count of a convolution's backward pass leaves the groups out of the gradient of the weights. A depthwise
convolution, of one channel per group, then costs as many times too much as it has channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count


def _backward(
    grad_out: Sequence[int], x: Sequence[int], w: Sequence[int], *rest: Any, out_shape: Any = None, **_: Any
) -> int:
    """Each of the two gradients costs what the forward pass does; `rest` ends with which of them are asked for."""
    transposed, asked = bool(rest[4]), rest[-1]
    once = conv_flop_count(list(x), list(w), list(grad_out), transposed=transposed)
    return int(once * (bool(asked[0]) + bool(asked[1])))


def counter() -> FlopCounterMode:
    """A context that counts; `get_total_flops()` has the sum."""
    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: _backward})
