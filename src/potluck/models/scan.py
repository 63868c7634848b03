"""The recurrent scan: a sequence through a GRU, LSTM or tanh cell as one operation on a stack of models.

Cells follow PyTorch's equations (GRU: Cho et al., EMNLP 2014, with the reset gate behind the product; LSTM:
Hochreiter and Schmidhuber, 1997, with a forget gate). For tiny cells, starting an operation costs more
than its arithmetic. So `Scan` runs the kernels below on the stacked tensors themselves, and
`torch.func.vmap(torch.func.grad(...))` reaches them through the `vmap` rules, not operation by operation.

The forward pass computes the input part of the gates for all steps at once, and each step works in scratch tensors.
Only the states are kept: the backward pass recomputes the gates of all steps in one product. Given the gates, the
backward pass is linear in the incoming gradient. So all slopes are computed at once, and a step of the GRU needs two
operations. A gradient of a gradient goes through `unrolled`: ordinary operations, of any order.

Axes: K stacked models, B batch, T time steps, H hidden units, G = (number of gates) * H.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Cell:
    """One kind of cell: a step in ordinary operations, and the kernels for whole sequences."""

    name: str
    gates: int
    carried: int  # tensors a step leaves for the next, the hidden state first
    step: Callable[[Tensor, Tensors, Tensor, Tensor], Tensors]  # (gates_BG, carried, weight, bias) -> carried
    forward: Callable[[Tensor, Tensor, Tensor], Tensors]  # (gates_KBTG, weight_KGH, bias_KG) -> carried_KBTH
    # (d_states, gates, weight, bias, the state before each step, what forward gave) -> d_gates, d_product
    backward: Callable[..., Tensors]


def _steps(*sequences: Tensor) -> list[Tensors]:
    """Return one view of each sequence per time step."""
    return list(zip(*(sequence.unbind(2) for sequence in sequences), strict=True))


def _stacked(backwards: list[Tensor]) -> Tensor:
    """Stack steps that were collected in reverse order."""
    return torch.stack(backwards[::-1], 2)


def _shifted(states: Tensor) -> Tensor:
    """Return the state before each step."""
    return torch.cat((torch.zeros_like(states[:, :, :1]), states[:, :, :-1]), 2)


def _product(before: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Hidden state times weight plus bias, of all steps."""
    out = torch.baddbmm(bias.unsqueeze(1), before.flatten(1, 2), weight.transpose(1, 2))
    return out.view(*before.shape[:3], -1)


def _gru_step(gates: Tensor, carried: Tensors, weight: Tensor, bias: Tensor) -> Tensors:
    (h,) = carried
    in_r, in_z, in_n = gates.chunk(3, -1)
    at_r, at_z, at_n = (h @ weight.transpose(-1, -2) + bias.unsqueeze(-2)).chunk(3, -1)
    r, z = torch.sigmoid(in_r + at_r), torch.sigmoid(in_z + at_z)
    n = torch.tanh(in_n + r * at_n)
    return (n + z * (h - n),)


def _gru_forward(gates: Tensor, weight: Tensor, bias: Tensor) -> Tensors:
    size = weight.shape[-1]
    bias = bias[:, None, None]
    base = torch.empty_like(gates)  # what is added to the product: for n only the bias, r multiplies that sum
    torch.add(gates[..., : 2 * size], bias[..., : 2 * size], out=base[..., : 2 * size])
    base[..., 2 * size :] = bias[..., 2 * size :]
    recurrent = weight.transpose(1, 2).contiguous()
    gate = torch.empty_like(base[:, :, 0])
    rz = gate[..., : 2 * size]
    r, z, at_n = gate.chunk(3, -1)
    n = torch.empty_like(at_n)
    h, states = torch.zeros_like(at_n), []
    for add, in_n in _steps(base, gates[..., 2 * size :]):
        torch.baddbmm(add, h, recurrent, out=gate)
        rz.sigmoid_()
        torch.addcmul(in_n, r, at_n, out=n).tanh_()
        h = torch.lerp(n, h, z)
        states.append(h)
    return (torch.stack(states, 2),)


def _gru_backward(d_h: Tensor, gates: Tensor, weight: Tensor, bias: Tensor, before: Tensor, _states: Tensor) -> Tensors:
    size = weight.shape[-1]
    product = _product(before, weight, bias)
    r, z = product[..., : 2 * size].add_(gates[..., : 2 * size]).sigmoid_().chunk(2, -1)
    at_n = product[..., 2 * size :]
    n = torch.addcmul(gates[..., 2 * size :], r, at_n).tanh_()
    n_by_h = (1 - z).mul_(1 - n * n)  # d (argument of n) / d h
    # d (arguments of r and z, product of n, h before) / d h
    slope = gates.new_empty((*n.shape[:-1], 4, size))
    slope_r, slope_z, slope_n, slope_h = slope.unbind(-2)
    torch.mul(n_by_h, at_n, out=slope_r).mul_(r).mul_(1 - r)
    torch.sub(before, n, out=slope_z).mul_(z).mul_(1 - z)
    torch.mul(n_by_h, r, out=slope_n)
    slope_h.copy_(z)
    # One product goes both ways to the previous state: through the gates, and directly.
    straight = torch.eye(size, dtype=weight.dtype, device=weight.device).expand(weight.shape[0], size, size)
    back = torch.cat((weight, straight), 1)
    part = torch.zeros_like(slope[:, :, 0], memory_format=torch.contiguous_format)
    flat = part.flatten(2)
    d_all = []
    for own, a in reversed(_steps(d_h, slope)):
        d = torch.baddbmm(own, flat, back)
        torch.mul(d.unsqueeze(2), a, out=part)
        d_all.append(d)
    d_states = _stacked(d_all)
    d_product = (d_states.unsqueeze(3) * slope[..., :3, :]).flatten(3)
    d_gates = d_product.clone()
    torch.mul(d_states, n_by_h, out=d_gates[..., 2 * size :])
    return d_gates, d_product


def _lstm_step(gates: Tensor, carried: Tensors, weight: Tensor, bias: Tensor) -> Tensors:
    h, c = carried
    i, f, g, o = (gates + h @ weight.transpose(-1, -2) + bias.unsqueeze(-2)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _lstm_forward(gates: Tensor, weight: Tensor, bias: Tensor) -> Tensors:
    size = weight.shape[-1]
    base = gates + bias[:, None, None]
    recurrent = weight.transpose(1, 2).contiguous()
    gate = torch.empty_like(base[:, :, 0])
    i, f, g, o = gate.chunk(4, -1)
    i_f = gate[..., : 2 * size]
    h = torch.zeros_like(i)
    c, states, cells = h, [], []
    for (add,) in _steps(base):
        torch.baddbmm(add, h, recurrent, out=gate)
        i_f.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        c = torch.mul(f, c).addcmul_(i, g)
        h = torch.tanh(c).mul_(o)
        states.append(h)
        cells.append(c)
    return torch.stack(states, 2), torch.stack(cells, 2)


def _lstm_backward(
    d_h: Tensor, gates: Tensor, weight: Tensor, bias: Tensor, before: Tensor, _states: Tensor, c: Tensor
) -> Tensors:
    size = weight.shape[-1]
    arguments = _product(before, weight, bias).add_(gates)
    i_f, g, o = arguments[..., : 2 * size], arguments[..., 2 * size : 3 * size], arguments[..., 3 * size :]
    i, f = i_f.sigmoid_().chunk(2, -1)
    g.tanh_()
    o.sigmoid_()
    tanh_c = c.tanh()
    slope = gates.new_empty((*c.shape[:-1], 4, size))  # d (arguments of i, f and g, c before) / d c
    slope_i, slope_f, slope_g, slope_c = slope.unbind(-2)
    torch.mul(g, i, out=slope_i).mul_(1 - i)
    torch.mul(_shifted(c), f, out=slope_f).mul_(1 - f)
    torch.mul(i, 1 - g * g, out=slope_g)
    slope_c.copy_(f)
    o_by_h = tanh_c * o * (1 - o)  # d (argument of o) / d h
    c_by_h = (1 - tanh_c * tanh_c).mul_(o)  # d c / d h
    # A step's parts are those of i, f, g, c before and o; that of c before stays out of the product.
    back = torch.cat((weight[:, : 3 * size], torch.zeros_like(weight[:, :size]), weight[:, 3 * size :]), 1)
    part = gates.new_zeros((*c.shape[:2], 5, size))
    flat, by_c, c_before, by_o = part.flatten(2), part[:, :, :4], part[:, :, 3], part[:, :, 4]
    d_states, d_cells = [], []
    for own, a, to_o, to_c in reversed(_steps(d_h, slope, o_by_h, c_by_h)):
        d = torch.baddbmm(own, flat, back)
        d_c = torch.addcmul(c_before, d, to_c)
        torch.mul(d_c.unsqueeze(2), a, out=by_c)
        torch.mul(d, to_o, out=by_o)
        d_states.append(d)
        d_cells.append(d_c)
    d_gates = torch.empty_like(arguments)
    torch.mul(
        _stacked(d_cells).unsqueeze(3),
        slope[..., :3, :],
        out=d_gates[..., : 3 * size].view(*c.shape[:3], 3, size),
    )
    torch.mul(_stacked(d_states), o_by_h, out=d_gates[..., 3 * size :])
    return d_gates, d_gates


def _tanh_step(gates: Tensor, carried: Tensors, weight: Tensor, bias: Tensor) -> Tensors:
    (h,) = carried
    return (torch.tanh(gates + h @ weight.transpose(-1, -2) + bias.unsqueeze(-2)),)


def _tanh_forward(gates: Tensor, weight: Tensor, bias: Tensor) -> Tensors:
    base = gates + bias[:, None, None]
    recurrent = weight.transpose(1, 2).contiguous()
    h, states = torch.zeros_like(base[:, :, 0]), []
    for (add,) in _steps(base):
        h = torch.baddbmm(add, h, recurrent).tanh_()
        states.append(h)
    return (torch.stack(states, 2),)


def _tanh_backward(
    d_h: Tensor, _gates: Tensor, weight: Tensor, _bias: Tensor, _before: Tensor, states: Tensor
) -> Tensors:
    d_gates = 1 - states * states  # the slopes, turned into gradients step by step
    part = torch.zeros_like(d_h[:, :, 0])
    for own, slope in reversed(_steps(d_h, d_gates)):
        part = slope.mul_(torch.baddbmm(own, part, weight))
    return d_gates, d_gates


CELLS = {
    cell.name: cell
    for cell in (
        Cell("gru", 3, 1, _gru_step, _gru_forward, _gru_backward),
        Cell("lstm", 4, 2, _lstm_step, _lstm_forward, _lstm_backward),
        Cell("rnn", 1, 1, _tanh_step, _tanh_forward, _tanh_backward),
    )
}


def scan(cell: Cell, gates: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the hidden state after every step (B, T, H), from the input part of the gates (B, T, G) and zero."""
    states: Tensor = Scan.apply(cell, gates, weight, bias)[0]  # type: ignore[no-untyped-call]
    return states


def unrolled(cell: Cell, gates: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same as `scan` in ordinary operations: differentiable to any order, and slow."""
    carried: Tensors = (gates.new_zeros((*gates.shape[:-2], weight.shape[-1])),) * cell.carried
    states = []
    for gate in gates.unbind(-2):
        carried = cell.step(gate, carried, weight, bias)
        states.append(carried[0])
    return torch.stack(states, -2)


def flat_lead(lead: int, *tensors: Tensor) -> list[Tensor]:
    """Join all leading axes into one, K; a single model is a stack of one."""
    return [x.flatten(0, lead - 1) if lead else x.unsqueeze(0) for x in tensors]


def stack_first(info: Any, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> list[Any]:
    """Put the stacked axis first on every tensor argument of a `vmap` rule."""
    return [
        arg
        if not isinstance(arg, Tensor)
        else arg.expand(info.batch_size, *arg.shape)
        if dim is None
        else arg.movedim(dim, 0)
        for arg, dim in zip(args, in_dims, strict=True)
    ]


class Scan(torch.autograd.Function):
    """(cell, gates, weight, bias) -> what the cell carries after every step; leading axes are a stack."""

    @staticmethod
    def forward(cell: Cell, gates: Tensor, weight: Tensor, bias: Tensor) -> Tensors:
        lead = weight.shape[:-2]
        carried = cell.forward(*flat_lead(len(lead), gates, weight, bias))
        return tuple(x.view(*lead, *x.shape[1:]) for x in carried)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        cell, gates, weight, bias = inputs
        ctx.cell = cell
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(gates, weight, bias, *output)

    @staticmethod
    def backward(ctx: Any, *d_output: Tensor) -> tuple[Tensor | None, ...]:
        d_inputs = ScanBackward.apply(ctx.cell, d_output[0], *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return (None, *d_inputs)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensors, int]:
        return Scan.apply(*stack_first(info, in_dims, args)), 0  # type: ignore[no-untyped-call]


class ScanBackward(torch.autograd.Function):
    """(cell, gradient of the states, `Scan`'s inputs and outputs) -> gradients of gates, weight and bias."""

    @staticmethod
    def forward(cell: Cell, d_states: Tensor, gates: Tensor, weight: Tensor, bias: Tensor, *carried: Tensor) -> Tensors:
        lead = weight.shape[:-2]
        d_h, x, w, b, states, *rest = flat_lead(len(lead), d_states, gates, weight, bias, *carried)
        before = _shifted(states)
        d_gates, d_product = cell.backward(d_h, x, w, b, before, states, *rest)
        rows = d_product.flatten(1, 2)
        d_weight = torch.bmm(rows.transpose(1, 2), before.flatten(1, 2))  # all steps in one product
        return d_gates.view(gates.shape), d_weight.view(weight.shape), rows.sum(1).view(bias.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        ctx.cell = inputs[0]
        ctx.carried = len(inputs) - 5
        ctx.save_for_backward(*inputs[1:5])

    @staticmethod
    def backward(ctx: Any, *d_output: Tensor) -> tuple[Tensor | None, ...]:
        def pull(d_states: Tensor, gates: Tensor, weight: Tensor, bias: Tensor) -> Any:
            return torch.func.vjp(partial(unrolled, ctx.cell), gates, weight, bias)[1](d_states)

        # What was carried is a function of gates, weight and bias: its part is in their gradients.
        d_inputs = torch.func.vjp(pull, *ctx.saved_tensors)[1](d_output)
        return (None, *d_inputs, *(None,) * ctx.carried)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensors, int]:
        return ScanBackward.apply(*stack_first(info, in_dims, args)), 0  # type: ignore[no-untyped-call]


# PyTorch asks for these signatures at every call. A stored signature saves the time to make it.
Scan.forward.__signature__ = inspect.signature(Scan.forward)  # type: ignore[attr-defined]
ScanBackward.forward.__signature__ = inspect.signature(ScanBackward.forward)  # type: ignore[attr-defined]
