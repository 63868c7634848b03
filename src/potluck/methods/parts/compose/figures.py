"""What each part of a composed method did, for the run's record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from potluck.fleet import Arrival, Fleet
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
    sent = dict(did.get("bytes_up", {}))
    for arrival in came:
        part = part_of(state, arrival)
        sent[part] = sent.get(part, 0) + size(arrival.update)
    did["bytes_up"] = sent
    return replace(
        state,
        step=state.step + 1,
        arrivals=arrivals,
        round=rounds,
        staleness=(state.staleness[0] + sum(ages), max([state.staleness[1], *ages])),
        did=did,
    )


def part_of(state: Any, arrival: Arrival) -> str:
    """Which part an upload comes from: a bound gradient, a device, an access point, or a model of a width."""
    kind = type(arrival.update).__name__
    names = {"Turned": "gradient", "Collected": "handover: device", "Retrained": "handover: access point"}
    return names.get(kind) or f"width {state.known.get(arrival.client, 1.0):g}"


def size(update: Any) -> int:
    """Bytes of the tensors of an update."""
    parts = [value for one in vars(update).values() for value in (one.values() if isinstance(one, dict) else (one,))]
    return sum(value.numel() * value.element_size() for value in parts)


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
