"""A sequence through a closed-form continuous-time cell as one operation, differentiable twice.

The arithmetic is in `potluck.models.cfc_loops`; here it becomes an operation that autograd and vmap know. With
y -> F'(θ)ᵀ y the backward pass, its own backward for w is F'(θ) w (a push) and the pull of that push. So a gradient of
a gradient costs three loops over time instead of thousands of small operations. `unrolled` is the same in ordinary
operations.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from potluck.models.cfc_loops import Kind, Tensors, cell_of, features_of, gradients, pull, second_order, states_of
from potluck.models.scan import flat_lead, stack_first


def cfc_scan(kind: Kind, u: Tensor, tau: Tensor, S: Tensor, A: Tensor, a: Tensor, D: Tensor, d: Tensor) -> Tensor:
    """The hidden state after every step (B, T, N), from u (B, T, H) and tau (B, T) and a zero state."""
    states: Tensor = CfcScan.apply(kind, u, tau, S, A, a, D, d)  # type: ignore[no-untyped-call]
    return states


def unrolled(kind: Kind, u: Tensor, tau: Tensor, S: Tensor, A: Tensor, a: Tensor, D: Tensor, d: Tensor) -> Tensor:
    """The same in ordinary operations: what the tests compare with."""
    x, states = u.new_zeros((*u.shape[:-2], S.shape[-1])), []
    for t in range(u.shape[-2]):
        z = torch.tanh(u[..., t, :] + x @ S.transpose(-1, -2))
        q = torch.tanh(z @ A.transpose(-1, -2) + a.unsqueeze(-2))
        f, g, h = (features_of(q, z, D) @ D.transpose(-1, -2) + d.unsqueeze(-2)).chunk(3, -1)
        f, g, h = torch.tanh(f * tau[..., t, None] if kind.timed else f), torch.tanh(g), torch.tanh(h)
        x = 0.5 * (1 + f) * g + (0.5 * (1 - f) * h if kind.gated else h)
        states.append(x)
    return torch.stack(states, -2)


def _in(lead: int, u: Tensor, tau: Tensor, *weights: Tensor) -> list[Tensor]:
    """One stacked axis, and time before batch: each step is then a plain matrix per model."""
    u, tau, *rest = flat_lead(lead, u, tau, *weights)
    return [u.transpose(1, 2).contiguous(), tau.transpose(1, 2).unsqueeze(-1), *rest]


def _time_first(lead: int, *sequences: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2).contiguous() for x in flat_lead(lead, *sequences)]


class CfcScan(torch.autograd.Function):
    """(kind, u, tau, S, A, a, D, d) -> states; leading axes are a stack. Time itself has no gradient."""

    @staticmethod
    def forward(kind: Kind, u: Tensor, tau: Tensor, S: Tensor, A: Tensor, a: Tensor, D: Tensor, d: Tensor) -> Tensor:
        lead = S.shape[:-2]
        out = states_of(kind, *_in(len(lead), u, tau, S, A, a, D, d)).transpose(1, 2)
        return out.reshape(*lead, *out.shape[1:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.kind = inputs[0]
        ctx.save_for_backward(*inputs[1:], output)

    @staticmethod
    def backward(ctx: Any, *d_output: Tensor) -> tuple[Tensor | None, ...]:
        u, S, A, a, D, d = CfcBackward.apply(ctx.kind, d_output[0], *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return None, u, None, S, A, a, D, d

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensor, int]:
        return CfcScan.apply(*stack_first(info, in_dims, args)), 0  # type: ignore[no-untyped-call]


class CfcBackward(torch.autograd.Function):
    """(kind, gradient of the states, `CfcScan`'s inputs and output) -> gradients of u, S, A, a, D and d."""

    @staticmethod
    def forward(
        kind: Kind, d_x: Tensor, u: Tensor, tau: Tensor, S: Tensor, A: Tensor, a: Tensor, D: Tensor, d: Tensor,
        states: Tensor,
    ) -> Tensors:  # fmt: skip
        lead = S.shape[:-2]
        y, x = _time_first(len(lead), d_x, states)
        cell = cell_of(kind, x, *_in(len(lead), u, tau, S, A, a, D, d))
        return _out(lead, gradients(cell, *pull(cell, y)[1:]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        ctx.kind = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *dots: Tensor) -> tuple[Tensor | None, ...]:
        by = CfcDouble.apply(ctx.kind, *dots, *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        d_x, u, S, A, a, D, d = by
        # The states are a function of the rest: their part is in those gradients.
        return None, d_x, u, None, S, A, a, D, d, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensors, tuple[int, ...]]:
        return CfcBackward.apply(*stack_first(info, in_dims, args)), (0,) * 6  # type: ignore[no-untyped-call]


class CfcDouble(torch.autograd.Function):
    """(kind, six tangents, `CfcBackward`'s inputs) -> gradients of those inputs; it has no backward pass."""

    @staticmethod
    def forward(kind: Kind, *args: Tensor) -> Tensors:
        u_, S_, A_, a_, D_, d_, d_x, u, tau, S, A, a, D, d, states = args
        lead = S.shape[:-2]
        y, x, u_ = _time_first(len(lead), d_x, states, u_)
        cell = cell_of(kind, x, *_in(len(lead), u, tau, S, A, a, D, d))
        d_x, by_u, *rest = second_order(cell, y, (u_, *flat_lead(len(lead), S_, A_, a_, D_, d_)))
        return (*_out(lead, (d_x,)), *_out(lead, (by_u, *rest)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError("cfc: third derivatives are not implemented")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensors, tuple[int, ...]]:
        return CfcDouble.apply(*stack_first(info, in_dims, args)), (0,) * 7  # type: ignore[no-untyped-call]


def _out(lead: torch.Size, values: Tensors) -> Tensors:
    """The sequence, which is first, back to (B, T), and the stacked axis to what it was."""
    first, *rest = values
    back = (first.transpose(1, 2), *rest)
    return tuple(x.reshape(*lead, *x.shape[1:]) for x in back)


# PyTorch asks for these signatures at every call. A stored signature saves the time to make it.
CfcScan.forward.__signature__ = inspect.signature(CfcScan.forward)  # type: ignore[attr-defined]
CfcBackward.forward.__signature__ = inspect.signature(CfcBackward.forward)  # type: ignore[attr-defined]
CfcDouble.forward.__signature__ = inspect.signature(CfcDouble.forward)  # type: ignore[attr-defined]
