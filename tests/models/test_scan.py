"""The recurrent scan: PyTorch's equations, finite differences, stacks, gradients of gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from potluck import keys
from potluck.models import build
from potluck.models.recurrent import Recurrent, last_valid
from potluck.models.scan import CELLS, Cell, scan, unrolled

NAMES = sorted(CELLS)
TORCH = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
Arguments = tuple[Tensor, Tensor, Tensor]


def arguments(cell: Cell, *lead: int, batch: int = 2, steps: int = 4, hidden: int = 3) -> Arguments:
    key = keys.key("scan", cell.name)
    width = cell.gates * hidden
    return (
        keys.normal(keys.fold(key, "gates"), (*lead, batch, steps, width)),
        keys.normal(keys.fold(key, "weight"), (*lead, width, hidden)),
        keys.normal(keys.fold(key, "bias"), (*lead, width)),
    )


def loss(run: Any, cell: Cell) -> Any:
    """A number that depends on every state and more on the last."""

    def of(gates: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        states = run(cell, gates, weight, bias)
        return (states**2).sum() + states[..., -1, :].sum()

    return of


@pytest.mark.parametrize("name", NAMES)
def test_same_numbers_and_gradients_as_torch(name: str) -> None:
    ours = Recurrent(name, 5, 7)
    theirs = TORCH[name](5, 7, batch_first=True)
    with torch.no_grad():
        for weight in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(theirs, f"{weight}_l0").copy_(getattr(ours, weight))
    x = keys.normal(keys.key("x"), (3, 11, 5)).requires_grad_()
    push = keys.normal(keys.key("push"), (3, 11, 7))
    out, expected = ours(x), theirs(x)[0]
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    mine = torch.autograd.grad((out * push).sum(), [x, *ours.parameters()])
    torchs = torch.autograd.grad((expected * push).sum(), [x, *theirs.parameters()])
    for a, b in zip(mine, torchs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_against_finite_differences(name: str) -> None:
    cell = CELLS[name]
    values = tuple(value.double().requires_grad_() for value in arguments(cell, batch=1, steps=3, hidden=2))

    def run(*args: Tensor) -> Tensor:
        return scan(cell, *args)

    assert torch.autograd.gradcheck(run, values)
    assert torch.autograd.gradgradcheck(run, values)


@pytest.mark.parametrize("name", NAMES)
def test_a_stack_equals_one_by_one(name: str) -> None:
    cell = CELLS[name]
    stack = arguments(cell, 4, batch=3, steps=6)
    of = loss(scan, cell)
    together = vmap(grad(of, (0, 1, 2)))(*stack)
    for place in range(4):
        alone = grad(of, (0, 1, 2))(*(value[place] for value in stack))
        plain = grad(loss(unrolled, cell), (0, 1, 2))(*(value[place] for value in stack))
        for a, b, c in zip(together, alone, plain, strict=True):
            torch.testing.assert_close(a[place], b, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(b, c, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_one_set_of_weights_for_many_and_stacks_of_stacks(name: str) -> None:
    cell = CELLS[name]
    gates, weight, bias = arguments(cell, 2, 3)
    twice = vmap(vmap(lambda *a: scan(cell, *a)))(gates, weight, bias)
    torch.testing.assert_close(twice[1, 2], scan(cell, gates[1, 2], weight[1, 2], bias[1, 2]))
    shared = vmap(lambda x: scan(cell, x, weight[0, 0], bias[0, 0]))(gates[0])
    torch.testing.assert_close(shared[1], scan(cell, gates[0, 1], weight[0, 0], bias[0, 0]))
    same = vmap(lambda w, b: grad(loss(scan, cell))(gates[0, 0], w, b))(weight[0], bias[0])
    torch.testing.assert_close(same[1], grad(loss(scan, cell))(gates[0, 0], weight[0, 1], bias[0, 1]))
    moved = vmap(lambda x: scan(cell, x, weight[0, 0], bias[0, 0]), in_dims=2)(gates[0].movedim(0, 2))
    torch.testing.assert_close(moved[1], shared[1])


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_through_a_gradient_step(name: str) -> None:
    """The loss after a step of gradient descent, differentiated: as a stack, and by ordinary operations."""
    cell = CELLS[name]
    stack = arguments(cell, 2)

    def after_a_step(run: Any) -> Any:
        def of(gates: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            step = grad(loss(run, cell), 1)(gates, weight, bias)
            return loss(run, cell)(gates, weight - 0.1 * step, bias)

        return of

    fast = vmap(grad(after_a_step(scan), (0, 1, 2)))(*stack)
    plain = vmap(grad(after_a_step(unrolled), (0, 1, 2)))(*stack)
    for a, b in zip(fast, plain, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_one_step_of_a_gru_by_hand() -> None:
    """With zero weights and gates the update gate is 1/2 and the state halves the way to tanh(0.5 * bias)."""
    cell = CELLS["gru"]
    bias = torch.tensor([0.0, 0.0, 2.0])
    states = scan(cell, torch.zeros(1, 2, 3), torch.zeros(3, 1), bias)
    new = torch.tanh(torch.tensor(1.0))
    assert states[0, 0, 0] == pytest.approx(0.5 * new.item())
    assert states[0, 1, 0] == pytest.approx(0.75 * new.item())


def test_last_valid_state() -> None:
    states = torch.arange(12.0).reshape(2, 3, 2)  # two sequences of three steps
    assert last_valid(states, None).tolist() == [[4.0, 5.0], [10.0, 11.0]]
    assert last_valid(states, torch.tensor([1, 2])).tolist() == [[0.0, 1.0], [8.0, 9.0]]
    assert last_valid(states, torch.tensor([0, 9])).tolist() == [[0.0, 1.0], [10.0, 11.0]]


@pytest.mark.parametrize("name", NAMES)
def test_padding_behind_a_sequence_changes_nothing(name: str) -> None:
    model = build(name, (6, 2), 3, {"hidden": 4, "layers": 2})
    weights = model.init(1)
    x = keys.normal(keys.key("x"), (2, 6, 2))
    length = torch.tensor([6, 4])
    other = x.clone()
    other[1, 4:] = 99.0
    assert torch.equal(model.logits(weights, x, length=length), model.logits(weights, other, length=length))
    short = model.logits(weights, x[1:, :4])
    torch.testing.assert_close(model.logits(weights, x, length=length)[1:], short)

    def last(x: Tensor) -> Tensor:
        return model.train_logits(weights, x, length=length)[0].sum()

    assert torch.all(grad(last)(x)[1, 4:] == 0)
    assert torch.any(grad(last)(x)[1, 3] != 0)
