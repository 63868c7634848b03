"""A mapping whose changed copy shares nearly everything with the original.

A server program yields a frozen state at every arrival. With ten thousand clients a plain dict in it would be copied
whole each time. Here a change copies a few small pieces, whatever the size (Bagwell, "Ideal Hash Trees", 2001).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar, overload
from zlib import crc32

V = TypeVar("V")
D = TypeVar("D")
_BITS = 4  # sixteen parts at each level
_WIDTH = 1 << _BITS
_FULL = 8  # entries of one part before it is divided
_DEEPEST = 32 // _BITS


class SharedMap(Mapping[str, V], Generic[V]):
    """A map that never changes: `put` and `drop` return another one. Iteration is not in the order of insertion."""

    __slots__ = ("_root", "_size")

    def __init__(self, root: Any = None, size: int = 0) -> None:
        self._root: Any = {} if root is None else root
        self._size = size

    @classmethod
    def of(cls, items: Mapping[str, V]) -> SharedMap[V]:
        """A SharedMap with the same entries; a SharedMap is returned as it is."""
        if isinstance(items, SharedMap):
            return items
        made: SharedMap[V] = cls()
        for key, value in items.items():
            made = made.put(key, value)
        return made

    def put(self, key: str, value: V) -> SharedMap[V]:
        root, grown = _put(self._root, crc32(key.encode()), 0, key, value)
        return SharedMap(root, self._size + grown)

    def drop(self, key: str) -> SharedMap[V]:
        """The map without this key; the same map where it does not have the key."""
        if key not in self:
            return self
        return SharedMap(_drop(self._root, crc32(key.encode()), key), self._size - 1)

    def __getitem__(self, key: str) -> V:
        node, code = self._root, crc32(key.encode())
        while isinstance(node, tuple):
            node, code = node[code % _WIDTH], code >> _BITS
        value: V = node[key]
        return value

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, /, default: V | D) -> V | D: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        node, code = self._root, crc32(key.encode())  # once, where the usual `get` waits for an error
        while isinstance(node, tuple):
            node, code = node[code % _WIDTH], code >> _BITS
        return node.get(key, default)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        node, code = self._root, crc32(key.encode())
        while isinstance(node, tuple):
            node, code = node[code % _WIDTH], code >> _BITS
        return key in node

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        todo = [self._root]
        while todo:
            node = todo.pop()
            if isinstance(node, tuple):
                todo.extend(node)
            else:
                yield from node


def share(value: Any, *names: str) -> None:
    """Make these fields of a frozen dataclass SharedMaps; to be called in its `__post_init__`.

    A checkpoint restores a mapping as a dict, so the class itself turns it back.
    """
    for name in names:
        object.__setattr__(value, name, SharedMap.of(getattr(value, name)))


def _put(node: Any, code: int, depth: int, key: str, value: Any) -> tuple[Any, int]:
    if isinstance(node, tuple):
        way = code % _WIDTH
        child, grown = _put(node[way], code >> _BITS, depth + 1, key, value)
        return (*node[:way], child, *node[way + 1 :]), grown
    grown = 0 if key in node else 1
    leaf = {**node, key: value}
    if len(leaf) <= _FULL or depth == _DEEPEST:
        return leaf, grown
    ways: tuple[dict[str, Any], ...] = tuple({} for _ in range(_WIDTH))
    for name, item in leaf.items():
        ways[(crc32(name.encode()) >> (_BITS * depth)) % _WIDTH][name] = item
    return ways, grown


def _drop(node: Any, code: int, key: str) -> Any:
    if isinstance(node, tuple):
        way = code % _WIDTH
        return (*node[:way], _drop(node[way], code >> _BITS, key), *node[way + 1 :])
    return {name: item for name, item in node.items() if name != key}
