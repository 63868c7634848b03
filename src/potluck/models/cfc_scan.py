"""A sequence through a closed-form continuous-time cell, as one operation on a stack of models, differentiable twice.

The cell is that of Hasani et al., "Closed-form continuous-time neural networks", Nature Machine Intelligence 2022, as
FedCFC uses it. Here all activations are tanh: the scaled tanh of the backbone and the logistic gate are the same
function once their factors are folded into the weights, which `potluck.models.cfc` does. One step is then

    z = tanh(u + S x)    q = tanh(A z + a)    r = D [q; z] + d    w = tanh(r), r's first third times tau
    x' = (1 + w_f)/2 w_g + w_h                        or, gated, (1 + w_f)/2 w_g + (1 - w_f)/2 w_h

with the three heads side by side in A, D and r (a head of one layer reads z). Three loops over time are all there is:
`_states` forward, `_pull` for adjoints, `_push` for tangents; everything else is done for all steps at once. With
y -> F'(θ)ᵀ y the backward pass, its own backward for w is F'(θ) w (a push) and the pull of that push, so a gradient
of a gradient costs three loops instead of thousands of small operations. `unrolled` is the same in ordinary ones.

Axes: K stacked models, T time steps, B batch, H backbone, J first layers of the heads together, N hidden units.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from potluck.models.scan import flat_lead, stack_first

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Kind:
    gated: bool = False
    timed: bool = False  # False: tau is 1 everywhere and not looked at


@dataclass(frozen=True)
class _Cell:
    """Weights of a stack, and what they come to on a sequence; K first, then T and B where they have them."""

    kind: Kind
    tau: Tensor  # KTB1
    S: Tensor  # KHN
    A: Tensor  # KJH
    D: Tensor  # K(3N)(J[+H])
    before: Tensor  # KTBN, the state before each step
    z: Tensor
    q: Tensor
    w: Tensor  # KTB3N

    @property
    def parts(self) -> Tensors:
        return self.w.unbind(3)

    @property
    def features(self) -> Tensor:
        return _features(self.q, self.z, self.D)

    @property
    def slope(self) -> Tensor:
        """d x' / d r of the three heads."""
        f, g, h = self.parts
        by_w = torch.stack((_spread(self.kind, g, h), 0.5 + 0.5 * f, _share_h(self.kind, f)), 3)
        return by_w.mul_(self.bend)

    @property
    def bend(self) -> Tensor:
        """d w / d r."""
        out = 1 - self.w * self.w
        if self.kind.timed:
            out[..., 0, :].mul_(self.tau)
        return out


def _spread(kind: Kind, g: Tensor, h: Tensor) -> Tensor:
    """d x' / d w_f."""
    return 0.5 * (g - h) if kind.gated else 0.5 * g


def _share_h(kind: Kind, f: Tensor) -> Tensor:
    """d x' / d w_h."""
    return 0.5 - 0.5 * f if kind.gated else torch.ones_like(f)


def _features(q: Tensor, z: Tensor, D: Tensor) -> Tensor:
    """What the heads' last layers read."""
    return q if D.shape[-1] == q.shape[-1] else torch.cat((q, z), -1)


def _heads(r: Tensor) -> Tensor:
    """(..., 3N) as (..., 3, N)."""
    return r.view(*r.shape[:-1], 3, r.shape[-1] // 3)


def _times(steps: Tensor, weight: Tensor) -> Tensor:
    """(K, T, B, m) times (K, m, n), all steps in one product."""
    return torch.bmm(steps.flatten(1, 2), weight).view(*steps.shape[:3], -1)


def _outer(left: Tensor, right: Tensor) -> Tensor:
    """The sum over steps and batch of left rightᵀ: (K, m, n)."""
    return torch.bmm(left.flatten(1, 2).transpose(1, 2), right.flatten(1, 2))


def _summed(steps: Tensor) -> Tensor:
    return steps.flatten(1, 2).sum(1)


def _states(kind: Kind, u: Tensor, tau: Tensor, S: Tensor, A: Tensor, a: Tensor, D: Tensor, d: Tensor) -> Tensor:
    """The state after every step, KTBN."""
    S_t, A_t, D_t = (weight.transpose(1, 2).contiguous() for weight in (S, A, D))
    a, d = a.unsqueeze(1), d.unsqueeze(1)
    size, plain = S.shape[-1], D.shape[-1] == A.shape[-2]
    z, q = torch.empty_like(u[:, 0]), u.new_empty((u.shape[0], u.shape[2], A.shape[-2]))
    r = u.new_empty((u.shape[0], u.shape[2], 3 * size))
    f, g, h = r.chunk(3, -1)
    x, out = u.new_zeros((u.shape[0], u.shape[2], size)), []
    clock = tau.unbind(1) if kind.timed else ()
    for t, u_t in enumerate(u.unbind(1)):
        torch.baddbmm(u_t, x, S_t, out=z).tanh_()
        torch.baddbmm(a, z, A_t, out=q).tanh_()
        torch.baddbmm(d, q if plain else torch.cat((q, z), -1), D_t, out=r)
        if kind.timed:
            f.mul_(clock[t])
        r.tanh_()
        if kind.gated:
            x = torch.add(g, h).addcmul_(f, g.sub_(h)).mul_(0.5)
        else:
            x = torch.add(h, g, alpha=0.5).addcmul_(f, g, value=0.5)
        out.append(x)
    return torch.stack(out, 1)


def _known(kind: Kind, x: Tensor, u: Tensor, tau: Tensor, *weights: Tensor) -> _Cell:
    """All that the steps computed, anew from the states, in one product each."""
    S, A, a, D, d = weights
    before = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
    z = _times(before, S.transpose(1, 2)).add_(u).tanh_()
    q = _times(z, A.transpose(1, 2)).add_(a[:, None, None]).tanh_()
    r = _heads(_times(_features(q, z, D), D.transpose(1, 2)).add_(d[:, None, None]))
    if kind.timed:
        r[..., 0, :].mul_(tau)
    return _Cell(kind, tau, S, A, D, before, z, q, r.tanh_())


def _pull(
    cell: _Cell, d_x: Tensor, r: Tensor | None = None, q: Tensor | None = None, z: Tensor | None = None
) -> Tensors:
    """Adjoints of x, r and the arguments of q and z, from those that arrive from outside at x, r, q and z."""
    J = cell.q.shape[-1]
    D_q, D_z = cell.D[..., :J].contiguous(), cell.D[..., J:].contiguous()
    slopes = (cell.slope, 1 - cell.q * cell.q, 1 - cell.z * cell.z)
    steps = list(zip(*(x.unbind(1) for x in (d_x, *slopes)), strict=True))
    more = None if r is None or q is None or z is None else list(zip(*(x.unbind(1) for x in (r, q, z)), strict=True))
    later = torch.zeros_like(cell.z[:, 0])
    out: list[Tensors] = []
    for t in range(len(steps) - 1, -1, -1):
        own, slope, q_slope, z_slope = steps[t]
        e = torch.baddbmm(own, later, cell.S)
        if more is None:
            by_r = e.unsqueeze(2) * slope
            flat = by_r.flatten(2)
            by_q = torch.bmm(flat, D_q).mul_(q_slope)
            later = torch.bmm(by_q, cell.A)
        else:
            to_r, to_q, to_z = more[t]
            by_r = torch.addcmul(to_r, e.unsqueeze(2), slope)
            flat = by_r.flatten(2)
            by_q = torch.baddbmm(to_q, flat, D_q).mul_(q_slope)
            later = torch.baddbmm(to_z, by_q, cell.A)
        if D_z.shape[-1]:
            later.baddbmm_(flat, D_z)
        later.mul_(z_slope)
        out.append((e, by_r, by_q, later))
    return tuple(torch.stack(part[::-1], 1) for part in zip(*out, strict=True))


def _push(cell: _Cell, z: Tensor, q: Tensor, r: Tensor) -> Tensors:
    """Tangents of x, of the arguments of z and q, and of r, from what the weights' tangents add at each."""
    S_t, A_t, D_t = (weight.transpose(1, 2).contiguous() for weight in (cell.S, cell.A, cell.D))
    slopes = (cell.slope, 1 - cell.q * cell.q, 1 - cell.z * cell.z)
    plain = cell.D.shape[-1] == cell.q.shape[-1]
    x = torch.zeros_like(cell.before[:, 0])
    out: list[Tensors] = []
    for own_z, own_q, own_r, slope, q_slope, z_slope in zip(*(s.unbind(1) for s in (z, q, r, *slopes)), strict=True):
        n = torch.baddbmm(own_z, x, S_t)
        by_z = n * z_slope
        m = torch.baddbmm(own_q, by_z, A_t)
        by_q = m * q_slope
        by_r = torch.baddbmm(own_r, by_q if plain else torch.cat((by_q, by_z), -1), D_t)
        x = (_heads(by_r) * slope).sum(2)
        out.append((x, n, m, by_r))
    return tuple(torch.stack(part, 1) for part in zip(*out, strict=True))


def _gradients(cell: _Cell, at_r: Tensor, at_q: Tensor, at_z: Tensor) -> Tensors:
    """Gradients of u, S, A, a, D and d from the adjoints of r and the arguments of q and z."""
    flat = at_r.flatten(3)
    return (
        at_z,
        _outer(at_z, cell.before),
        _outer(at_q, cell.z),
        _summed(at_q),
        _outer(flat, cell.features),
        _summed(flat),
    )


def _double(cell: _Cell, y: Tensor, dots: Tensors) -> Tensors:
    """F'(θ) w, and the gradient of <F'(θ) w, y> by θ, for w the tangents of u, S, A, a, D, d."""
    u_, S_, A_, a_, D_, d_ = dots
    J = cell.q.shape[-1]
    x, n, m, r = _push(
        cell,
        _times(cell.before, S_.transpose(1, 2)).add_(u_),
        _times(cell.z, A_.transpose(1, 2)).add_(a_[:, None, None]),
        _times(cell.features, D_.transpose(1, 2)).add_(d_[:, None, None]),
    )
    x_before = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
    z_dot, q_dot = n * (1 - cell.z * cell.z), m * (1 - cell.q * cell.q)
    # Adjoints of the tangents: the ordinary backward pass of y.
    e, at_r, at_q, at_z = _pull(cell, y)
    flat = at_r.flatten(3)
    before_q = _times(flat, cell.D[..., :J])  # adjoint of q's tangent before its own slope
    before_z = _times(at_q, cell.A)
    if cell.D.shape[-1] > J:
        before_z.add_(_times(flat, cell.D[..., J:]))
    # What the tangents' arithmetic sends back to the values it used.
    to_q = _times(flat, D_[..., :J]).sub_(2 * cell.q * m * before_q)
    to_z = _times(at_q, A_).sub_(2 * cell.z * n * before_z)
    if cell.D.shape[-1] > J:
        to_z.add_(_times(flat, D_[..., J:]))
    to_before = _times(at_z, S_)
    to_x = torch.cat((to_before[:, 1:], torch.zeros_like(to_before[:, :1])), 1)
    to_r = _by_value(cell, e, _heads(r)).mul_(cell.bend)
    _, by_r, by_q, by_z = _pull(cell, to_x, to_r, to_q, to_z)
    by_u, by_S, by_A, by_a, by_D, by_d = _gradients(cell, by_r, by_q, by_z)
    by_S.add_(_outer(at_z, x_before))
    by_A.add_(_outer(at_q, z_dot))
    by_D.add_(_outer(flat, _features(q_dot, z_dot, cell.D)))
    return x, by_u, by_S, by_A, by_a, by_D, by_d


def _by_value(cell: _Cell, e: Tensor, r_dot: Tensor) -> Tensor:
    """d <e, slope · r_dot> / d w."""
    f, g, h = cell.parts
    f_dot, g_dot, h_dot = ((e.unsqueeze(3) * r_dot) * _clock(cell)).unbind(3)
    f_bend, g_bend, h_bend = 1 - f * f, 1 - g * g, 1 - h * h
    by_f = -2 * f * _spread(cell.kind, g, h) * f_dot + 0.5 * g_bend * g_dot
    by_g = 0.5 * f_bend * f_dot - g * (1 + f) * g_dot
    if cell.kind.gated:
        by_f = by_f - 0.5 * h_bend * h_dot
        by_h = -0.5 * f_bend * f_dot - h * (1 - f) * h_dot
    else:
        by_h = -2 * h * h_dot
    return torch.stack((by_f, by_g, by_h), 3)


def _clock(cell: _Cell) -> Tensor | float:
    """tau for f, 1 for g and h."""
    if not cell.kind.timed:
        return 1.0
    one = torch.ones_like(cell.tau)
    return torch.stack((cell.tau, one, one), 3)


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
        f, g, h = (_features(q, z, D) @ D.transpose(-1, -2) + d.unsqueeze(-2)).chunk(3, -1)
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
        out = _states(kind, *_in(len(lead), u, tau, S, A, a, D, d)).transpose(1, 2)
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
        cell = _known(kind, x, *_in(len(lead), u, tau, S, A, a, D, d))
        return _out(lead, _gradients(cell, *_pull(cell, y)[1:]))

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
    """(kind, six tangents, `CfcBackward`'s inputs) -> gradients of those inputs; here the line ends."""

    @staticmethod
    def forward(kind: Kind, *args: Tensor) -> Tensors:
        u_, S_, A_, a_, D_, d_, d_x, u, tau, S, A, a, D, d, states = args
        lead = S.shape[:-2]
        y, x, u_ = _time_first(len(lead), d_x, states, u_)
        cell = _known(kind, x, *_in(len(lead), u, tau, S, A, a, D, d))
        d_x, by_u, *rest = _double(cell, y, (u_, *flat_lead(len(lead), S_, A_, a_, D_, d_)))
        return (*_out(lead, (d_x,)), *_out(lead, (by_u, *rest)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError("cfc: third derivatives are not there")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Tensors, tuple[int, ...]]:
        return CfcDouble.apply(*stack_first(info, in_dims, args)), (0,) * 7  # type: ignore[no-untyped-call]


def _out(lead: torch.Size, values: Tensors) -> Tensors:
    """The sequence, which is first, back to (B, T), and the stacked axis to what it was."""
    first, *rest = values
    back = (first.transpose(1, 2), *rest)
    return tuple(x.reshape(*lead, *x.shape[1:]) for x in back)


# PyTorch asks for these signatures at every call; a stored one is found at once.
CfcScan.forward.__signature__ = inspect.signature(CfcScan.forward)  # type: ignore[attr-defined]
CfcBackward.forward.__signature__ = inspect.signature(CfcBackward.forward)  # type: ignore[attr-defined]
CfcDouble.forward.__signature__ = inspect.signature(CfcDouble.forward)  # type: ignore[attr-defined]
