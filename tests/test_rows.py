"""Models as rows of stacks: dictionaries like any other, and the same bits as tensor by tensor."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from potluck import compiled, keys
from potluck.fleet import Params
from potluck.rows import Row, blended, copied, gathered, row_of
from potluck.tensors import added, each, mix
from potluck.wire.codec import decode, encode, flatten

pytestmark = pytest.mark.quick


def model(number: int) -> Params:
    key = keys.key("rows", number)
    return {"w": keys.normal(keys.fold(key, 0), (3, 5)), "b": keys.normal(keys.fold(key, 1), (3,))}


def row(number: int) -> Row:
    found = row_of(model(number))
    assert found is not None
    return found


def same(a: Params, b: Params) -> bool:
    return list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a)


def test_a_row_is_a_dictionary() -> None:
    plain = model(1)
    for read in (
        lambda m: list(m), lambda m: len(m), lambda m: [k for k, _ in m.items()], lambda m: m.keys() == plain.keys(),
        lambda m: m["b"].tolist(), lambda m: m.get("none"), lambda m: "w" in m, lambda m: bool(m),
        lambda m: [v.sum().item() for v in m.values()], lambda m: sorted(dict(m)), lambda m: sorted({**m}),
        lambda m: sorted(m | {"x": torch.zeros(1)}), lambda m: sorted({"x": torch.zeros(1)} | m),
        lambda m: list(reversed(m)), lambda m: sorted(m.copy()), lambda m: isinstance(m, dict),
    ):  # fmt: skip
        assert read(row(1)) == read(plain)
    assert same(dict(row(1)), plain)
    assert same(copy.deepcopy(row(1)), plain)
    assert same(copy.copy(row(1)), plain)


def test_a_row_travels_as_any_model() -> None:
    assert encode(row(2)) == encode(model(2))
    assert same(decode(encode(row(2)), {}), model(2))
    assert flatten(row(2))[0] == flatten(model(2))[0]


def test_transforms_look_into_a_row() -> None:
    row = row_of({"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0])})
    assert row is not None
    slope = torch.func.grad(lambda model: (model["w"].square().sum() + model["b"]).sum())(row)
    assert slope["w"].tolist() == [2.0, 4.0]
    seen = row_of({"w": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0])})
    assert seen is not None
    assert torch.func.vmap(lambda x: x * seen["w"].sum())(torch.ones(2)).tolist() == [3.0, 3.0]
    assert seen["w"].tolist() == [1.0, 2.0]  # no trace of the transform that looked first
    found = torch.func.vmap(lambda model, x: (model["w"] * x).sum(), in_dims=(None, 0))(row, torch.eye(2))
    assert found.tolist() == [1.0, 2.0]


def test_a_row_that_somebody_changed_counts_as_changed() -> None:
    changed = row(3)
    changed["b"] = torch.zeros(3)
    assert same(changed, model(3) | {"b": torch.zeros(3)})
    assert same(mix(changed, row(4), 1.0), mix(dict(changed), model(4), 1.0))
    less = row(3)
    del less["b"]
    assert list(less) == ["w"]


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3712345, 1.0])
def test_mixing_rows_rounds_as_mixing_tensors(kernels: bool, share: float) -> None:
    def by_hand(p: Tensor, q: Tensor) -> Tensor:
        return p + share * (q - p)

    a, b = model(5), model(6)
    if kernels:
        assert same(mix(row(5), row(6), share), each(by_hand, a, b))
        return
    with compiled.off():
        assert same(mix(row(5), row(6), share), each(by_hand, a, b))
        assert same(mix(a, row(6), share), each(by_hand, a, b))
        assert same(added(row(5), row(6), share), each(lambda p, q: p + share * q, a, b))


def test_a_new_row_leaves_the_others_alone() -> None:
    a, b = row(7), row(8)
    steps = [a]
    for _ in range(70):  # more than the first stacks have room for
        steps.append(mix(steps[-1], b, 0.1))
    plain = [model(7)]
    for _ in range(70):
        plain.append(each(lambda p, q: p + 0.1 * (q - p), plain[-1], model(8)))
    assert all(same(ours, theirs) for ours, theirs in zip(steps, plain, strict=True))


def test_what_is_not_float32_is_mixed_tensor_by_tensor() -> None:
    a = {"w": torch.ones(2, dtype=torch.float64), "n": torch.tensor(3)}
    found = mix(a, each(lambda value: value * 3, a), 0.5)
    assert type(found) is dict
    assert found["w"].tolist() == [2.0, 2.0]
    assert int(found["n"]) == 3


def test_rows_are_gathered_wherever_they_stand() -> None:
    rows = [row(n) for n in range(40)]
    for places in (range(40), [3, 1, 2], [5], [39, 0, 39], range(10, 14)):
        stack = gathered([rows[place] for place in places])
        for number, name in enumerate(("w", "b")):
            assert torch.equal(stack[number], torch.stack([model(place)[name] for place in places]))


def test_models_by_themselves_are_rows_like_others() -> None:
    kept = [copied(model(n)) for n in range(6)]
    rows = [found for one in kept if (found := row_of(one)) is not None]
    stack = gathered([rows[0], row(1), *rows[2:]])
    for n, one in enumerate(kept):
        assert same(one, model(n))
        assert all(torch.equal(part[n], model(n)[name]) for part, name in zip(stack, ("w", "b"), strict=True))
    given = model(7)
    mine = copied(given)
    given["b"].zero_()
    assert same(mine, model(7))
    counter = {"n": torch.tensor(3), "w": torch.ones(2)}
    assert same(copied(counter), counter)


@pytest.mark.skipif(not compiled.ready(), reason="needs the extra fast")
def test_a_weighted_sum_of_rows_rounds_as_sums_of_tensors() -> None:
    shapes = {"w": (37, 41), "b": (67,), "c": (5,)}
    one, two, three = (
        {name: keys.normal(keys.key("blend", n, name), shape) for name, shape in shapes.items()} for n in range(3)
    )
    for parts in ([(two, 0.3712345)], [(two, -1.7), (three, 0.21)]):
        found = blended(one, 0.87654321, parts)
        assert found is not None

        plain = each(lambda value: value * 0.87654321, one)
        for part, by in parts:
            plain = {name: value.add_(part[name], alpha=by) for name, value in plain.items()}
        assert same(found, plain)
    assert blended(one, 0.5, [(model(1), 0.5)]) is None
