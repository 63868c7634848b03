"""The recurrent scan: a sequence through a GRU, LSTM or tanh cell as one operation on a stack of models.

Cells follow PyTorch's equations (GRU: Cho et al., EMNLP 2014, with the reset gate behind the product; LSTM:
Hochreiter and Schmidhuber, 1997, with a forget gate). Tiny cells are all overhead: a time step costs what
its operations cost to start. So `Scan` runs the kernels below on the stacked tensors themselves, and
`torch.func.vmap(torch.func.grad(...))` reaches them through the `vmap` rules instead of operation by
operation. Going forward the input part of the gates is already computed for all steps and each product
accumulates in place; going backward everything that does not depend on the arriving gradient is computed for
all steps at once, which leaves three operations per step for the GRU. A gradient of a gradient is taken
through `unrolled`, ordinary operations of any order.

Axes: T time steps, K stacked models, B batch, H hidden units, G = (number of gates) * H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

Carry = tuple[Tensor, ...]  # the hidden state first


@dataclass(frozen=True)
class Cell:
    """One kind of cell. Kernels are time-major; `forward` owns its first argument and overwrites it."""

    name: str
    gates: int
    states: int  # tensors carried from step to step
    step: Callable[
        [Tensor, Carry, Tensor, Tensor], Carry
    ]  # (gates_BG, carry, weight, bias), ordinary operations
    forward: Callable[
        [Tensor, Tensor, Tensor], Carry
    ]  # (gates_TKBG, weight_KGH, bias_K1G) -> states_TKBH, saved
    backward: Callable[
        ..., Carry
    ]  # (d_states_TKBH, weight_KGH, before_TKBH, states, saved) -> d_gates, d_products


def _gru_step(gates: Tensor, carry: Carry, weight: Tensor, bias: Tensor) -> Carry:
    (h,) = carry
    product = h @ weight.transpose(-1, -2) + bias.unsqueeze(-2)
    in_r, in_z, in_n = gates.chunk(3, -1)
    at_r, at_z, at_n = product.chunk(3, -1)
    r, z = torch.sigmoid(in_r + at_r), torch.sigmoid(in_z + at_z)
    n = torch.tanh(in_n + r * at_n)
    return (n + z * (h - n),)


def _gru_forward(gates: Tensor, weight: Tensor, bias: Tensor) -> Carry:
    size = weight.shape[-1]
    into_n = gates[..., 2 * size :].clone()
    gates[..., : 2 * size] += bias[..., : 2 * size]
    gates[..., 2 * size :] = bias[..., 2 * size :]  # from here on: r, z and the product that r multiplies
    n_all = torch.empty_like(into_n)
    h_all = torch.empty_like(into_n)
    recurrent = weight.transpose(1, 2).contiguous()
    r_all, z_all, at_n_all = gates.chunk(3, -1)
    h = torch.zeros_like(into_n[0])
    steps = (gates, gates[..., : 2 * size], r_all, z_all, at_n_all, into_n, n_all, h_all)
    for gate, rz, r, z, at_n, in_n, n, after in zip(*(s.unbind(0) for s in steps), strict=True):
        gate.baddbmm_(h, recurrent)
        rz.sigmoid_()
        torch.addcmul(in_n, r, at_n, out=n).tanh_()
        h = torch.lerp(n, h, z, out=after)
    return h_all, gates, n_all


def _gru_backward(d_h: Tensor, weight: Tensor, before: Tensor, h: Tensor, gates: Tensor, n: Tensor) -> Carry:
    size = weight.shape[-1]
    r, z, at_n = gates.chunk(3, -1)
    to_n = (1 - z).mul_(1 - n * n)  # d n's argument / d h
    slope = gates.new_empty((*gates.shape[:-1], 3, size))  # d (r, z, product) / d h
    torch.mul(to_n, at_n, out=slope[..., 0, :]).mul_(r).mul_(1 - r)
    torch.sub(before, n, out=slope[..., 1, :]).mul_(z).mul_(1 - z)
    torch.mul(to_n, r, out=slope[..., 2, :])
    d_all = torch.empty_like(n)
    d_all[-1] = d_h[-1]
    d_product = torch.empty_like(slope)
    d_flat = d_product.flatten(-2)
    wide = d_all.unsqueeze(-2)
    steps = (d_all[1:], wide[1:], slope[1:], d_product[1:], d_flat[1:], z[1:], d_h[:-1], d_all[:-1])
    for d, d_wide, a, out, flat, keep, own, d_before in reversed(
        list(zip(*(s.unbind(0) for s in steps), strict=True))
    ):
        torch.mul(d_wide, a, out=out)
        torch.addcmul(own, d, keep, out=d_before).baddbmm_(flat, weight)
    torch.mul(wide[0], slope[0], out=d_product[0])
    d_gates = d_flat.clone()
    torch.mul(d_all, to_n, out=d_gates[..., 2 * size :])
    return d_gates, d_flat


def _lstm_step(gates: Tensor, carry: Carry, weight: Tensor, bias: Tensor) -> Carry:
    h, c = carry
    i, f, g, o = (gates + h @ weight.transpose(-1, -2) + bias.unsqueeze(-2)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _lstm_forward(gates: Tensor, weight: Tensor, bias: Tensor) -> Carry:
    size = weight.shape[-1]
    gates += bias
    recurrent = weight.transpose(1, 2).contiguous()
    i_all, f_all, g_all, o_all = gates.chunk(4, -1)
    c_all, h_all = (
        torch.empty_like(i_all, memory_format=torch.contiguous_format),
        gates.new_empty(i_all.shape),
    )
    h, c = torch.zeros_like(c_all[0]), torch.zeros_like(c_all[0])
    steps = (gates, gates[..., : 2 * size], i_all, f_all, g_all, o_all, c_all, h_all)
    for gate, input_forget, i, f, g, o, c_after, h_after in zip(*(s.unbind(0) for s in steps), strict=True):
        gate.baddbmm_(h, recurrent)
        input_forget.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        c = torch.mul(f, c, out=c_after).addcmul_(i, g)
        h = torch.tanh(c, out=h_after).mul_(o)
    return h_all, gates, c_all


def _lstm_backward(d_h: Tensor, weight: Tensor, before: Tensor, h: Tensor, gates: Tensor, c: Tensor) -> Carry:
    size = weight.shape[-1]
    i, f, g, o = gates.chunk(4, -1)
    tanh_c = torch.tanh(c)
    c_before = torch.cat((torch.zeros_like(c[:1]), c[:-1]))
    to_c = (1 - tanh_c * tanh_c).mul_(o)  # d c / d h
    to_o = tanh_c * o * (1 - o)  # d o's argument / d h
    slope = gates.new_empty((*gates.shape[:-1], 3, size))  # d the arguments of (i, f, g) / d c
    torch.mul(g, i, out=slope[..., 0, :]).mul_(1 - i)
    torch.mul(c_before, f, out=slope[..., 1, :]).mul_(1 - f)
    torch.mul(i, 1 - g * g, out=slope[..., 2, :])
    d_gates = torch.empty_like(gates)
    d_cell = d_gates[..., : 3 * size].view(slope.shape)
    d_out = d_gates[..., 3 * size :]
    d, d_c = d_h[-1], torch.zeros_like(c[0])
    steps = (to_c, to_o, slope, f, d_gates, d_cell, d_out, torch.cat((torch.zeros_like(d_h[:1]), d_h[:-1])))
    for dc_dh, do_dh, a, keep, flat, cell, out, own in reversed(
        list(zip(*(s.unbind(0) for s in steps), strict=True))
    ):
        d_c.addcmul_(d, dc_dh)
        torch.mul(d_c.unsqueeze(-2), a, out=cell)
        torch.mul(d, do_dh, out=out)
        d_c.mul_(keep)
        d = own.baddbmm_(flat, weight)
    return d_gates, d_gates


def _tanh_step(gates: Tensor, carry: Carry, weight: Tensor, bias: Tensor) -> Carry:
    (h,) = carry
    return (torch.tanh(gates + h @ weight.transpose(-1, -2) + bias.unsqueeze(-2)),)


def _tanh_forward(gates: Tensor, weight: Tensor, bias: Tensor) -> Carry:
    gates += bias
    recurrent = weight.transpose(1, 2).contiguous()
    h = torch.zeros_like(gates[0])
    for gate in gates.unbind(0):
        h = gate.baddbmm_(h, recurrent).tanh_()
    return (gates,)


def _tanh_backward(d_h: Tensor, weight: Tensor, before: Tensor, h: Tensor) -> Carry:
    d_gates = 1 - h * h
    d = d_h[-1]
    for slope, own in zip(
        reversed(d_gates.unbind(0)), reversed((torch.zeros_like(d), *d_h[:-1].unbind(0))), strict=True
    ):
        d = torch.baddbmm(own, slope.mul_(d), weight)
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
    """The hidden state after every step (B, T, H), from the input part of the gates (B, T, G) and zero."""
    states: Tensor = Scan.apply(cell, gates, weight, bias)[0]  # type: ignore[no-untyped-call]
    return states


def unrolled(cell: Cell, gates: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same as `scan` in ordinary operations: differentiable to any order, and slow."""
    carry: Carry = (gates.new_zeros((*gates.shape[:-2], weight.shape[-1])),) * cell.states
    states = []
    for gate in gates.unbind(-2):
        carry = cell.step(gate, carry, weight, bias)
        states.append(carry[0])
    return torch.stack(states, -2)


def _time_major(x: Tensor, lead: int) -> Tensor:
    """(*lead, B, T, n) -> (T, K, B, n), a view wherever the memory allows it."""
    return x.flatten(0, lead - 1).permute(2, 0, 1, 3) if lead else x.permute(1, 0, 2).unsqueeze(1)


def _batch_major(x: Tensor, lead: torch.Size) -> Tensor:
    return (
        x.permute(1, 2, 0, 3).view(*lead, x.shape[2], x.shape[0], x.shape[3])
        if lead
        else x.squeeze(1).permute(1, 0, 2)
    )


def _stack(info: Any, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> list[Any]:
    """Arguments of a `vmap` rule with the stacked axis first on every tensor."""
    return [
        arg
        if not isinstance(arg, Tensor)
        else arg.expand(info.batch_size, *arg.shape)
        if dim is None
        else arg.movedim(dim, 0)
        for arg, dim in zip(args, in_dims, strict=True)
    ]


class Scan(torch.autograd.Function):
    """(cell, gates, weight, bias) -> (states, what the backward kernel needs); leading axes are a stack."""

    @staticmethod
    def forward(cell: Cell, gates: Tensor, weight: Tensor, bias: Tensor) -> Carry:
        lead = weight.shape[:-2]
        own = _time_major(gates, len(lead)).clone(memory_format=torch.contiguous_format)
        size, width = weight.shape[-1], weight.shape[-2]
        out = cell.forward(own, weight.reshape(-1, width, size), bias.reshape(-1, 1, width))
        return tuple(_batch_major(x, lead) for x in out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Carry) -> None:
        cell, gates, weight, bias = inputs
        ctx.cell = cell
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(gates, weight, bias, *output)

    @staticmethod
    def backward(ctx: Any, *d_output: Tensor) -> tuple[Tensor | None, ...]:
        d_inputs = ScanBackward.apply(ctx.cell, d_output[0], *ctx.saved_tensors)  # type: ignore[no-untyped-call]
        return (None, *d_inputs)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Carry, int]:
        return Scan.apply(*_stack(info, in_dims, args)), 0  # type: ignore[no-untyped-call]


class ScanBackward(torch.autograd.Function):
    """(cell, gradient of the states, `Scan`'s inputs and outputs) -> gradients of gates, weight and bias."""

    @staticmethod
    def forward(
        cell: Cell,
        d_states: Tensor,
        gates: Tensor,
        weight: Tensor,
        bias: Tensor,
        states: Tensor,
        *saved: Tensor,
    ) -> Carry:
        lead = weight.shape[:-2]
        width, size = weight.shape[-2:]
        h, *rest = (_time_major(x, len(lead)) for x in (states, *saved))
        before = torch.cat((torch.zeros_like(h[:1]), h[:-1]))
        d_gates, d_product = cell.backward(
            _time_major(d_states, len(lead)), weight.reshape(-1, width, size), before, h, *rest
        )
        # K x G x (T B) times K x (T B) x H: the weight's gradient of all steps in one product
        rows = d_product.permute(1, 3, 0, 2).flatten(2)
        d_weight = torch.bmm(rows, before.permute(1, 0, 2, 3).flatten(1, 2))
        d_bias = rows.sum(-1)
        return _batch_major(d_gates, lead), d_weight.reshape(weight.shape), d_bias.reshape(bias.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Carry) -> None:
        ctx.cell = inputs[0]
        ctx.unused = len(inputs) - 5
        ctx.save_for_backward(*inputs[1:5])

    @staticmethod
    def backward(ctx: Any, *d_output: Tensor) -> tuple[Tensor | None, ...]:
        def pull(d_states: Tensor, gates: Tensor, weight: Tensor, bias: Tensor) -> Any:
            return torch.func.vjp(partial(unrolled, ctx.cell), gates, weight, bias)[1](d_states)

        # The saved tensors are functions of gates, weight and bias: their part is in these gradients.
        d_inputs = torch.func.vjp(pull, *ctx.saved_tensors)[1](d_output)
        return (None, *d_inputs, *(None,) * ctx.unused)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Carry, int]:
        return ScanBackward.apply(*_stack(info, in_dims, args)), 0  # type: ignore[no-untyped-call]
