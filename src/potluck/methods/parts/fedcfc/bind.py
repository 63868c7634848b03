"""The local terms of fBind: they bind the gradient of f to a common direction and magnitude.

Dai and Tan, "FedCFC", section 4.3. With q = ∂l/∂V, V the weights of f's last layer,

    R_d = 1 - <q, CUD> / (‖q‖ ‖CUD‖)    R_m = max(0, ‖q‖ - CUM)    R_a = max(0, v - Υ)
    L = l + λd R_d + λm R_m + λa R_a

R_d and R_m depend on the weights through q alone, so their gradient is the product of l's Hessian with
u = λd ∂R_d/∂q + λm ∂R_m/∂q, put in V's place. `exact` takes it through the backward pass of the backward pass;
`difference` takes it from a second gradient nearby, as a device without second derivatives does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.func import grad, vjp

from potluck.fleet import Params
from potluck.methods.parts import checks
from potluck.methods.parts.fedcfc.cud import SMALLEST

Values = Callable[[Params], tuple[Tensor, Tensor]]  # weights -> loss l, activity Υ
NEAR = 1e-3  # ε ‖u‖ of the difference quotient


@dataclass(frozen=True)
class Terms:
    """The weights of the three terms, and their forms."""

    lambda_d: float = 0.6  # weight of the direction, R_d
    lambda_m: float = 0.2  # weight of the magnitude, R_m
    lambda_a: float = 0.2  # weight of the activity, R_a
    v: float = 1.59  # the target activity
    ra_form: Literal["hinge", "printed"] = "hinge"
    second: Literal["exact", "difference"] = "exact"  # how R_d and R_m are differentiated

    def __post_init__(self) -> None:
        for name in ("lambda_d", "lambda_m", "lambda_a"):
            checks.at_least(self, name, 0)


def by_q(terms: Terms, q: Tensor, cud: Tensor, cum: Tensor) -> Tensor:
    """u = λd ∂R_d/∂q + λm ∂R_m/∂q; 0 without a CUD (zero vector), a CUM (negative) or a q."""
    norm = torch.linalg.vector_norm(q)
    here = norm >= SMALLEST
    q_hat = q / torch.where(here, norm, 1.0)
    length = torch.linalg.vector_norm(cud)
    c_hat = cud / torch.where(length > 0, length, 1.0)
    turn = -(c_hat - (c_hat * q_hat).sum() * q_hat) / torch.where(here, norm, 1.0)
    shrink = q_hat * ((cum >= 0) & (norm > cum))
    u = terms.lambda_d * turn * (length > 0) + terms.lambda_m * shrink
    return torch.where(here, u, 0.0)


def by_activity(terms: Terms, activity: Tensor) -> Tensor:
    """∂R_a/∂Υ: -1 below v, as the paper intends (a hinge); +1 as printed."""
    return -(activity < terms.v).to(activity.dtype) if terms.ra_form == "hinge" else torch.ones_like(activity)


def bound_gradient(
    values: Values, weights: Params, bound: frozenset[str], last: str, terms: Terms, cud: Tensor, cum: Tensor
) -> tuple[Params, Tensor]:
    """∂L for the weights named in `bound`, ∂l for all others; and Υ. `last` is V."""
    total, _, activity = bound_gradients(values, weights, bound, last, terms, cud, cum)
    return total, activity


def bound_gradients(
    values: Values, weights: Params, bound: frozenset[str], last: str, terms: Terms, cud: Tensor, cum: Tensor
) -> tuple[Params, Tensor, Tensor]:
    """The same, with q = ∂l/∂V in the middle."""
    active = terms.lambda_a != 0.0
    curved = terms.lambda_d != 0.0 or terms.lambda_m != 0.0

    def first(w: Params) -> tuple[Params, tuple[Params, Tensor]]:
        (loss, activity), pull = cast(Any, vjp(values, w))
        one, zero = torch.ones_like(loss), torch.zeros_like(loss)
        (gradient,) = pull((one, zero))
        towards = pull((zero, one))[0] if active else {}
        return gradient, (towards, activity)

    if curved and terms.second == "exact":
        # vjp's type says two values; with aux there are three.
        gradient, pull, (towards, activity) = cast(Any, vjp(first, weights, has_aux=True))
        u = by_q(terms, gradient[last].flatten(), cud, cum).view_as(gradient[last])
        (more,) = pull({name: u if name == last else torch.zeros_like(g) for name, g in gradient.items()})
    else:
        gradient, (towards, activity) = first(weights)
        more = {}
        if curved:
            u = by_q(terms, gradient[last].flatten(), cud, cum).view_as(gradient[last])
            more = _difference(values, weights, gradient, last, u)
    slope = terms.lambda_a * by_activity(terms, activity)
    total = {}
    for name, g in gradient.items():
        if name in bound:
            g = g + more[name] if curved else g
            g = g + slope * towards[name] if active else g
        total[name] = g
    return total, gradient[last], activity


def _difference(values: Values, weights: Params, gradient: Params, last: str, u: Tensor) -> Params:
    """(∇l(V + ε u) - ∇l(V)) / ε."""
    length = torch.linalg.vector_norm(u)
    step = torch.where(length > 0, NEAR / torch.where(length > 0, length, 1.0), 1.0)
    there = {**weights, last: weights[last] + step * u}
    nearby = grad(lambda w: values(w)[0])(there)
    return {name: (nearby[name] - g) / step for name, g in gradient.items()}
