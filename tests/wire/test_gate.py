"""The gate: each way in which an update can be wrong has its own sentence, and honest ones pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from potluck import keys
from potluck.wire.gate import all_plausible, expected_of, finite, implausible, inspect, refusal

pytestmark = pytest.mark.quick


@dataclass(frozen=True)
class Trained:
    weights: Any
    examples: Any = None
    loss: Any = None


@dataclass(frozen=True)
class Other:
    weights: Any
    examples: Any = None
    loss: Any = None


def trained(**changes: Any) -> Trained:
    honest = Trained({"w": torch.ones(2, 3), "b": torch.zeros(2)}, torch.tensor(5.0))
    return replace(honest, **changes)


def judged(update: Any, honest: Any = None, samples: int = 10, limit: int = 1000) -> str | None:
    refused = refusal(update, inspect(update), expected_of(honest or trained()), samples, limit)
    return None if refused is None else str(refused)


def test_an_honest_update_passes() -> None:
    assert judged(trained()) is None
    assert judged(trained(weights={"w": torch.full((2, 3), -7.0), "b": torch.ones(2)})) is None


@pytest.mark.parametrize(
    ("update", "sentence"),
    [
        (trained(weights={"w": torch.ones(2, 200), "b": torch.zeros(2)}), "1612 bytes, the limit is 1000"),
        (Other({"w": torch.ones(2, 3), "b": torch.zeros(2)}, torch.tensor(5.0)), "other fields or names than the task"),
        (trained(weights={"w": torch.ones(2, 3), "c": torch.zeros(2)}), "other fields or names than the task"),
        (trained(weights={"w": torch.ones(2, 3)}), "other fields or names than the task"),
        (trained(weights=[torch.ones(2, 3), torch.zeros(2)]), "other fields or names than the task"),
        (trained(examples=None), "other fields or names than the task"),
        (trained(loss=1.0), "other fields or names than the task"),
        (
            trained(weights={"w": torch.ones(3, 2), "b": torch.zeros(2)}),
            "tensor 0 has shape (3, 2), the task asks for (2, 3)",
        ),
        (
            trained(weights={"w": torch.ones(2, 3), "b": torch.zeros(1, 2)}),
            "tensor 1 has shape (1, 2), the task asks for (2,)",
        ),
        (
            trained(weights={"w": torch.ones(2, 3), "b": torch.zeros(2).double()}),
            "tensor 1 is torch.float64, the task asks for torch.float32",
        ),
        (trained(weights={"w": torch.full((2, 3), torch.nan), "b": torch.zeros(2)}), "numbers that are not finite"),
        (trained(weights={"w": torch.ones(2, 3), "b": torch.tensor([0, torch.inf])}), "numbers that are not finite"),
        (trained(weights={"w": torch.ones(2, 3), "b": torch.tensor([0, 3e38])}), "numbers that are enormous"),
        (trained(examples=torch.tensor(11.0)), "11 examples declared, the client has 10"),
        (trained(examples=torch.tensor(-1.0)), "-1 examples declared, the client has 10"),
    ],
)
def test_each_refusal_has_its_sentence(update: Any, sentence: str) -> None:
    reason = judged(update)
    assert reason is not None
    assert reason.startswith(sentence)


def test_the_size_is_looked_at_first() -> None:
    """Nothing else of an oversized update is worth a look."""
    assert judged(Other(torch.full((1000,), torch.nan))) == "4000 bytes, the limit is 1000"


def test_a_long_description_is_cut() -> None:
    reason = judged(trained(weights={f"layer{i}": torch.ones(1) for i in range(50)}))
    assert reason is not None
    assert len(reason) < 200
    assert reason.endswith("...)")


def test_numbers_and_texts_may_take_other_values() -> None:
    honest = Trained(torch.ones(2), examples=3, loss={"train": 0.5, "by": "sum", "done": True})
    good = replace(honest, examples=7, loss={"train": 2, "by": "mean", "done": False})
    assert judged(good, honest) is None
    for wrong in ({"train": "x"}, {"train": None}, {"train": True}, {"by": 3}, {"done": 1}):
        assert judged(replace(honest, loss={**honest.loss, **wrong}), honest) is not None


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_numbers_outside_tensors_must_be_finite_too(odd: float) -> None:
    honest = Trained(torch.ones(2), loss=[0.5])
    assert judged(replace(honest, loss=[odd]), honest) == "numbers that are not finite"


def test_texts_that_look_like_marks_are_texts() -> None:
    honest = Trained(torch.ones(2), loss=["f", "nan"])
    assert judged(replace(honest, loss=["x", "0"]), honest) is None


@pytest.mark.parametrize("declared", [11, -1, 10.5, float("nan")])
def test_a_plain_number_of_examples_is_checked_too(declared: float) -> None:
    assert judged(Trained(torch.ones(2), declared), Trained(torch.ones(2), 4)) is not None


def test_examples_may_be_counted_per_class() -> None:
    honest = Trained(torch.ones(2), torch.zeros(3))
    assert judged(Trained(torch.ones(2), torch.tensor([4.0, 6.0, 0.0])), honest) is None
    wrong = judged(Trained(torch.ones(2), torch.tensor([4.0, 6.0, 1.0])), honest)
    assert wrong == "11 examples declared, the client has 10"
    assert judged(Trained(torch.ones(2), torch.tensor([4.0, 6.0, -1.0])), honest) is not None


@given(
    claims=st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 1.0, 3.0, math.nan]), st.integers(0, 3)), min_size=1),
    may_be_empty=st.booleans(),
)
def test_examples_of_a_stack_are_believed_as_those_of_each(claims: list[tuple[float, int]], may_be_empty: bool) -> None:
    @dataclass(frozen=True)
    class Sent:
        MAY_BE_EMPTY: ClassVar = may_be_empty
        examples: torch.Tensor

    updates = [Sent(torch.tensor(declared)) for declared, _ in claims]
    each = [implausible(one, rows) is None for one, (_, rows) in zip(updates, claims, strict=True)]
    together = torch.stack([one.examples for one in updates])
    assert all_plausible(updates[0], together, [rows for _, rows in claims]) == all(each)
    assert not all_plausible(updates[0], together[:, None], [rows for _, rows in claims])  # look at each


def test_an_axis_that_follows_the_data_may_differ_and_no_other() -> None:
    """Raw data of n samples: only where twice the data gave a longer axis."""

    def handed(n: int, features: int = 4, classes: int = 3) -> Trained:
        return Trained({"x": torch.ones(n, features), "y": torch.ones(n), "head": torch.ones(classes, 2)})

    expected = expected_of(handed(5), handed(10))

    def reason(update: Any) -> str | None:
        refused = refusal(update, inspect(update), expected, 100, 10_000)
        return None if refused is None else str(refused)

    assert reason(handed(7)) is None
    assert reason(handed(7, features=5)) == "tensor 0 has shape (7, 5), the task asks for (n, 4)"
    assert reason(handed(7, classes=7)) == "tensor 2 has shape (7, 2), the task asks for (3, 2)"
    flat = replace(handed(7), weights={**handed(7).weights, "y": torch.ones(7, 1)})
    assert reason(flat) == "tensor 1 has shape (7, 1), the task asks for (n,)"
    renamed = replace(handed(7), weights={"u": torch.ones(7, 4), "y": torch.ones(7), "head": torch.ones(3, 2)})
    assert "other fields or names" in str(reason(renamed))


def test_tensors_without_elements_are_finite() -> None:
    assert judged(Trained(torch.ones(0, 3)), Trained(torch.ones(0, 3))) is None
    assert finite(torch.ones(4, 0)).tolist() == [True] * 4


def test_a_tensor_that_claims_to_be_huge_is_looked_at_without_unfolding_it() -> None:
    vast = torch.tensor([[1.0], [2.0]]).expand(2, 1 << 45)
    assert inspect(vast).finite
    assert inspect(vast).nbytes == 1 << 48
    assert not inspect(torch.tensor([[1.0], [torch.nan]]).expand(2, 1 << 45)).finite
    assert inspect(torch.tensor(1.0).expand(1 << 45)).finite


@given(
    rows=st.lists(st.sampled_from(["fine", "nan", "inf", "-inf", "large", "huge", "cancel"]), min_size=1, max_size=6)
)
def test_finite_looks_at_every_row(rows: list[str]) -> None:
    stack = keys.normal(keys.key("gate"), (len(rows), 2, 3))
    for i, kind in enumerate(rows):
        if kind in ("nan", "inf", "-inf"):
            stack[i, 1, 1] = float(kind)
        if kind == "huge":  # each is finite, their squares are not
            stack[i] = 3e38
        if kind == "large":
            stack[i] = 1e14
        if kind == "cancel":
            stack[i, 0, 0], stack[i, 0, 1] = torch.inf, -torch.inf
    assert finite(stack).tolist() == [kind in ("fine", "large") for kind in rows]


def test_whole_numbers_are_finite() -> None:
    assert finite(torch.ones(3, 2, dtype=torch.int64)).tolist() == [True] * 3
    assert finite(torch.ones(3, dtype=torch.bool)).tolist() == [True] * 3
