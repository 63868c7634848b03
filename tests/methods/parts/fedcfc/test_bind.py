"""The bound gradient on the client: section 4.3 of FedCFC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad

from potluck import keys
from potluck.fleet import Params
from potluck.methods.parts.fedcfc.bind import Terms, bound_gradient, by_q
from potluck.models import Model, build
from potluck.models.cfc import logits_and_activity

SMALL: dict[str, Any] = {"hidden": 3, "backbone": 5, "head": 4}
D = 3 * 4
FULL = Terms(0.6, 0.2, 0.2, 1.59, "hinge", "exact")
LAST = "f.2.weight"


def problem(**settings: Any) -> tuple[Model, Params, Callable[[Params], tuple[Tensor, Tensor]], Tensor, Tensor]:
    """A small network in float64, a loss on it, and a CUD and CUM that bind."""
    model = build("cfc", (6, 2), 3, {**SMALL, **settings})
    weights = {name: 1.5 * value.double() for name, value in model.init(2).items()}
    x, y = keys.normal(keys.key("x"), (8, 6, 2)).double(), torch.arange(8) % 3
    weight = torch.ones(8, dtype=torch.float64)

    def values(w: Params) -> tuple[Tensor, Tensor]:
        logits, activity = logits_and_activity(model, w, x, weight=weight)
        return torch.nn.functional.cross_entropy(logits, y), activity

    norm = grad(lambda w: values(w)[0])(weights)[LAST].norm()
    return model, weights, values, keys.normal(keys.key("cud"), (D,)).double(), 0.5 * norm


def in_f(weights: Params) -> frozenset[str]:
    return frozenset(name for name in weights if name.startswith("f."))


def objective(values: Any, w: Params, terms: Terms, cud_: Tensor, cum: Tensor, detached: bool = False) -> Tensor:
    """L as it is printed, with q a function of the weights, unless it is detached."""
    loss, activity = values(w)
    q = grad(lambda v: values(v)[0])(w)[LAST].flatten()
    q = q.detach() if detached else q
    r_d = 1 - (q @ cud_) / (q.norm() * cud_.norm())
    r_m = (q.norm() - cum).clamp_min(0.0)
    r_a = (terms.v - activity).clamp_min(0.0) if terms.ra_form == "hinge" else activity - terms.v
    return loss + terms.lambda_d * r_d + terms.lambda_m * r_m + terms.lambda_a * r_a


def assert_live(gradient: Params, plain: Params) -> None:
    """The regularisers reach the weights of f."""
    assert any(not torch.allclose(gradient[name], plain[name], rtol=1e-6) for name in gradient if name.startswith("f."))


@pytest.mark.parametrize("cell", [{}, {"gate": "leaky"}, {"mixed": True, "time_bias": True}])
@pytest.mark.parametrize("form", ["hinge", "printed"])
def test_acceptance_2_the_bound_gradient_is_that_of_L(form: Any, cell: dict[str, Any]) -> None:
    _, weights, values, aim, cum = problem(**cell)
    terms = Terms(0.6, 0.2, 0.2, 1.59, form)
    ours, _ = bound_gradient(values, weights, in_f(weights), LAST, terms, aim, cum)
    whole = grad(lambda w: objective(values, w, terms, aim, cum))(weights)
    plain = grad(lambda w: values(w)[0])(weights)
    for name in weights:
        expected = whole if name.startswith("f.") else plain  # personal modules follow the loss alone
        torch.testing.assert_close(ours[name], expected[name], atol=1e-9, rtol=1e-7)
    assert_live(ours, plain)


def test_acceptance_2_finite_differences() -> None:
    _, weights, values, aim, cum = problem()
    ours, _ = bound_gradient(values, weights, in_f(weights), LAST, FULL, aim, cum)
    for name in in_f(weights):
        way = keys.normal(keys.key("way", name), weights[name].shape).double()
        eps = 1e-5
        ahead = objective(values, {**weights, name: weights[name] + eps * way}, FULL, aim, cum)
        behind = objective(values, {**weights, name: weights[name] - eps * way}, FULL, aim, cum)
        assert float((ahead - behind) / (2 * eps)) == pytest.approx(float((ours[name] * way).sum()), rel=1e-3, abs=1e-7)


def test_acceptance_2_a_detached_q_is_caught() -> None:
    _, weights, values, aim, cum = problem()
    terms = Terms(0.6, 0.2, 0.0, 1.59, "hinge", "exact")
    plain = grad(lambda w: values(w)[0])(weights)
    inert = grad(lambda w: objective(values, w, terms, aim, cum, detached=True))(weights)
    with pytest.raises(AssertionError):
        assert_live(inert, plain)
    assert_live(bound_gradient(values, weights, in_f(weights), LAST, terms, aim, cum)[0], plain)


def test_the_difference_quotient_comes_near() -> None:
    _, weights, values, aim, cum = problem()
    exact, _ = bound_gradient(values, weights, in_f(weights), LAST, FULL, aim, cum)
    near, _ = bound_gradient(
        values, weights, in_f(weights), LAST, Terms(0.6, 0.2, 0.2, 1.59, "hinge", "difference"), aim, cum
    )
    for name in in_f(weights):
        assert float((near[name] - exact[name]).norm()) <= 0.02 * float(exact[name].norm())


def test_no_aim_no_term() -> None:
    q = torch.tensor([0.3, -0.4])
    no_cud, no_cum = torch.zeros(2), torch.tensor(-1.0)
    assert not by_q(FULL, q, no_cud, no_cum).any()
    assert not by_q(FULL, torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor(0.0)).any()
    torch.testing.assert_close(by_q(FULL, q, no_cud, torch.tensor(0.1)), 0.2 * q / 0.5)  # R_m alone
    assert not by_q(FULL, q, no_cud, torch.tensor(0.6)).any()  # within CUM
    # R_d alone: at right angles to q, towards CUD
    turn = by_q(FULL, q, torch.tensor([1.0, 0.0]), no_cum)
    assert float(turn @ q) == pytest.approx(0.0, abs=1e-6)
    assert float(turn[0]) < 0


@pytest.mark.parametrize(("form", "sign"), [("hinge", 1.0), ("printed", -1.0)])
def test_acceptance_3_lambda_a_moves_activity_as_it_should(form: Any, sign: float) -> None:
    _, begin, values, _, _ = problem()

    def after(lambda_a: float) -> float:
        weights = dict(begin)
        for _ in range(20):
            terms = Terms(0.0, 0.0, lambda_a, 1.59, form)
            slope, _ = bound_gradient(values, weights, in_f(weights), LAST, terms, torch.zeros(D), torch.tensor(-1.0))
            weights = {name: weights[name] - 0.05 * slope[name] for name in weights}
        return float(values(weights)[1])

    assert sign * (after(1.0) - after(0.0)) > 0.01
