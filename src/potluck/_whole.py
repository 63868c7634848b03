"""Functions of whole stacks, called by a program that was written for one client.

Inside `torch.func.vmap` each operation goes through a batching rule, which takes longer than the operation where
tensors are small. A function that knows stacks is called once with the stacked tensors instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._C import _functorch
from torch._functorch.predispatch import lazy_load_decompositions
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch._functorch.vmap import vmap_increment_nesting


def whole(call: Callable[..., Sequence[Tensor]], *values: Tensor) -> list[Tensor] | None:
    """`call` with one more axis in front of each value and of each result; None if this is not one `vmap` alone.

    A value that all clients share is expanded, without a copy.
    """
    top: Any = _functorch.peek_interpreter_stack()
    if top is None or torch.is_grad_enabled() or top.key() != _functorch.TransformType.Vmap:
        return None
    level, size = top.level(), _functorch.CVmapInterpreterPtr(top).batchSize()
    stacked = []
    for value in values:
        inner, axis = _functorch._unwrap_batched(value, level)
        if _functorch.is_functorch_wrapped_tensor(inner):
            return None  # of another transform outside this one
        stacked.append((inner, axis))
    with temporarily_pop_interpreter_stack():
        out = call(*(
            inner.expand(size, *inner.shape) if axis is None else inner.movedim(axis, 0) for inner, axis in stacked
        ))  # fmt: skip
    return [_functorch._add_batch_dim(value, 0, level) for value in out]


def stacked(
    call: Callable[[Sequence[Tensor]], Sequence[Tensor]], values: Sequence[Tensor], shared: Sequence[bool], size: int
) -> list[Tensor]:
    """`torch.func.vmap` of a call with one flat list of tensors, without the search through trees on both sides.

    Tensors that are not `shared` have a first axis of this size, and so has each result.
    """
    lazy_load_decompositions()
    with vmap_increment_nesting(size, "error") as level:
        inside = [
            value if same else _functorch._add_batch_dim(value, 0, level)
            for value, same in zip(values, shared, strict=True)
        ]
        return [_functorch._remove_batch_dim(value, level, size, 0) for value in call(inside)]


class Plan(Protocol):
    """What is the same for every client of a stack, and how a stack trains."""

    def train(self, x: Tensor, y: Tensor, rows: Tensor, counts: Tensor, rest: Sequence[Tensor]) -> list[Tensor]:
        """K clients, N samples, S steps, B samples a step: x (K, N, F), y (K, N[, O]), rows and counts (K, S, B)."""


def train(plan: Plan, *values: Tensor) -> Sequence[Tensor]:
    """What a client's tensors become: x, y, rows, counts, and the rest that the plan knows."""
    out = whole(lambda x, y, rows, counts, *rest: plan.train(x, y, rows, counts, rest), *values)
    if out is None and _functorch.peek_interpreter_stack() is None and not torch.is_grad_enabled():
        x, y, rows, counts, *rest = (value[None] for value in values)
        out = [value[0] for value in plan.train(x, y, rows, counts, rest)]
    return Train.apply(plan, *values) if out is None else out  # type: ignore[no-untyped-call]


class Train(torch.autograd.Function):
    """One client: forward. A stack of clients: vmap. Not differentiable: its result is the end of training."""

    generate_vmap_rule = False

    @staticmethod
    def forward(plan: Plan, x: Tensor, y: Tensor, rows: Tensor, counts: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            out = plan.train(x[None], y[None], rows[None], counts[None], [value[None] for value in rest])
        return tuple(value[0] for value in out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise RuntimeError("the fused trainer cannot be differentiated; train inside `with learn.plain():`")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], plan: Plan, *args: Tensor) -> tuple[Any, Any]:
        size = info.batch_size
        stacked = [
            value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
            for value, dim in zip(args, in_dims[1:], strict=True)
        ]
        x, y, rows, counts, *rest = stacked
        with torch.no_grad():
            out = plan.train(x, y, rows, counts, rest)
        return tuple(out), (0,) * len(out)
