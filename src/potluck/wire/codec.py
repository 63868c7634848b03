"""Messages and states as bytes: safetensors for the tensors, JSON for the rest, never code.

A value is a tree of dataclasses, dicts, lists, tuples, tensors, numbers, strings and None. `flatten` splits it into a
skeleton (JSON text with numbered holes) and its tensors. Decoding makes only objects of classes that the caller names.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from json.encoder import encode_basestring_ascii
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.rows import Row, Stack, form_of

# JSON: a scalar, or [tag, ...] with tag in x (tensor) d (dict) l (list) t (tuple) c (dataclass) f (odd float)
Node = Any
Kinds = tuple[tuple[tuple[int, ...], str], ...]  # shapes and types
_NAMES = {dtype: str(dtype) for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
KEPT = 1 << 20  # characters of the longest skeleton that is kept parsed


def flatten(value: Any) -> tuple[str, list[Tensor]]:
    """The skeleton of a value and the tensors that fill its holes, in a fixed order, one hole each."""
    tensors: list[Tensor] = []
    return _text(value, tensors, None), tensors


def _shared(value: Any) -> tuple[str, list[Tensor]]:
    """As `flatten`, but a tensor that occurs in several places is kept once: hundreds of tasks may hold one model."""
    tensors: list[Tensor] = []
    return _text(value, tensors, {}), tensors


_SCALARS: dict[type, Callable[[Any], str]] = {  # as JSON has them
    str: encode_basestring_ascii,
    int: int.__repr__,
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}


# The texts of frozen values without tensors, by identity: the same recipe goes with every task.
_SETTINGS: dict[int, tuple[Any, str]] = {}


@lru_cache(maxsize=1024)
def fields_of(kind: type) -> tuple[str, ...]:
    """The names of a dataclass's fields; empty for any other class."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


def _text(value: Any, tensors: list[Tensor], seen: dict[int, int] | None) -> str:
    """The skeleton, as text at once: each task of an asynchronous run is a new message, so this runs for all of them.

    `seen` has the places of the tensors so far, where each is kept once.
    """
    kind: Any = type(value)  # the usual kinds first
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    if kind is dict or kind is Row:
        known = _model(value, tensors, seen)
        if known is not None:
            return known
    if kind is Tensor or isinstance(value, Tensor):
        if seen is not None and seen.setdefault(id(value), len(tensors)) < len(tensors):
            return f'["x",{seen[id(value)]}]'
        tensors.append(value)
        return f'["x",{len(tensors) - 1}]'
    if kind is float:
        return float.__repr__(value) if math.isfinite(value) else f'["f","{value}"]'
    if id(value) in _SETTINGS and _SETTINGS[id(value)][0] is value:
        return _SETTINGS[id(value)][1]
    names = fields_of(kind)
    if names or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        found = [getattr(value, name) for name in names]
        text = f'["c","{kind.__name__}",[{",".join([_text(one, tensors, seen) for one in found])}]]'
        if kind.__dataclass_params__.frozen and all(type(one) in _SCALARS or type(one) is float for one in found):
            if len(_SETTINGS) >= 256:
                _SETTINGS.clear()
            _SETTINGS[id(value)] = value, text
        return text
    for known_kind in (bool, int, str):
        if isinstance(value, known_kind):
            return _SCALARS[known_kind](value)
    if isinstance(value, float):
        return _text(float(value), tensors, seen)
    if isinstance(value, np.generic):
        return _text(value.item(), tensors, seen)
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str | int):
                raise TypeError(f"a mapping key must be a string or an integer to be sent or saved, got {name!r}")
        items = [f"[{_text(name, tensors, seen)},{_text(item, tensors, seen)}]" for name, item in value.items()]
        return f'["d",[{",".join(items)}]]'
    if isinstance(value, tuple | list):
        items = [_text(item, tensors, seen) for item in value]
        return f'["{"t" if isinstance(value, tuple) else "l"}",[{",".join(items)}]]'
    raise TypeError(
        f"{type(value).__name__} cannot be sent or saved: use tensors, numbers, strings and dataclasses of them"
    )


def _model(value: dict[Any, Any], tensors: list[Tensor], seen: dict[int, int] | None) -> str | None:
    """The skeleton of a model, a dict of tensors, in one step; None for any other dict."""
    found = list(value.values())
    if set(map(type, found)) != {Tensor}:
        return None
    first = len(tensors)
    text = _holes(tuple(value), first)
    if text is None:
        return None
    if seen is not None:
        ids = {id(tensor): first + i for i, tensor in enumerate(found)}
        if len(ids) < len(found) or not seen.keys().isdisjoint(ids):
            return None
        seen |= ids
    tensors += found
    return text


@lru_cache(maxsize=4096)
def _holes(names: tuple[Any, ...], first: int) -> str | None:
    """The skeleton of tensors with these names; None where a name is no text."""
    if not all(type(name) is str for name in names):
        return None
    items = [f'[{encode_basestring_ascii(name)},["x",{place}]]' for place, name in enumerate(names, first)]
    return f'["d",[{",".join(items)}]]'


def rebuild(skeleton: str, tensors: Sequence[Any], classes: Mapping[str, type]) -> Any:
    """Put a value together again. Dataclasses are looked up in `classes` only."""
    known = len(skeleton) <= KEPT
    return _whole(_parsed(skeleton) if known else json.loads(skeleton), tensors, classes)


@lru_cache(maxsize=256)
def _parsed(skeleton: str) -> Node:
    return json.loads(skeleton)


def _whole(node: Node, tensors: Sequence[Any], classes: Mapping[str, type]) -> Any:
    if not isinstance(node, list):
        if isinstance(node, dict):
            raise BadInput(Code.MESSAGE, "message: a value must be a scalar or a list, got an object.")
        return node
    tag, body = node[0], node[1]
    if tag == "x":
        if type(body) is not int or not 0 <= body < len(tensors):
            raise BadInput(Code.MESSAGE, f"message: a tensor's number must be below {len(tensors)}, got {body!r}.")
        return tensors[body]
    if tag == "d":
        return {name: _whole(item, tensors, classes) for name, item in body}
    if tag == "t":
        return tuple(_whole(item, tensors, classes) for item in body)
    if tag == "l":
        return [_whole(item, tensors, classes) for item in body]
    if tag == "f":
        return float(body)
    if tag == "c":
        if body not in classes:
            raise BadInput(
                Code.MESSAGE,
                f"message: a class must be one of {', '.join(sorted(classes)) or 'none'}, got {body!r}.",
            )
        kind = classes[body]
        names = fields_of(kind)
        if len(names) != len(node[2]):
            raise BadInput(Code.MESSAGE, f"message: {body} must have {len(names)} fields, got {len(node[2])}.")
        return kind(**{name: _whole(item, tensors, classes) for name, item in zip(names, node[2], strict=True)})
    raise BadInput(Code.MESSAGE, f"message: unknown tag {tag!r}.")


Column = Callable[[Sequence[Sequence[Any]], int], Iterable[Any]]  # (tensors of each hole, how many) -> the values


def column(skeleton: str, classes: Mapping[str, type]) -> Column:
    """`rebuild` for many values of one skeleton, of this process's own: each hole has a column of tensors."""
    return _column(json.loads(skeleton), classes)


def _column(node: Node, classes: Mapping[str, type]) -> Column:
    if not isinstance(node, list):
        return lambda holes, count: repeat(node, count)
    tag, body = node[0], node[1]
    if tag == "x":
        return lambda holes, count: holes[body]
    if tag == "d" and body and all(isinstance(item, list) and item[0] == "x" for _, item in body):
        names, places = tuple(name for name, _ in body), [item[1] for _, item in body]
        return lambda holes, count: _models(names, places, holes, count)
    if tag == "c" and body in classes and len(fields_of(classes[body])) == len(node[2]) > 0:
        kind, fields = classes[body], fields_of(classes[body])
        parts = [_column(item, classes) for item in node[2]]
        make = _maker(kind, fields)
        return lambda holes, count: [make(row) for row in zip(*(part(holes, count) for part in parts), strict=True)]
    return lambda holes, count: [
        _whole(node, row, classes) for row in (zip(*holes, strict=True) if holes else repeat((), count))
    ]


def fields_in(skeleton: str, classes: Mapping[str, type]) -> dict[str, int | dict[str, int]]:
    """The holes of a dataclass's fields: of each that is a tensor, or a dict of tensors."""
    node = json.loads(skeleton)
    if not isinstance(node, list) or node[0] != "c" or node[1] not in classes:
        return {}
    found: dict[str, int | dict[str, int]] = {}
    for name, item in zip(fields_of(classes[node[1]]), node[2], strict=True):
        if isinstance(item, list) and item[0] == "x":
            found[name] = item[1]
        elif isinstance(item, list) and item[0] == "d" and all(isinstance(v, list) and v[0] == "x" for _, v in item[1]):
            found[name] = {key: hole[1] for key, hole in item[1]}
    return found


def _maker(kind: Any, fields: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Any]:
    """Makes a dataclass of its fields; a frozen one without its `__init__`, which takes three times as long."""
    settings = vars(kind).get("__dataclass_params__")
    usual = settings is not None and settings.init and settings.frozen and not hasattr(kind, "__post_init__")
    if not usual or hasattr(kind, "__slots__") or not all(field.init for field in dataclasses.fields(kind)):
        return lambda row: kind(**dict(zip(fields, row, strict=True)))
    new = object.__new__

    def make(row: tuple[Any, ...]) -> Any:
        value = new(kind)
        value.__dict__.update(zip(fields, row, strict=True))
        return value

    return make


class Stacked(Sequence[Sequence[Any]]):
    """The holes of a stack's values: tensors of all clients, taken apart when somebody asks for those of each."""

    def __init__(self, stacks: Sequence[Tensor], models: dict[tuple[int, ...], list[Row]]) -> None:
        self.stacks = stacks
        self.models = models  # that were made of these tensors: what is in two parts of a result is one object
        self._rows: dict[int, Sequence[Tensor]] = {}

    def __len__(self) -> int:
        return len(self.stacks)

    def __getitem__(self, i: Any) -> Any:
        if i not in self._rows:
            self._rows[i] = self.stacks[i].unbind(0)
        return self._rows[i]


def _models(names: tuple[Any, ...], places: list[int], holes: Sequence[Sequence[Any]], count: int) -> list[Any]:
    """Dicts of tensors; rows of a stack where the holes are one."""
    if isinstance(holes, Stacked):
        stacks = [holes.stacks[i] for i in places]
        form, which = form_of(names, stacks, drop=1), tuple(map(id, stacks))
        if form is not None and which not in holes.models:
            stack = Stack(form, stacks)
            holes.models[which] = [Row(stack, at) for at in range(count)]
        if form is not None:
            return holes.models[which]
    return [dict(zip(names, row, strict=True)) for row in zip(*(holes[i] for i in places), strict=True)]


def encode(value: Any) -> bytes:
    """Write a value as bytes; equal values give equal bytes."""
    skeleton, tensors = _shared(value)
    named = {str(i): tensor.detach().clone(memory_format=torch.contiguous_format) for i, tensor in enumerate(tensors)}
    return save_tensors(named, metadata={"potluck": skeleton})


def decode(data: bytes, classes: Mapping[str, type]) -> Any:
    """Read the value in these bytes. Anything that is not well formed raises BadInput.

    Every error counts: of nesting without end, of numbers with thousands of digits, of classes with checks of their
    own, of a library that meets a type it does not know.
    """
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        skeleton = header["__metadata__"]["potluck"]
        named = load_tensors(data)
        return rebuild(skeleton, [named[str(i)] for i in range(len(named))], classes)
    except BadInput:
        raise
    except Exception as error:
        reason = " ".join(str(error)[:200].encode("ascii", "backslashreplace").decode().split())
        raise BadInput(
            Code.MESSAGE, f"message: these {len(data)} bytes are not a well-formed message ({reason})."
        ) from error


def plain_entry(data: bytes, name: str) -> Any:
    """One entry of an encoded dict that holds no tensor and no dataclass; None if there is none of that name."""
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        _, entries = json.loads(header["__metadata__"]["potluck"])
        return next((_whole(item, (), {}) for key, item in entries if key == name), None)
    except BadInput:
        raise
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise BadInput(Code.MESSAGE, f"message: these {len(data)} bytes are not well formed ({error}).") from error


def size(value: Any) -> int:
    """The length of `encode(value)`, without encoding the numbers."""
    skeleton, tensors = _shared(value)
    return _size(skeleton, kinds_of(tensors))


def size_of(value: Any, skeleton: str, kinds: Kinds, tensors: Sequence[Tensor]) -> int:
    """The same of a value that is taken apart already."""
    each_once = len(set(map(id, tensors))) == len(tensors)
    return _size(skeleton, kinds) if each_once else size(value)


@lru_cache(maxsize=4096)
def _size(skeleton: str, kinds: Kinds) -> int:
    named = {str(i): torch.empty(shape, dtype=_DTYPES[dtype]) for i, (shape, dtype) in enumerate(kinds)}
    return len(save_tensors(named, metadata={"potluck": skeleton}))


def kinds_of(tensors: Sequence[Tensor], drop: int = 0) -> Kinds:
    """Shapes and types of tensors; the first `drop` axes are left out."""
    return tuple([(tuple(tensor.shape[drop:] if drop else tensor.shape), _NAMES[tensor.dtype]) for tensor in tensors])


def walk(value: Any, visit: Callable[[Tensor], Tensor]) -> Any:
    """The same value with `visit` applied to every tensor."""
    if isinstance(value, Tensor):
        return visit(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{name: walk(getattr(value, name), visit) for name in fields_of(type(value))})
    if isinstance(value, Mapping):
        return {name: walk(item, visit) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(walk(item, visit) for item in value)
    if isinstance(value, list):
        return [walk(item, visit) for item in value]
    return value
