"""The loops over time of a closed-form continuous-time cell, for a stack of models.

The cell is that of Hasani et al., "Closed-form continuous-time neural networks", Nature Machine Intelligence 2022, as
FedCFC uses it. All activations are tanh here. `potluck.models.cfc` folds the factors of the scaled tanh of the backbone
and of the logistic gate into the weights. One step is then

    z = tanh(u + S x)    q = tanh(A z + a)    r = D [q; z] + d    w = tanh(r), r's first third times tau
    x' = (1 + w_f)/2 w_g + w_h                        or, gated, (1 + w_f)/2 w_g + (1 - w_f)/2 w_h

with the three heads stacked in A, D and r (a head of one layer reads z). There are three loops over time: `states_of`
forward, `pull` for adjoints, `push` for tangents. Everything else is done for all steps at once.

Axes: K stacked models, T time steps, B batch, H backbone, J first layers of the heads together, N hidden units.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Kind:
    gated: bool = False
    timed: bool = False  # False: tau is 1 everywhere and is not used


@dataclass(frozen=True)
class Cell:
    """The weights of a stack and the values they give on a sequence; axis K first, then T and B."""

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
        return features_of(self.q, self.z, self.D)

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


def features_of(q: Tensor, z: Tensor, D: Tensor) -> Tensor:
    """Return the input of the heads' last layers."""
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


def states_of(kind: Kind, u: Tensor, tau: Tensor, S: Tensor, A: Tensor, a: Tensor, D: Tensor, d: Tensor) -> Tensor:
    """Return the state after every step, KTBN."""
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


def cell_of(kind: Kind, x: Tensor, u: Tensor, tau: Tensor, *weights: Tensor) -> Cell:
    """Compute the values of all steps again from the states, with one product each."""
    S, A, a, D, d = weights
    before = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
    z = _times(before, S.transpose(1, 2)).add_(u).tanh_()
    q = _times(z, A.transpose(1, 2)).add_(a[:, None, None]).tanh_()
    r = _heads(_times(features_of(q, z, D), D.transpose(1, 2)).add_(d[:, None, None]))
    if kind.timed:
        r[..., 0, :].mul_(tau)
    return Cell(kind, tau, S, A, D, before, z, q, r.tanh_())


def pull(cell: Cell, d_x: Tensor, r: Tensor | None = None, q: Tensor | None = None, z: Tensor | None = None) -> Tensors:
    """Return the adjoints of x, r and the arguments of q and z, from outside adjoints at x, r, q and z."""
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


def push(cell: Cell, z: Tensor, q: Tensor, r: Tensor) -> Tensors:
    """Return the tangents of x, of the arguments of z and q, and of r, from the tangents of the weights."""
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


def gradients(cell: Cell, at_r: Tensor, at_q: Tensor, at_z: Tensor) -> Tensors:
    """Return the gradients of u, S, A, a, D and d from the adjoints of r and the arguments of q and z."""
    flat = at_r.flatten(3)
    return (
        at_z,
        _outer(at_z, cell.before),
        _outer(at_q, cell.z),
        _summed(at_q),
        _outer(flat, cell.features),
        _summed(flat),
    )


def second_order(cell: Cell, y: Tensor, dots: Tensors) -> Tensors:
    """Return F'(θ) w, and the gradient of <F'(θ) w, y> by θ, for w the tangents of u, S, A, a, D, d."""
    u_, S_, A_, a_, D_, d_ = dots
    J = cell.q.shape[-1]
    x, n, m, r = push(
        cell,
        _times(cell.before, S_.transpose(1, 2)).add_(u_),
        _times(cell.z, A_.transpose(1, 2)).add_(a_[:, None, None]),
        _times(cell.features, D_.transpose(1, 2)).add_(d_[:, None, None]),
    )
    x_before = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
    z_dot, q_dot = n * (1 - cell.z * cell.z), m * (1 - cell.q * cell.q)
    # Adjoints of the tangents: the ordinary backward pass of y.
    e, at_r, at_q, at_z = pull(cell, y)
    flat = at_r.flatten(3)
    before_q = _times(flat, cell.D[..., :J])  # adjoint of q's tangent before its own slope
    before_z = _times(at_q, cell.A)
    if cell.D.shape[-1] > J:
        before_z.add_(_times(flat, cell.D[..., J:]))
    # The gradients of the tangents' arithmetic for the values it used.
    to_q = _times(flat, D_[..., :J]).sub_(2 * cell.q * m * before_q)
    to_z = _times(at_q, A_).sub_(2 * cell.z * n * before_z)
    if cell.D.shape[-1] > J:
        to_z.add_(_times(flat, D_[..., J:]))
    to_before = _times(at_z, S_)
    to_x = torch.cat((to_before[:, 1:], torch.zeros_like(to_before[:, :1])), 1)
    to_r = _by_value(cell, e, _heads(r)).mul_(cell.bend)
    _, by_r, by_q, by_z = pull(cell, to_x, to_r, to_q, to_z)
    by_u, by_S, by_A, by_a, by_D, by_d = gradients(cell, by_r, by_q, by_z)
    by_S.add_(_outer(at_z, x_before))
    by_A.add_(_outer(at_q, z_dot))
    by_D.add_(_outer(flat, features_of(q_dot, z_dot, cell.D)))
    return x, by_u, by_S, by_A, by_a, by_D, by_d


def _by_value(cell: Cell, e: Tensor, r_dot: Tensor) -> Tensor:
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


def _clock(cell: Cell) -> Tensor | float:
    """tau for f, 1 for g and h."""
    if not cell.kind.timed:
        return 1.0
    one = torch.ones_like(cell.tau)
    return torch.stack((cell.tau, one, one), 3)
