"""Mutated messages: an honest answer with something in it changed at random, as bytes that arrive.

A head is changed as a tree or as text, a body as bytes, as a skeleton, or in a tensor's type, shape and numbers. Some
of the results are answers that an honest client could give; most are not.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from potluck.engines.flower.protocol import Envelope, head_of
from potluck.errors import BadInput
from potluck.lab.chance import Chance

# Texts that stand for what `json.dumps` cannot write, or writes too slowly.
RAW = {
    '"<1e999>"': "1e999",
    '"<-1e999>"': "-1e999",
    '"<nan>"': "NaN",
    '"<digits>"': "1" + "0" * 400,
    '"<more digits>"': "1" + "0" * 5000,
    '"<deep>"': "[" * 3000 + "]" * 3000,
    '"<long>"': '"' + "x" * 20_000 + '"',
}
VALUES: tuple[Any, ...] = (
    *(json.loads(mark) for mark in RAW),
    *(None, True, False, -1, 0, 1, 2, 7, 0.5, -0.5, 1e9, 1e308, 2**31, 2**53 + 1, 2**63, 2**64, 10**30),
    *("", "x", "12", "nan", "lone \ud800", "line\nline", "\x00", "../../x", "c0000", "s00", "task", "hello"),
    *([], {}, [[]], [1, 2], {"a": 1}, ["x", 0], ["f", "inf"], ["f", "1e999"], ["c", "Train", []], ["d", [[1, 2]]]),
)
TYPES = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I16", "I8", "U8", "U64", "BOOL", "C64", "?")
NUMBERS = tuple(
    struct.pack("<f", value) for value in (float("nan"), float("inf"), float("-inf"), 3.4e38, -3.4e38, 1e-45)
)
TICKET = "<ticket>"
SHORTEST = 8  # bytes of a header's length


def mutated(honest: Envelope, other: Envelope, chance: Chance, ticket: str = "") -> Envelope:
    """The honest answer with one to three changes, as the transport delivers it; `other` is some other answer.

    `ticket` takes the place of TICKET at the end, so that its length does not decide what is changed.
    """
    text, body = _text(honest.head), honest.body
    of_head = not body or chance.share() < 0.3
    for _ in range(chance.one((1, 1, 1, 2, 3))):
        if of_head:
            text = chance.one(HEADS)(text, other, chance)
        else:
            body = chance.one(BODIES)(body, other, chance)
    if not honest.body and chance.share() < 0.05:
        body = chance.noise(chance.whole(1, 300))
    try:
        return Envelope(head_of(text.replace(TICKET, ticket)), body)
    except BadInput as error:  # as the transport does
        return Envelope({"refused": error.told})


# -- heads -----------------------------------------------------------------------------------------------------------


def _text(tree: Any) -> str:
    text = json.dumps(tree)
    if '"<' in text:
        for mark, raw in RAW.items():
            text = text.replace(mark, raw)
    return text


def _in_tree(text: str, other: Envelope, chance: Chance) -> str:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _text(_changed(tree, chance))


def _in_text(text: str, other: Envelope, chance: Chance) -> str:
    if not text:
        return text
    at = chance.whole(0, len(text) - 1)
    return text[:at] + chance.one('0123456789"{}[],:.-eE nul\\\x00é') + text[at + chance.whole(0, 2) :]


def _cut_text(text: str, other: Envelope, chance: Chance) -> str:
    return text[: chance.whole(0, len(text))]


def _other_head(text: str, other: Envelope, chance: Chance) -> str:
    return _text(other.head)


def _refusal(text: str, other: Envelope, chance: Chance) -> str:
    return _text({"refused": chance.one(VALUES)})


def _changed(tree: Any, chance: Chance) -> Any:
    """A tree of JSON with one of its places changed; the tree itself changes, too."""
    places: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict | list):
            keys = list(inner) if isinstance(inner, dict) else range(len(inner))
            places += [(inner, key) for key in keys]
            waiting += [inner[key] for key in keys]
    if not places:
        return chance.one(VALUES)
    holder, key = chance.one(places)
    what = chance.whole(0, 9)
    if what == 0:
        del holder[key]
    elif what == 1 and isinstance(holder, dict):
        holder[f"{key}{chance.one(('', 's', ' '))}x"] = holder[key]
    elif what == 1:
        holder.insert(key, holder[key])
    elif what == 2:
        holder[key] = json.loads(json.dumps(chance.one(places)[0]))  # a part of the tree in another place
    elif what == 3 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = holder[key] * chance.one((2, -1, 10)) + chance.whole(-1, 1)
    elif what == 4 and isinstance(holder, dict):
        holder[key], again = chance.one(VALUES), chance.one(list(holder))
        holder[again] = chance.one(VALUES)
    else:
        holder[key] = chance.one(VALUES)
    return tree


# -- bodies ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _parsed(body: bytes) -> tuple[str, bytes] | None:
    """The header and the numbers of a body; None if it has no header any more."""
    end = SHORTEST + int.from_bytes(body[:SHORTEST], "little")
    try:
        header = body[SHORTEST:end].decode()
        json.loads(header)
    except (ValueError, RecursionError):
        return None
    return header, body[end:]


def _joined(header: str, numbers: bytes) -> bytes:
    raw = header.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(SHORTEST, "little") + raw + numbers


def _flipped(body: bytes, other: Envelope, chance: Chance) -> bytes:
    """Some bytes are others, anywhere."""
    changed = bytearray(body)
    for _ in range(chance.whole(1, 8) if changed else 0):
        changed[chance.whole(0, len(changed) - 1)] = chance.whole(0, 255)
    return bytes(changed)


def _cut(body: bytes, other: Envelope, chance: Chance) -> bytes:
    return body[: chance.whole(0, len(body))]


def _longer(body: bytes, other: Envelope, chance: Chance) -> bytes:
    at = chance.whole(0, len(body))
    return body[:at] + chance.noise(chance.whole(1, 40)) + body[at:]


def _noise(body: bytes, other: Envelope, chance: Chance) -> bytes:
    return chance.noise(chance.whole(0, 400))


def _spliced(body: bytes, other: Envelope, chance: Chance) -> bytes:
    """The beginning of one body and the end of another."""
    return body[: chance.whole(0, len(body))] + other.body[chance.whole(0, len(other.body)) :]


def _length(body: bytes, other: Envelope, chance: Chance) -> bytes:
    wrong = chance.one((0, 1, len(body), len(body) * 2, 2**31, 2**63 - 1, 2**64 - 1, chance.whole(0, 2 * len(body))))
    return wrong.to_bytes(SHORTEST, "little") + body[SHORTEST:]


def _of_header(change: Callable[[dict[str, Any], Chance], None]) -> Callable[[bytes, Envelope, Chance], bytes]:
    """Change the parsed header; the numbers stay."""

    def lie(body: bytes, other: Envelope, chance: Chance) -> bytes:
        parsed = _parsed(body)
        header = None if parsed is None else json.loads(parsed[0])
        if parsed is None or not isinstance(header, dict):
            return _flipped(body, other, chance)
        change(header, chance)
        return _joined(_text(header), parsed[1])

    return lie


def _skeleton(header: dict[str, Any], chance: Chance) -> None:
    about = header.get("__metadata__")
    try:
        tree = json.loads(about["potluck"])  # type: ignore[index]
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    about["potluck"] = _text(_changed(tree, chance))  # type: ignore[index]


def _anywhere(header: dict[str, Any], chance: Chance) -> None:
    _changed(header, chance)


def _one_tensor(header: dict[str, Any], chance: Chance) -> dict[str, Any] | None:
    named = [one for name, one in header.items() if name != "__metadata__" and isinstance(one, dict)]
    return chance.one(named) if named else None


def _type(header: dict[str, Any], chance: Chance) -> None:
    one = _one_tensor(header, chance)
    if one is not None:
        one["dtype"] = chance.one(TYPES)


def _shape(header: dict[str, Any], chance: Chance) -> None:
    one = _one_tensor(header, chance)
    shape = None if one is None else one.get("shape")
    if one is None or not isinstance(shape, list):
        return
    shapes = ([*shape, 1], [1, *shape], shape[::-1], shape[1:], [2**62, *shape], [0, *shape], [-1], [2**32, 2**32])
    one["shape"] = chance.one(shapes)


def _exchanged(header: dict[str, Any], chance: Chance) -> None:
    """Two tensors exchange their places, or share one."""
    one, two = _one_tensor(header, chance), _one_tensor(header, chance)
    if one is not None and two is not None:
        one["data_offsets"], two["data_offsets"] = two.get("data_offsets"), chance.one((one, two)).get("data_offsets")


def _number(body: bytes, other: Envelope, chance: Chance) -> bytes:
    """Numbers of a tensor are not finite, enormous or tiny; or all are zero."""
    parsed = _parsed(body)
    if parsed is None or len(parsed[1]) < 4:
        return _flipped(body, other, chance)
    numbers = bytearray(parsed[1])
    if chance.share() < 0.05:
        return _joined(parsed[0], bytes(len(numbers)))
    for _ in range(chance.whole(1, 4)):
        at = chance.whole(0, len(numbers) // 4 - 1) * 4
        numbers[at : at + 4] = chance.one(NUMBERS)
    return _joined(parsed[0], bytes(numbers))


HEADS = (_in_tree, _in_tree, _in_tree, _in_tree, _in_text, _in_text, _cut_text, _other_head, _refusal)
BODIES = (
    *(_flipped, _cut, _longer, _noise, _spliced, _length, _number, _number),
    *(_of_header(change) for change in (_skeleton, _skeleton, _skeleton, _anywhere, _type, _shape, _exchanged)),
)
