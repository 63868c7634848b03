"""The codec: arbitrary trees survive, sizes are known without encoding, and bytes from anybody are data, never code."""

from __future__ import annotations

import dataclasses
import json
import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save

from potluck.errors import BadInput, Code
from potluck.wire import decode, encode, flatten, rebuild, size
from potluck.wire.codec import walk

pytestmark = pytest.mark.quick

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@dataclass(frozen=True)
class Point:
    x: Any
    y: Any = None


@dataclass(frozen=True)
class Empty:
    pass


@dataclass(frozen=True)
class Strict:
    rows: Any

    def __post_init__(self) -> None:
        if not self.rows >= 1:  # a tensor of several numbers has no truth value
            raise BadInput(Code.ARGUMENT, f"rows: must be 1 or more, got {self.rows}.")


CLASSES = {"Point": Point, "Empty": Empty, "Strict": Strict}


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    numbers = draw(st.lists(st.integers(0, 100), min_size=math.prod(shape), max_size=math.prod(shape)))
    value = torch.tensor(numbers, dtype=torch.int64).reshape(shape).to(draw(st.sampled_from(DTYPES)))
    return value.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else value


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters()))
TREES = st.recursive(
    st.one_of(SCALARS, tensors()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers()), inner, max_size=3),
        st.builds(Point, inner, inner),
        st.just(Empty()),
    ),
    max_leaves=10,
)


def assert_alike(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif dataclasses.is_dataclass(a):
        assert_alike(list(vars(a).values()), list(vars(b).values()))
    elif isinstance(a, dict):
        assert list(a) == list(b)
        assert_alike(list(a.values()), list(b.values()))
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_alike(one, other)
    else:
        assert a == b or (a != a and b != b)


@given(value=TREES)
def test_any_tree_survives(value: Any) -> None:
    data = encode(value)
    assert_alike(value, decode(data, CLASSES))
    assert size(value) == len(data)
    assert encode(value) == data


@given(value=TREES)
def test_parting_and_rebuilding_gives_the_same(value: Any) -> None:
    skeleton, parts = flatten(value)
    assert_alike(value, rebuild(skeleton, parts, CLASSES))
    assert_alike(value, walk(value, lambda tensor: tensor))


def test_numpy_numbers_become_plain_ones() -> None:
    found = decode(encode([np.float64(0.5), np.float32(0.25), np.int64(3), np.bool_(True), np.str_("a")]), {})
    assert found == [0.5, 0.25, 3, True, "a"]
    assert [type(item) for item in found] == [float, float, int, bool, str]


def test_a_tensor_in_several_places_is_kept_once_and_stays_one() -> None:
    weights = torch.arange(1000.0)
    value = {"state": weights, "tasks": [Point(weights), Point(weights)]}
    assert size(value) < 1.5 * weights.numel() * 4
    found = decode(encode(value), CLASSES)
    assert found["state"] is found["tasks"][0].x
    assert found["state"] is found["tasks"][1].x


def test_rows_of_a_stack_are_saved_without_the_rest() -> None:
    stack = torch.zeros(100, 10)
    assert len(encode(stack[3])) == len(encode(torch.zeros(10)))


def test_what_was_decoded_is_its_own() -> None:
    """Written to, it changes neither the bytes nor what is decoded next."""
    data = encode(torch.zeros(3))
    first = decode(data, {})
    first += 1
    assert decode(data, {}).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object(), Point, torch.nn.Linear, {"f": len}, {(1, 2): 3}, 1j])
def test_what_cannot_be_sent_says_so(value: Any) -> None:
    for way in (encode, size, flatten):
        with pytest.raises(TypeError, match="be sent or saved"):
            way(value)


def test_only_named_classes_are_built() -> None:
    with pytest.raises(BadInput, match="a class must be one of Empty, got 'Point'"):
        decode(encode(Point(1)), {"Empty": Empty})
    with pytest.raises(BadInput, match="a class must be one of none"):
        decode(encode(Point(1)), {})


def test_a_class_of_other_fields_is_refused() -> None:
    with pytest.raises(BadInput, match="Empty must have 0 fields, got 2"):
        decode(crafted(["c", "Empty", [1, 2]]), CLASSES)


def crafted(node: Any, parts: dict[str, torch.Tensor] | None = None) -> bytes:
    """A message whose skeleton is whatever we like."""
    text = node if isinstance(node, str) else json.dumps(node)
    return save(parts or {}, metadata={"potluck": text})


HOSTILE = [
    ["x", 0],
    ["x", -1],
    ["x", "0"],
    ["x", None],
    ["x"],
    ["x", 10**30],
    ["d", 5],
    ["d", [["a"]]],
    ["d", [[[], 1]]],
    ["d", [[{}, 1]]],
    ["l", None],
    ["l"],
    ["t", 3],
    ["f", "one"],
    ["f", [1]],
    ["c"],
    ["c", "Point"],
    ["c", "Point", 3],
    ["c", "Point", [1]],
    ["c", ["Point"], [1, 2]],
    ["c", "Strict", [0]],
    ["c", "Strict", [["l", []]]],
    ["c", "Strict", ["text"]],
    ["?", 1],
    [],
    [[], []],
    {"a": 1},
    "not json",
    "",
    "1" * 10_000,
    "[" * 100_000,
    '["l",[' * 5_000 + "1" + "]]" * 5_000,
]


@pytest.mark.parametrize("node", HOSTILE, ids=lambda node: str(node)[:30])
def test_a_hostile_skeleton_is_refused(node: Any) -> None:
    with pytest.raises(BadInput):
        decode(crafted(node), CLASSES)


def test_a_class_that_chokes_on_its_fields_is_refused() -> None:
    with pytest.raises(BadInput):
        decode(crafted(["c", "Strict", [["x", 0]]], {"0": torch.ones(3)}), CLASSES)


@pytest.mark.parametrize("hole", [1, -1, False, "0", 0.0, None, 10**30])
def test_a_tensor_that_did_not_come_is_refused(hole: Any) -> None:
    with pytest.raises(BadInput, match="number must be below 1, got"):
        decode(crafted(["l", [["x", 0], ["x", hole]]], {"0": torch.ones(2)}), {})


def test_tensors_under_other_names_are_refused() -> None:
    with pytest.raises(BadInput):
        decode(crafted(["l", [["x", 0]]], {"weights": torch.ones(2)}), {})


def test_files_of_others_are_refused() -> None:
    with pytest.raises(BadInput):
        decode(save({"0": torch.ones(1)}), {})
    with pytest.raises(BadInput):
        decode(save({"0": torch.ones(1)}, metadata={"format": "pt"}), {})


GOOD = encode({"weights": torch.arange(6.0).reshape(2, 3), "examples": torch.tensor(4), "p": Point([1, "a"], 2.5)})


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_a_truncated_message_is_refused(length: int) -> None:
    with pytest.raises(BadInput):
        decode(GOOD[:length], CLASSES)


@given(place=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255))
def test_a_mutated_message_is_read_or_refused(place: int, byte: int) -> None:
    read_or_refused(GOOD[:place] + bytes([byte]) + GOOD[place + 1 :])


@given(data=st.binary(max_size=300))
@example(b"")
@example(b"\xff" * 8)
@example((2**63).to_bytes(8, "little") + b"{}")
@example((2).to_bytes(8, "little") + b"{}")
@example((5).to_bytes(8, "little") + b"{}")
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        decode(data, CLASSES)


NODES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text("xdltcf", max_size=2), st.just("Point")),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=12,
)


@given(node=NODES, count=st.integers(0, 2))
def test_any_skeleton_is_read_or_refused(node: Any, count: int) -> None:
    read_or_refused(crafted(node, {str(i): torch.ones(2) for i in range(count)}))


HEADERS = st.recursive(
    st.one_of(st.none(), st.integers(-1, 100), st.sampled_from(["F32", "I64", "F4", "C64", "F8_E4M3", "x"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["0", "1", "__metadata__", "potluck", "dtype", "shape", "data_offsets"]), inner, max_size=4
        ),
    ),
    max_leaves=12,
)


@given(header=HEADERS, tail=st.binary(max_size=40))
def test_any_header_is_read_or_refused(header: Any, tail: bytes) -> None:
    text = json.dumps(header).encode()
    read_or_refused(len(text).to_bytes(8, "little") + text + tail)


def read_or_refused(data: bytes) -> None:
    with suppress(BadInput):
        flatten(decode(data, CLASSES))  # whatever comes out is a tree of plain things


def test_a_message_from_nowhere_runs_no_code(tmp_path: Any) -> None:
    """The usual payloads of unsafe formats are text here."""
    trap = tmp_path / "ran"
    payload = f"__import__('pathlib').Path({str(trap)!r}).touch()"
    for node in (payload, ["c", "eval", [payload]], ["c", "__import__", ["os"]], ["c", "Point", [payload, payload]]):
        with suppress(BadInput):
            decode(crafted(node), CLASSES)
    pickled = b"cposix\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR."
    with pytest.raises(BadInput):
        decode(pickled, CLASSES)
    assert not trap.exists()


def test_fields_are_read_in_the_order_of_the_class() -> None:
    @dataclass(frozen=True)
    class Made:
        a: int
        b: list[int] = field(default_factory=list)

    assert decode(encode(Made(1, [2])), {"Made": Made}) == Made(1, [2])
