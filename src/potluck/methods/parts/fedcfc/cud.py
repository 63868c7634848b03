"""The common direction of many gradients: FedCFC's bound updates aggregator, in closed form and as the paper solves it.

Dai and Tan, "FedCFC", section 4.4. The direction ψ that maximises Σ_c cos(LUD_c, ψ): with unit vectors û_c the sum is
<Σ û_c, ψ/‖ψ‖>, linear in ψ/‖ψ‖, so Σ û_c itself is the one maximiser and no semidefinite program is needed. `sdp`
solves the paper's relaxation, made well-posed (unit diagonal, the gradients' block fixed). It is tight and finds the
same direction.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from potluck.errors import Code, Missing, install_extra

SMALLEST = 1e-12  # a shorter gradient has no direction
CANCELLED = 1e-9  # of |C|: a shorter sum of unit vectors has none either


@dataclass(frozen=True)
class Running:
    """Sums over the gradients so far: O(D), whatever their number. In float64, so that their order does not matter."""

    directions: Tensor  # Σ û_c
    norms: Tensor  # Σ ‖LUD_c‖
    count: int = 0  # |C|
    directed: int = 0  # how many have a direction


@dataclass(frozen=True)
class Aim:
    """What one cluster of clients is bound to."""

    cud: Tensor  # zero: none
    cum: Tensor  # negative: none


def nothing(size: int) -> Running:
    return Running(torch.zeros(size, dtype=torch.float64), torch.zeros((), dtype=torch.float64))


def absorb(running: Running, lud: Tensor, unit: bool = True) -> Running:
    """Add one gradient. A zero gradient counts in the mean norm only. `unit` off sums the gradients as they are."""
    lud = lud.double()
    norm = torch.linalg.vector_norm(lud)
    directed = bool(norm >= SMALLEST)
    step = lud / norm if unit and directed else lud
    return Running(
        running.directions + step if directed else running.directions,
        running.norms + norm,
        running.count + 1,
        running.directed + directed,
    )


def magnitude(running: Running) -> Tensor:
    """CUM = (1/|C|) Σ ‖LUD_c‖; -1 if no client reported."""
    return (running.norms / running.count if running.count else running.norms - 1.0).float()


def direction(running: Running) -> Tensor:
    """CUD, a unit vector; zero (no CUD) if the directions cancel."""
    length = torch.linalg.vector_norm(running.directions)
    if not bool(length > CANCELLED * max(1, running.count)):
        return torch.zeros_like(running.directions, dtype=torch.float32)
    unit: Tensor = running.directions / length
    return unit.float()


def agreement(running: Running) -> float:
    """The mean cosine between the gradients of two clients: (‖Σ û‖² - n) / (n (n - 1))."""
    n = running.directed
    if n < 2:
        return 1.0
    return float((running.directions @ running.directions - n) / (n * (n - 1)))


def sdp(luds: Sequence[Tensor]) -> Tensor:
    """CUD by the relaxation of section 4.4: maximise Σ_c X[c, ψ] over positive semidefinite X with unit diagonal whose
    block of the gradients is their cosines; ψ from its inner products with the gradients."""
    units = [
        lud.double() / torch.linalg.vector_norm(lud.double()) for lud in luds if torch.linalg.norm(lud) >= SMALLEST
    ]
    if not units:
        return torch.zeros_like(luds[0])
    solver = _cvxpy()
    u = torch.stack(units)
    gram = (u @ u.T).numpy()
    n = len(units)
    X = solver.Variable((n + 1, n + 1), PSD=True)
    problem = solver.Problem(solver.Maximize(solver.sum(X[:n, n])), [X[:n, :n] == gram, X[n, n] == 1.0])
    problem.solve(solver=solver.SCS, eps=1e-9, max_iters=20_000)
    with_psi = torch.from_numpy(X.value[:n, n].copy())
    psi: Tensor = torch.linalg.lstsq(u, with_psi.unsqueeze(1), driver="gelsd").solution.squeeze(1)
    length: Tensor = torch.linalg.vector_norm(psi)
    if not bool(length > CANCELLED) or not bool(psi @ u.sum(0) > 0):
        return torch.zeros_like(luds[0])
    return psi.div(length).float()


def _cvxpy() -> Any:
    try:
        return importlib.import_module("cvxpy")
    except ImportError:
        raise Missing(
            Code.EXTRA, f"method.cud: 'sdp' needs CVXPY and SCS. Install them: `{install_extra('sdp')}`."
        ) from None
