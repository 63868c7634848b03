"""The common direction and magnitude: section 4.4 of FedCFC."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from potluck import keys
from potluck.methods.parts.fedcfc import cud


def luds(count: int, size: int = 20) -> list[Tensor]:
    """Gradients that lean one way."""
    lean = keys.normal(keys.key("lean"), (size,))
    return [lean + 1.5 * keys.normal(keys.key("lud", i), (size,)) * (1 + i % 3) for i in range(count)]


def summed(gradients: list[Tensor], unit: bool = True) -> cud.Running:
    running = cud.nothing(gradients[0].numel())
    for lud in gradients:
        running = cud.absorb(running, lud, unit)
    return running


def total_cosine(gradients: list[Tensor], psi: Tensor) -> float:
    return float(sum(torch.nn.functional.cosine_similarity(lud, psi, 0) for lud in gradients))


def test_acceptance_1_nothing_beats_the_closed_form() -> None:
    given = luds(10)
    best = total_cosine(given, cud.direction(summed(given)))
    for i in range(1000):
        assert total_cosine(given, keys.normal(keys.key("try", i), (20,))) <= best + 1e-6
    matrix = torch.stack([lud / lud.norm() for lud in given])
    starts = torch.stack([keys.normal(keys.key("climb", i), (20,)) for i in range(100)]).requires_grad_()
    for _ in range(300):
        value = (matrix @ (starts / starts.norm(dim=1, keepdim=True)).T).sum()
        (slope,) = torch.autograd.grad(value, starts)
        starts = (starts + slope).detach().requires_grad_()
    ends = [total_cosine(given, psi) for psi in starts.detach()]
    assert max(ends) <= best + 1e-4
    assert min(ends) == pytest.approx(best, abs=1e-2)  # there is one maximum only


@pytest.mark.parametrize("count", [1, 3, 10])
def test_acceptance_1_the_semidefinite_program_agrees(count: int) -> None:
    pytest.importorskip("cvxpy", reason="the extra potluck[sdp] is not installed")
    given = luds(count)
    torch.testing.assert_close(cud.sdp(given), cud.direction(summed(given)), atol=1e-4, rtol=0)


def test_acceptance_6_the_order_of_arrival_does_not_matter() -> None:
    given = luds(50)
    ahead, back = summed(given), summed(given[::-1])
    torch.testing.assert_close(cud.direction(ahead), cud.direction(back), atol=1e-6, rtol=0)
    torch.testing.assert_close(cud.magnitude(ahead), cud.magnitude(back), atol=1e-6, rtol=0)


def test_section_7_edge_cases_of_the_server() -> None:
    one = torch.tensor([3.0, 4.0])
    alone = summed([one])
    torch.testing.assert_close(cud.direction(alone), torch.tensor([0.6, 0.8]))
    assert float(cud.magnitude(alone)) == pytest.approx(5.0)
    with_zero = summed([one, torch.zeros(2)])
    torch.testing.assert_close(cud.direction(with_zero), torch.tensor([0.6, 0.8]))
    assert float(cud.magnitude(with_zero)) == pytest.approx(2.5)
    assert not cud.direction(summed([one, -one])).any()  # they cancel: no CUD
    assert float(cud.magnitude(cud.nothing(2))) == -1.0
    assert not cud.direction(cud.nothing(2)).any()


def test_agreement_is_the_mean_cosine_of_pairs() -> None:
    given = luds(6)
    pairs = [float(torch.nn.functional.cosine_similarity(a, b, 0)) for i, a in enumerate(given) for b in given[:i]]
    assert cud.agreement(summed(given)) == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)


def test_unit_off_takes_the_gradients_as_they_are() -> None:
    given = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 3.0])]
    torch.testing.assert_close(cud.direction(summed(given, unit=False)), torch.tensor([1.0, 3.0]) / 10**0.5)
