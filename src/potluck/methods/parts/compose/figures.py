"""What each part of a composed method did, for the run's record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor

from potluck.fleet import Arrival, ClientId, Fleet, Message
from potluck.methods.parts.centaur import samples
from potluck.methods.parts.compose.choice import AXES, PARTS
from potluck.methods.parts.compose.kit import TOGETHER, clusters_of
from potluck.methods.parts.compose.shapes import Upload
from potluck.methods.parts.echopfl.clusters import Grouping
from potluck.needs import ACCESS_POINTS, SERVER_ROWS


def useful(names: Sequence[str], given: Mapping[str, Any]) -> list[str]:
    """Of these settings those that no part has, or one of the parts that are given (the defaults elsewhere)."""
    spelled = dict(zip(AXES, str(given.get("parts") or "").split("/"), strict=False))
    chosen = {axis: given.get(axis) or spelled.get(axis) or next(iter(PARTS[axis])) for axis in AXES}
    used = {group for axis, name in chosen.items() for group in PARTS[axis][name].settings}
    owned = {group for axis in AXES for one in PARTS[axis].values() for group in one.settings}
    return [name for name in names if (group := name.partition(".")[0]) not in owned or group in used]


def resources(cfg: Any) -> tuple[str, ...]:
    rows = cfg.shape == "fedconv" or cfg.merge == "learned" or cfg.grouping in ("clusters", "relation")
    return (*((SERVER_ROWS,) if rows else ()), *((ACCESS_POINTS,) if cfg.local == "handover" else ()))


def counted(
    fleet: Fleet, state: Any, cfg: Any, came: Sequence[Arrival], uploads: Sequence[tuple[Arrival, Upload]]
) -> Any:
    """The counters after a step."""
    ages = [one.age for _, one in uploads]
    arrivals = state.arrivals + len(came)
    if cfg.pace in (*TOGETHER, "points"):
        rounds = state.round + 1
    elif isinstance(state.book, Grouping):
        rounds = state.book.arrivals // len(fleet.clients)
    else:
        rounds = arrivals // len(fleet.clients)
    did = dict(state.did)
    end = max((arrival.at for arrival in came), default=0.0)
    did["waited_seconds"] = did.get("waited_seconds", 0.0) + sum(end - arrival.at for arrival in came)
    did["parts"] = "/".join(cfg.chosen.values())
    for arrival in came:
        did = added(did, "bytes_up", part_of(arrival.update, state.known.get(arrival.client, 1.0)), arrival.update)
    did.setdefault("bytes_up", {})
    return replace(
        state,
        step=state.step + 1,
        arrivals=arrivals,
        round=rounds,
        staleness=(state.staleness[0] + sum(ages), max([state.staleness[1], *ages])),
        did=did,
    )


def given(state: Any, client: ClientId, task: Message) -> Any:
    """The counters after a task was given."""
    part = part_of(task, state.widths.get(client, 1.0))
    return replace(state, did=added(state.did, "bytes_down", part, task))


def added(did: Mapping[str, Any], way: str, part: str, message: Message) -> dict[str, Any]:
    """The counters with one more message of a part."""
    before = did.get(way, {})
    return {**did, way: {**before, part: before.get(part, 0) + size(message)}}


def part_of(message: Message, width: float) -> str:
    """Which part a message comes from: a bound gradient, a device, an access point, or a model of a width."""
    known = {
        "Bind": "gradient",
        "Turned": "gradient",
        "Collect": "handover: device",
        "Collected": "handover: device",
        "Retrain": "handover: access point",
        "Retrained": "handover: access point",
    }
    return known.get(type(message).__name__) or f"width {width:g}"


def size(message: Any) -> int:
    """Bytes of the tensors of a message."""
    if isinstance(message, Tensor):
        return message.numel() * message.element_size()
    if isinstance(message, Mapping):
        return sum(size(value) for value in message.values())
    return sum(size(getattr(message, one.name)) for one in fields(message)) if is_dataclass(message) else 0


def record(state: Any) -> dict[str, Any]:
    """All figures of a state, as plain JSON values by name."""
    found: dict[str, Any] = {
        "arrivals": state.arrivals,
        "staleness_mean": state.staleness[0] / max(1, state.arrivals),
        "staleness_max": state.staleness[1],
    }
    if state.book is None:
        return found
    members = clusters_of(state.book)
    if isinstance(state.book, Grouping):
        book = state.book
        found["broadcasts"] = book.broadcasts
        found["staleness_mean"] = book.staleness[0] / max(1, book.arrivals)
        found["staleness_max"] = book.staleness[1]
    if len(set(members.values())) > 1:
        found["clusters"] = len(set(members.values()))
    if state.widths:
        found["widths"] = dict(Counter(f"{state.known.get(client, 1.0):g}" for client in state.known))
        by = Counter((number, f"{state.known.get(client, 1.0):g}") for client, number in members.items())
        found["clusters_by_width"] = {f"{number}/{width}": count for (number, width), count in by.items()}
    found |= state.did
    if state.pairs.samples.collected:
        found["samples"] = samples.record(state.pairs)
    if state.learned.seconds:
        found["server"] = {**state.learned.figures, "seconds": state.learned.seconds}
    return found
