"""What a hostile client says. Each lie must be refused: the run is then as if the client had not answered.

`LIES` maps a name to the kind of message that it answers, and a function of question, honest answer and chance.
A lie that cannot be told about an answer, because it has no tensors for instance, is the honest answer itself.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from potluck.engines.flower.protocol import Envelope
from potluck.lab.chance import Chance

Lie = Callable[[Envelope, Envelope, Chance], Envelope]

HUGE = 10**400
LONE = "lone \ud800 surrogate"
NASTY: tuple[Any, ...] = (HUGE, -1, float("nan"), float("inf"), LONE, "x" * 100_000, {"a": [1]}, [[]], True, "12\n")


def _head(field: str) -> Lie:
    """A field of the head has a value that no honest client sends."""

    def lie(ask: Envelope, answer: Envelope, chance: Chance) -> Envelope:
        wrong = [one for one in NASTY if one is not answer.head.get(field)]
        return Envelope({**answer.head, field: chance.one(wrong)}, answer.body)

    return lie


def _card(ask: Envelope, answer: Envelope, chance: Chance) -> Envelope:
    """One or two entries on the card of a greeting are wrong."""
    head = copy.deepcopy(answer.head)
    for field in chance.some(("train", "test", "valid", "memory", "macs_per_second", "shape", "device", "link"), 2):
        head["clients"][0][field] = chance.one(NASTY)
    return Envelope(head)


def _crowd(ask: Envelope, answer: Envelope, chance: Chance) -> Envelope:
    """One key speaks for many clients."""
    one = answer.head["clients"][0]
    many = [{**one, "name": f"{one['name']}-{i}"} for i in range(chance.whole(2, 300))]
    return Envelope({**answer.head, "clients": [one, *many]})


def _refusal(ask: Envelope, answer: Envelope, chance: Chance) -> Envelope:
    return Envelope({"refused": chance.one(NASTY)})


def _tensors(change: Callable[[Tensor], Tensor]) -> Lie:
    """All tensors of an update are changed; the skeleton stays."""

    def lie(ask: Envelope, answer: Envelope, chance: Chance) -> Envelope:
        if not load(answer.body):
            return answer  # it has none
        skeleton = _skeleton(answer.body)
        return Envelope(answer.head, save({k: change(v) for k, v in load(answer.body).items()}, {"potluck": skeleton}))

    return lie


def _skeleton(body: bytes) -> str:
    header = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
    return str(header["__metadata__"]["potluck"])


def _long_number(ask: Envelope, answer: Envelope, chance: Chance) -> Envelope:
    """A number of 400 digits where the skeleton has a tensor."""
    skeleton = _skeleton(answer.body)
    if '["x",' not in skeleton:
        return answer
    last = skeleton.rindex('["x",')
    end = skeleton.index("]", last)
    wrong = skeleton[:last] + '["f",1' + "0" * 400 + skeleton[end:]
    return Envelope(answer.head, save(load(answer.body), {"potluck": wrong}))


def _cut(ask: Envelope, answer: Envelope, chance: Chance) -> Envelope:
    return Envelope(answer.head, answer.body[: chance.whole(0, len(answer.body) - 1)])


def _noise(ask: Envelope, answer: Envelope, chance: Chance) -> Envelope:
    return Envelope(answer.head, chance.noise(chance.whole(0, 5000)))


def _header(ask: Envelope, answer: Envelope, chance: Chance) -> Envelope:
    """Bytes of the header, or of its length, are such that it cannot be read."""
    body = bytearray(answer.body)
    for _ in range(chance.whole(1, 3)):
        body[chance.whole(6, 7 + int.from_bytes(answer.body[:8], "little"))] = 0xFF
    return Envelope(answer.head, bytes(body))


def _float8(value: Tensor) -> Tensor:
    return value.float().to(torch.float8_e4m3fn)


def _other(field: str, value: Any) -> Lie:
    return lambda ask, answer, chance: Envelope({**answer.head, field: value}, answer.body)


LIES: dict[str, tuple[str, Lie]] = {
    "card": ("hello", _card),
    "crowd": ("hello", _crowd),
    "greeting refused": ("hello", _refusal),
    "join refused": ("join", _refusal),
    "joined": ("join", _head("joined")),
    "right": ("evaluate", _head("right")),
    "loss": ("evaluate", _head("loss")),
    "kept": ("evaluate", _head("kept")),
    "own": ("evaluate", _head("own")),
    "scores refused": ("evaluate", _refusal),
    "a field of the state": ("evaluate", _other("missing", "table")),
    "ticket": ("task", _other("ticket", "9.9")),
    "another leg": ("task", _other("leg", 7)),
    "another's name": ("task", _other("client", "nobody")),
    "worked": ("task", _head("worked")),
    "handed": ("task", _head("handed")),
    "unknown field": ("task", _other("weight", 9)),
    "task refused": ("task", _refusal),
    "not a number": ("task", _tensors(lambda v: torch.full_like(v, torch.nan) if v.is_floating_point() else v)),
    "infinite": ("task", _tensors(lambda v: torch.full_like(v, torch.inf) if v.is_floating_point() else v)),
    "shape": ("task", _tensors(lambda v: v.reshape(-1)[: v.numel() // 2][None, None])),
    "float8": ("task", _tensors(_float8)),
    "float64": ("task", _tensors(lambda v: v.double())),
    "complex": ("task", _tensors(lambda v: v.to(torch.complex64))),
    "400 digits": ("task", _long_number),
    "cut short": ("task", _cut),
    "noise": ("task", _noise),
    "header": ("task", _header),
}
