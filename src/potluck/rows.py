"""Models of one form as rows of stacks, so that a new model, its place in a stack and its mix are one step each.

An asynchronous server makes a new model for each arrival, and 250 of them train together. As dictionaries of tensors
they would be made, stacked and taken apart tensor by tensor, which takes longer than training. A `Row` says where a
model stands: a stack of models, and which row of it. It is a dictionary as well, whose tensors are made when somebody
looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils import _pytree

from potluck import compiled

ROOM = 32 << 20  # bytes of the largest stack for new models
Places = NDArray[np.int64]
LEAST = 16  # rows of the first one; each has twice as many as the one before
_FORMS: dict[tuple[Any, ...], Form] = {}


class Form:
    """The names and shapes of a model, all of it float32, and a stack with room for new ones."""

    def __init__(self, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> None:
        self.names = names
        self.shapes = shapes
        self.counts = np.array([int(np.prod(shape, dtype=np.int64)) for shape in shapes], dtype=np.int64)
        self.nbytes = 4 * int(self.counts.sum())
        lines = (self.counts + 15) // 16  # of the cache, which each tensor of a model by itself begins anew
        self.begins = 64 * (lines.cumsum() - lines)  # where that is, in bytes
        self._room = 16 * int(lines.sum())
        self._open: tuple[Stack, Iterator[int]] | None = None
        self._rows = LEAST

    def fresh(self) -> Row:
        """Room for a new model, whose numbers are still arbitrary."""
        while True:
            if self._open is not None:
                at = next(self._open[1], None)  # one step, so that threads never share a row
                if at is not None:
                    return Row(self._open[0], at)
            rows = max(1, min(self._rows, ROOM // max(1, self.nbytes)))
            self._rows *= 2
            self._open = Stack(self, [torch.empty((rows, *shape)) for shape in self.shapes]), iter(range(rows))

    def single(self) -> Row:
        """The same in a stack of its own: a model that is kept for long keeps no others."""
        return Row(Stack(self, memory=torch.empty(self._room)), 0)


class Stack:
    """Models of one form: for each name a tensor (models, *shape) in one piece; or one model in one memory."""

    __slots__ = ("_arrays", "_tensors", "addresses", "form", "memory")

    def __init__(self, form: Form, tensors: Sequence[Tensor] = (), memory: Tensor | None = None) -> None:
        self.form = form
        self.memory = memory
        self._tensors = list(tensors)
        self._arrays: list[NDArray[np.float32]] = []
        self.addresses = (
            np.array([tensor.data_ptr() for tensor in tensors], dtype=np.int64)
            if memory is None
            else form.begins + memory.data_ptr()
        )

    @property
    def tensors(self) -> list[Tensor]:
        if not self._tensors and self.memory is not None:
            begins, counts = (self.form.begins // 4).tolist(), self.form.counts.tolist()
            self._tensors = [
                self.memory[begin : begin + count].view(1, *shape)
                for begin, count, shape in zip(begins, counts, self.form.shapes, strict=True)
            ]
        return self._tensors

    @property
    def arrays(self) -> list[NDArray[np.float32]]:
        if not self._arrays:
            self._arrays = [tensor.numpy() for tensor in self.tensors]
        return self._arrays


class Row(dict[str, Tensor]):
    """One model of a stack."""

    __slots__ = ("at", "stack")
    stack: Stack | None  # None: somebody changed the dictionary, which alone counts from then on
    at: int

    def __init__(self, stack: Stack, at: int) -> None:
        self.stack = stack
        self.at = at

    def opened(self) -> Row:
        """The same, once its tensors are made."""
        if self.stack is None or dict.__len__(self):
            return self
        if torch._C._functorch.peek_interpreter_stack() is not None:
            with temporarily_clear_interpreter_stack():  # they outlive the transform that asks for them first
                return self.opened()
        dict.update(self, zip(self.stack.form.names, (tensor[self.at] for tensor in self.stack.tensors), strict=True))
        return self

    def __reduce__(self) -> Any:
        return dict, (dict(self.items()),)


def _reads(name: str) -> Callable[..., Any]:
    usual = getattr(dict, name)

    def method(self: Row, *args: Any, **named: Any) -> Any:
        return usual(self.opened(), *(one.opened() if type(one) is Row else one for one in args), **named)

    return method


def _changes(name: str) -> Callable[..., Any]:
    usual = _reads(name)

    def method(self: Row, *args: Any, **named: Any) -> Any:
        self.opened().stack = None
        return usual(self, *args, **named)

    return method


for _name in (
    "__contains__", "__eq__", "__getitem__", "__iter__", "__len__", "__ne__", "__or__", "__repr__", "__reversed__",
    "__ror__", "copy", "get", "items", "keys", "values",
):  # fmt: skip
    setattr(Row, _name, _reads(_name))
for _name in ("__delitem__", "__ior__", "__setitem__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(Row, _name, _changes(_name))


# Transforms of PyTorch (`vmap`, `grad`) look into dictionaries, and take one of another class for a single value.
_pytree.register_pytree_node(
    Row, lambda row: (list(row.values()), tuple(row)), lambda values, names: dict(zip(names, values, strict=True))
)


def form_of(names: Sequence[str], tensors: Sequence[Tensor], drop: int = 0) -> Form | None:
    """The form of such a model, or of rows of such stacks (`drop` = 1); None where a tensor is not plain float32."""
    for value in tensors:
        if type(value) is not Tensor or value.dtype != torch.float32 or value.requires_grad or not value.numel():
            return None
        if value.device.type != "cpu" or not value.is_contiguous():
            return None
    if not names or not all(type(name) is str for name in names):
        return None
    key = tuple(names), tuple(tuple(value.shape[drop:]) for value in tensors)
    found = _FORMS.get(key)
    return _FORMS.setdefault(key, Form(*key)) if found is None else found


def row_of(model: dict[str, Tensor]) -> Row | None:
    """A model as a row of a stack; None where that cannot be."""
    if type(model) is Row and model.stack is not None:
        return model
    form = form_of(tuple(model), list(model.values()))
    if form is None:
        return None
    row = form.fresh()
    assert row.stack is not None
    for stack, value in zip(row.stack.arrays, model.values(), strict=True):
        stack[row.at] = value.numpy()
    return row


def moved(a: dict[str, Tensor], b: dict[str, Tensor], share: float, between: bool) -> Row | None:
    """a + share (b - a), or without `between` a + share b, as a new row; None where the two are not of one form.

    Each number is computed and rounded as by three operations of PyTorch, so the bits are the same.
    """
    one, other = row_of(a), row_of(b)
    if one is None or other is None or one.stack is None or other.stack is None:
        return None
    form = one.stack.form
    if other.stack.form is not form:
        return None
    new = form.fresh()
    assert new.stack is not None
    if compiled.ready():
        compiled.kernels("moving").move(
            one.stack.addresses, one.at, other.stack.addresses, other.at, new.stack.addresses, new.at, form.counts,
            share, between,
        )  # fmt: skip
        return new
    for x, y, out in zip(one.stack.arrays, other.stack.arrays, new.stack.arrays, strict=True):
        into = out[new.at, ...]
        if between:
            np.subtract(y[other.at], x[one.at], out=into)
            np.multiply(into, np.float32(share), out=into)
        else:
            np.multiply(y[other.at], np.float32(share), out=into)
        np.add(into, x[one.at], out=into)
    return new


def gathered(rows: Sequence[Row]) -> list[Tensor]:
    """One stack for each name of these models, which are of one form: a part of theirs, where they stand in order."""
    first, last = rows[0], rows[-1]
    assert first.stack is not None
    form, count = first.stack.form, len(rows)
    if last.stack is first.stack and last.at - first.at == count - 1:
        whole = all(row.stack is first.stack and row.at == at for at, row in enumerate(rows, first.at))
        if whole:
            return [tensor[first.at : first.at + count] for tensor in first.stack.tensors]
    out = [torch.empty((count, *shape)) for shape in form.shapes]
    if compiled.ready() and len({id(row.stack) for row in rows}) > count // 4:  # runs of rows would be short
        given = np.array([_addresses(row) for row in rows])
        to = np.array([tensor.data_ptr() for tensor in out], dtype=np.int64)
        compiled.kernels("exchanging").gather(given, to, form.counts)
        return out
    begin = 0
    for end in range(1, count + 1):  # runs of rows of one stack
        stack = rows[begin].stack
        assert stack is not None
        if end < count and rows[end].stack is stack:
            continue
        places = torch.tensor([row.at for row in rows[begin:end]])
        for into, tensor in zip(out, stack.tensors, strict=True):
            torch.index_select(tensor, 0, places, out=into[begin:end])
        begin = end
    return out


def _addresses(row: Row) -> Places:
    assert row.stack is not None
    return row.stack.addresses + 4 * row.at * row.stack.form.counts if row.at else row.stack.addresses


def place_of(model: dict[str, Tensor]) -> tuple[Form, Places] | None:
    """The form of a model and where its tensors are in memory; None where it has no form."""
    if type(model) is Row and model.stack is not None:
        return model.stack.form, _addresses(model)
    tensors = list(model.values())
    found = form_of(tuple(model), tensors)
    return None if found is None else (found, np.array([tensor.data_ptr() for tensor in tensors], dtype=np.int64))


def copied(model: dict[str, Tensor]) -> dict[str, Tensor]:
    """A copy that keeps no stack alive; a row, where kernels can make one."""
    place = place_of(model) if compiled.ready() else None
    if place is None:
        return {name: value.clone() for name, value in model.items()}
    form, addresses = place
    new = form.single()
    assert new.stack is not None
    compiled.kernels("exchanging").gather(addresses[None], new.stack.addresses, form.counts)
    return new


def blended(model: dict[str, Tensor], keep: float, parts: Sequence[tuple[dict[str, Tensor], float]]) -> Row | None:
    """keep model + the sum of one or two parts by their factors; None where they are not of one form.

    Each part is added as by `add_` of PyTorch, in the order given, so the bits are the same.
    """
    places = [place_of(one) for one in (model, *(part for part, _ in parts))] if compiled.ready() else [None]
    first, *others = places
    if first is None or not 0 < len(others) <= 2:
        return None
    form, addresses = first
    given = [addresses]
    for place in others:
        if place is None or place[0] is not form:
            return None
        given.append(place[1])
    new = form.single()
    assert new.stack is not None
    (_, by), (_, by_last) = parts[0], parts[-1]
    compiled.kernels("exchanging").blend(
        given[0], np.float32(keep), given[1], np.float32(by), given[-1], np.float32(by_last), new.stack.addresses,
        form.counts, len(parts) == 2,
    )  # fmt: skip
    return new


def rebased(newer: Tensor, models: Sequence[Tensor], restart: bool) -> list[Tensor]:
    """The tensors of stacks of models on a newer base, and then those of the bases: now + (new - base), or new.

    `newer` (clients) says who has a newer one. `models` are the stacks of new, then those of now, then those of base.
    """
    count = len(models) // 3
    parts = models[:count], models[count : 2 * count], models[2 * count :]
    if not compiled.ready() or any(value.dtype != torch.float32 or value.device.type != "cpu" for value in models):
        who = [newer.reshape(-1, *[1] * (value.dim() - 1)) for value in parts[0]]
        moved = [new if restart else now + (new - base) for new, now, base in zip(*parts, strict=True)]
        weights = [torch.where(one, value, now) for one, value, now in zip(who, moved, parts[1], strict=True)]
        return weights + [torch.where(one, new, base) for one, new, base in zip(who, parts[0], parts[2], strict=True)]
    given = [[value if value[0].is_contiguous() else value.contiguous() for value in part] for part in parts]
    out = [torch.empty(value.shape) for _ in range(2) for value in given[0]]
    places = [
        np.array([value.data_ptr() for value in part], dtype=np.int64) for part in (*given, out[:count], out[count:])
    ]
    steps = np.array([[value.stride(0) for value in part] for part in given], dtype=np.int64)
    counts = np.array([value[0].numel() for value in given[0]], dtype=np.int64)
    compiled.kernels("exchanging").rebase(
        *places[:3], steps, *places[3:], counts, len(newer), newer.to(torch.uint8).contiguous().numpy(), restart
    )
    return out
