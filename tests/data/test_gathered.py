"""Kernels that gather and draw give the bits of NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from potluck import compiled
from potluck.data import draw, gathered
from potluck.data.dataset import Dataset
from potluck.data.federate import federate
from potluck.data.federation import Federation
from potluck.data.few import hide_labels
from potluck.data.made import made
from potluck.data.server import whole
from potluck.data.spec import PartitionSpec

ROWS = 90
DRAW = np.random.default_rng(3)
LENGTH = np.tile([5, 0, 3, 9, 1], ROWS // 5)
SUBJECT = np.repeat([0, 1, 2], [50, 30, 10])


@pytest.fixture(autouse=True)
def always_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled.ready():
        pytest.skip("kernels need the extra fast")
    monkeypatch.setattr(gathered, "WORTH", 0)
    monkeypatch.setattr(draw, "WORTH", 0)


def numbers(*shape: int) -> np.ndarray:
    """Channels of different sizes, one of which is constant and one of which is -0.0."""
    x = (DRAW.normal(size=(ROWS, *shape)) * 10.0 ** DRAW.integers(-3, 4, shape[-1]) + 7.0).astype(np.float32)
    if shape[-1] > 2:
        x[..., 1], x[..., 2] = 0.3, -0.0
    return x


def holes(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[DRAW.random(x.shape) < 0.2] = np.nan
    x[3].reshape(-1)[:2] = np.inf, -np.inf
    return x


def pixels(*shape: int) -> np.ndarray:
    return DRAW.integers(0, 256, (ROWS, *shape)).astype(np.uint8)


def dataset(x: np.ndarray, **fields: Any) -> Dataset:
    return Dataset("odd", x, np.arange(ROWS) % 3, 3, ("a", "b", "c"), subject=SUBJECT, **fields)


SETS = {
    "features": lambda: dataset(numbers(7)),
    "one feature": lambda: dataset(numbers(1)),
    "features with holes": lambda: dataset(holes(numbers(7)), missing=True),
    "features with holes filled": lambda: dataset(holes(numbers(7)), missing=True, fill="mean"),
    "doubles": lambda: dataset(numbers(7).astype(np.float64)),
    "every second column": lambda: dataset(numbers(14)[:, ::2]),
    "series": lambda: dataset(numbers(5, 3)),
    "one channel": lambda: dataset(numbers(19, 1)),
    "one step": lambda: dataset(numbers(1, 3)),
    "many steps": lambda: dataset(numbers(300, 1)),
    "bytes over time": lambda: dataset(pixels(12, 3), kind="series"),
    "lengths": lambda: dataset(numbers(5, 3), length=LENGTH),
    "lengths of one channel": lambda: dataset(numbers(5, 1), length=LENGTH),
    "lengths and holes": lambda: dataset(holes(numbers(5, 3)), length=LENGTH, missing=True),
    "times": lambda: dataset(numbers(5, 3), t=np.cumsum(DRAW.random((ROWS, 5)), axis=1), length=LENGTH),
    "grey": lambda: dataset(pixels(6, 4)),
    "colours last": lambda: dataset(pixels(9, 7, 3)),
    "colours first": lambda: dataset(pixels(2, 6, 5)),
    "colours last, no bytes": lambda: dataset(numbers(5, 4, 3)),
    "grey, no bytes": lambda: dataset(numbers(30, 11), kind="image"),
    "two targets": lambda: dataset(numbers(7), target=DRAW.normal(size=(ROWS, 2)).astype(np.float32)),
}


def bits(value: Any) -> Any:
    return None if value is None else (value.dtype, value.shape, np.ascontiguousarray(value).tobytes())


def everything(federation: Federation) -> list[Any]:
    """All parts of all clients, in stacks with padding, and the statistics; training rows last."""
    found: list[Any] = []
    with np.errstate(all="ignore"):  # infinities
        for part, ids in (("test", [2, 0]), ("train", [1, 0, 1]), ("valid", [0, 1, 2]), ("train", [2])):
            capacity = int(federation.counts(part)[ids].max())
            for room in (max(1, capacity), capacity + 3):
                found += map(bits, federation.materialise_many(ids, part, room))
        for i in range(3):
            found += map(bits, federation.scale(i) or ())
    return found


@pytest.mark.parametrize("how", ["client", "channel", "global", "none"])
@pytest.mark.parametrize("name", SETS)
def test_kernels_give_the_bits_of_numpy(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, spec = SETS[name](), PartitionSpec(kind="subject", valid_share=0.2)
    with compiled.off():
        wanted = everything(federate(data, spec, how))
    for many in (1, 1 << 20):  # clients one by one, and all at once
        monkeypatch.setattr(gathered, "AT_ONCE", many)
        assert everything(federate(data, spec, how)) == wanted


def test_some_clients_with_hidden_labels() -> None:
    data = SETS["series"]()

    def found() -> list[Any]:
        federation = federate(data, PartitionSpec(kind="subject", valid_share=0.2), seed=4)
        hide_labels(federation, 0.4, 1)
        few = federation.among(np.array([2, 0]), [np.arange(3), np.arange(60, 75)])
        some = federation.among(np.array([2, 0]))
        return [
            *map(bits, federation.materialise_many([0, 2], "train", 50)),
            *map(bits, few.materialise_many([0, 1], "train", 15)),
            *map(bits, some.materialise_many([1, 0], "train", 50)),
            *map(bits, some.materialise_many([1, 0], "test", 50)),
        ]

    with compiled.off():
        wanted = found()
    assert found() == wanted


@pytest.mark.parametrize("how", ["channel", "global"])
def test_the_servers_rows(how: str) -> None:
    for make in SETS.values():
        data = make()
        with np.errstate(all="ignore"):
            with compiled.off():
                wanted = [bits(value) for value in whole(data, how)]
            assert [bits(value) for value in whole(data, how)] == wanted


@pytest.mark.parametrize("pool", [1, 2, 5, 64, 65, 1000, 70_000])
def test_kernels_draw_the_same_rows(pool: int) -> None:
    keys = np.random.default_rng(pool).integers(0, 1 << 63, 40).astype(np.uint64) * np.uint64(3)
    rows = np.random.default_rng(1).permutation(pool)
    count = min(pool, 61)
    wanted = np.take(rows, draw.distinct(keys, count, pool))
    np.testing.assert_array_equal(draw.taken(keys, count, rows), wanted)


def test_workers_share_the_clients() -> None:
    from concurrent.futures import ThreadPoolExecutor

    spec = PartitionSpec(kind="iid", clients=1000, samples=30, valid_share=0.1)
    with compiled.off():
        wanted = federate(made(), spec).materialise_many(range(0, 1000, 7), "train", 33)
    with ThreadPoolExecutor(3) as pool, compiled.threads(pool, 3):
        found = federate(made(), spec).materialise_many(range(0, 1000, 7), "train", 33)
    assert [bits(value) for value in found] == [bits(value) for value in wanted]


def test_rows_that_kernels_cannot_read_are_read_by_numpy() -> None:
    data = SETS["series"]()
    x = data.x.astype(">f4")
    spec = PartitionSpec(kind="subject")
    with compiled.off():
        wanted = federate(data, spec).materialise_many([0, 1], "train", 50)
    found = federate(replace(data, x=x), spec).materialise_many([0, 1], "train", 50)
    assert [bits(value) for value in found] == [bits(value) for value in wanted]
