"""What pulls the models of a cluster together: Z in closed form (mm), or with the duals of section 5.2 (admm)."""

from __future__ import annotations

import torch
from torch import Tensor


def mm(f: Tensor, w: Tensor, beta: float) -> Tensor:
    return (2.0 * beta * (f @ f.T)) @ w  # F F^T first: M^3 instead of a second M^2 D


def admm(f: Tensor, w: Tensor, omega: Tensor | None, beta: float, rho: float) -> tuple[Tensor, Tensor, Tensor]:
    """Section 5.2. For a new F, omega is None: the duals start at their fixed point Omega = F^T W."""
    a = f.T @ w
    # Omega+ = (rho A + U) / (rho - 2 beta); in place, because a copy of W is large with a thousand clients
    step = rho / (rho - 2.0 * beta)
    omega = a.clone() if omega is None else torch.add(a, omega, alpha=-2.0 * beta / rho).mul_(step)
    lam = rho / 2.0 * (f * f).sum(1)
    a.mul_(-rho).add_(omega, alpha=rho + 2.0 * beta)  # rho Omega - U - rho A
    return (2.0 * lam[:, None] * w).addmm_(f, a), lam, omega
