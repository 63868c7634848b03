"""Read devices, links and traces from a TOML file; missing or impossible figures raise BadInput."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from potluck.devices.availability import Availability
from potluck.devices.profile import KINDS, Device, Link
from potluck.devices.trace import Trace, synthetic
from potluck.errors import BadInput, Code, must_be, unknown

_T = TypeVar("_T", Device, Link)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


@dataclass(frozen=True)
class Fleet:
    """A named mix of devices; `mix` maps a device, or "device@link", to a share or a count."""

    name: str
    title: str
    source: str
    mix: Mapping[str, float]


@dataclass(frozen=True)
class Contents:
    devices: Mapping[str, Device] = field(default_factory=dict)
    links: Mapping[str, Link] = field(default_factory=dict)
    traces: Mapping[str, Trace] = field(default_factory=dict)
    fleets: Mapping[str, Fleet] = field(default_factory=dict)


@dataclass(frozen=True)
class _Rule:
    allowed: str
    holds: Callable[[float], bool]


_COUNT = _Rule("a whole number of bytes above 0", lambda v: v > 0 and v == int(v))
_DEVICE: dict[str, _Rule] = {
    "macs_per_second": _Rule("multiply-accumulates per second above 0", lambda v: v > 0),
    "memory": _COUNT,
    "storage": _COUNT,
    "active_watts": _Rule("watts above 0", lambda v: v > 0),
    "idle_watts": _Rule("watts above 0", lambda v: v > 0),
}
_DEVICE_MAY: dict[str, _Rule] = {  # needed in the catalogue only
    "sleep_watts": _Rule("watts above 0", lambda v: v > 0),
    "battery": _Rule("joules, 0 for a device without one", lambda v: v >= 0),
}
_MEASURED: dict[str, _Rule] = {  # of a device that was measured with several networks
    "op_seconds": _Rule("seconds, 0 or more", lambda v: v >= 0),
    "recorded_op_seconds": _Rule("seconds, 0 or more", lambda v: v >= 0),
    "moves_per_second": _Rule("bytes per second above 0", lambda v: v > 0),
    "fresh_per_second": _Rule("bytes per second above 0", lambda v: v > 0),
    "speed_jitter": _Rule("a sigma from 0 to 3", lambda v: 0 <= v <= 3),
}
_LINK: dict[str, _Rule] = {
    "up": _Rule("bits per second above 0", lambda v: v > 0),
    "down": _Rule("bits per second above 0", lambda v: v > 0),
    "latency": _Rule("seconds, 0 or more", lambda v: v >= 0),
    "jitter": _Rule("a sigma from 0 to 3", lambda v: 0 <= v <= 3),
    "up_watts": _Rule("watts, 0 or more", lambda v: v >= 0),
    "down_watts": _Rule("watts, 0 or more", lambda v: v >= 0),
    "dropout": _Rule("a probability from 0 to below 1", lambda v: 0 <= v < 1),
}
_ABSENCE: dict[str, _Rule] = {
    "on_share": _Rule("a share above 0 and up to 1", lambda v: 0 < v <= 1),
    "period": _Rule("seconds above 0", lambda v: v > 0),
}
_WALK: dict[str, _Rule] = {
    "seconds": _Rule("seconds above 0", lambda v: v > 0),
    "steps": _Rule("a whole number from 1 to 1000000", lambda v: 1 <= v <= 1_000_000 and v == int(v)),
    "sigma": _Rule("a sigma from 0 to 3", lambda v: 0 <= v <= 3),
    "correlation": _Rule("a number from 0 to below 1", lambda v: 0 <= v < 1),
    "floor": _Rule("a factor above 0", lambda v: v > 0),
    "ceiling": _Rule("a factor above 0", lambda v: v > 0),
    "seed": _Rule("a whole number", lambda v: v == int(v)),
}
_SHARE = _Rule("a share or a count above 0", lambda v: v > 0)


def parse(text: str, label: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(Code.DEVICE_FILE, f"{label}: this is not TOML: {error}.") from None


def read(raw: Mapping[str, Any], label: str, known: Contents, shipped: bool) -> Contents:
    """Read a parsed file, which may refer to `known`. A file that comes with Potluck has a source for every figure."""
    sections = ["devices", "links", "traces", *(["fleets"] if shipped else [])]
    for section in raw:
        if section not in sections:
            raise unknown(Code.DEVICE_FILE, f"{label}: section", section, sections)
    reader = _Reader(raw, label, known, shipped)
    traces = {name: reader.trace(name) for name in reader.names("traces")}
    reader.traces = {**known.traces, **traces}
    links = {name: reader.link(name) for name in reader.names("links")}
    reader.links = {**known.links, **links}
    devices = {name: reader.device(name) for name in reader.names("devices")}
    fleets = {name: reader.fleet(name) for name in reader.names("fleets")}
    return Contents(devices, links, traces, fleets)


class _Reader:
    def __init__(self, raw: Mapping[str, Any], label: str, known: Contents, shipped: bool) -> None:
        self.raw = raw
        self.label = label
        self.known = known
        self.shipped = shipped
        self.traces: Mapping[str, Trace] = {}
        self.links: Mapping[str, Link] = {}

    def names(self, section: str) -> list[str]:
        tables = self.raw.get(section, {})
        if not isinstance(tables, dict):
            raise BadInput(Code.DEVICE_FILE, f"{self.label}: {section} must be tables such as [{section}.my-name].")
        taken: Mapping[str, object] = getattr(self.known, section)
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise BadInput(Code.DEVICE_FILE, f"{self.label}: {section}.{name} must be a table, [{section}.{name}].")
            if not _NAME.fullmatch(name):
                raise BadInput(
                    Code.DEVICE_FILE,
                    f"{self.label}: {section}.{name}: a name has small letters, digits, '-', '_' and '.'.",
                )
            if name in taken:
                raise BadInput(
                    Code.DEVICE_FILE,
                    f"{self.label}: {section}.{name}: the catalogue has this name, choose another one.",
                )
        return list(tables)

    def device(self, name: str, trail: tuple[str, ...] = ()) -> Device:
        where, table = self.table(
            "devices", name, {"like", "title", "kind", "link", *_DEVICE, *_DEVICE_MAY, *_MEASURED}
        )
        base = self.like("devices", (*trail, name), self.device)
        needed = [*_DEVICE, *(_DEVICE_MAY if self.shipped else ())]
        figures, sources = self.figures(where, table, {**_DEVICE, **_DEVICE_MAY, **_MEASURED}, base, needed)
        kind = self.text(where, table, "kind", base)
        if kind not in KINDS:
            raise unknown(Code.DEVICE_FILE, f"{where}.kind", kind, KINDS)
        link = self.text(where, table, "link", base)
        if link not in self.links:
            raise unknown(Code.DEVICE_FILE, f"{where}.link", link, self.links)
        return Device(
            name=name,
            title=self.title(where, table, name),
            kind=kind,
            link=link,
            macs_per_second=figures["macs_per_second"],
            memory=int(figures["memory"]),
            storage=int(figures["storage"]),
            active_watts=figures["active_watts"],
            idle_watts=figures["idle_watts"],
            sources=sources,
            sleep_watts=figures.get("sleep_watts"),
            battery=figures.get("battery"),
            op_seconds=figures.get("op_seconds"),
            recorded_op_seconds=figures.get("recorded_op_seconds"),
            moves_per_second=figures.get("moves_per_second"),
            fresh_per_second=figures.get("fresh_per_second"),
            speed_jitter=figures.get("speed_jitter", 0.1),
        )

    def link(self, name: str, trail: tuple[str, ...] = ()) -> Link:
        where, table = self.table("links", name, {"like", "title", "trace", "along", *_LINK, *_ABSENCE})
        base = self.like("links", (*trail, name), self.link)
        figures, sources = self.figures(where, table, {**_LINK, **_ABSENCE}, base, needed=list(_LINK))
        if ("on_share" in figures) != ("period" in figures):
            raise BadInput(Code.DEVICE_FIGURE, f"{where}: must have both on_share and period, got only one of them.")
        trace = base.trace if base is not None else None
        if "trace" in table:
            given = self.text(where, table, "trace", None)
            if given not in self.traces:
                raise unknown(Code.DEVICE_FILE, f"{where}.trace", given, self.traces)
            trace = self.traces[given]
        along = table.get("along", base is not None and base.along)
        if not isinstance(along, bool):
            raise must_be(Code.DEVICE_FIGURE, f"{where}.along", "true or false", along)
        return Link(
            name=name,
            title=self.title(where, table, name),
            **{figure: figures[figure] for figure in _LINK},
            sources=sources,
            trace=trace,
            availability=Availability(figures["on_share"], figures["period"]) if "period" in figures else None,
            along=along,
        )

    def trace(self, name: str) -> Trace:
        where, table = self.table("traces", name, {"title", "factors", *_WALK})
        title = self.title(where, table, name)
        if "factors" not in table:
            walk = {key: self.number(where, key, table.get(key), rule) for key, rule in _WALK.items()}
            if walk["floor"] > walk["ceiling"]:
                raise BadInput(
                    Code.DEVICE_FIGURE, f"{where}: floor = {walk['floor']:g} is above ceiling = {walk['ceiling']:g}."
                )
            steps, seed = int(walk.pop("steps")), int(walk.pop("seed"))
            return synthetic(steps=steps, seed=seed, title=title, **walk)
        for key in table:
            if key not in ("title", "factors", "seconds"):
                raise BadInput(
                    Code.DEVICE_FIGURE,
                    f"{where}.{key}: a trace has either factors and seconds, or the figures of a walk.",
                )
        factors = table["factors"]
        if not isinstance(factors, list) or not factors:
            wanted = "a list of numbers, each 0 or more"
            raise must_be(Code.DEVICE_FIGURE, f"{where}.factors", wanted, factors)
        rule = _Rule("a factor, 0 or more", lambda v: v >= 0)
        seconds = self.number(where, "seconds", table.get("seconds"), _WALK["seconds"])
        numbers = tuple(self.number(where, f"factors[{k}]", factor, rule) for k, factor in enumerate(factors))
        if not any(numbers):
            raise BadInput(Code.DEVICE_FIGURE, f"{where}.factors: at least one must be above 0, got only 0.")
        return Trace(numbers, seconds, title)

    def fleet(self, name: str) -> Fleet:
        where, table = self.table("fleets", name, {"title", "source", "mix"})
        mix = table.get("mix")
        if not isinstance(mix, dict) or not mix:
            raise must_be(Code.DEVICE_FILE, f"{where}.mix", "a table of devices with their shares or counts", mix)
        for device, share in mix.items():
            self.number(f"{where}.mix", device, share, _SHARE)
        title, source = (self.text(where, table, key, None) for key in ("title", "source"))
        return Fleet(name, title, source, mix)

    def table(self, section: str, name: str, keys: set[str]) -> tuple[str, Mapping[str, Any]]:
        where = f"{self.label}: {section}.{name}"
        table: Mapping[str, Any] = self.raw[section][name]
        for key in table:
            if key not in keys:
                raise unknown(Code.DEVICE_FILE, f"{where}: key", key, keys)
        return where, table

    def like(self, section: str, trail: tuple[str, ...], load: Callable[[str, tuple[str, ...]], _T]) -> _T | None:
        """Return the entry that the last name of the trail refers to by `like`, from this file or from `known`."""
        name = trail[-1]
        tables: Mapping[str, Any] = self.raw[section]
        if "like" not in tables[name]:
            return None
        where = f"{self.label}: {section}.{name}"
        like = self.text(where, tables[name], "like", None)
        if like in trail:
            circle = " -> ".join((*trail, like))
            raise BadInput(Code.DEVICE_FILE, f"{where}.like: must not lead back to itself, got {circle}.")
        if like in tables:
            return load(like, trail)
        known: Mapping[str, _T] = getattr(self.known, section)
        if like in known:
            return known[like]
        raise unknown(Code.DEVICE_FILE, f"{where}.like", like, {*known, *tables} - {name})

    def figures(
        self,
        where: str,
        table: Mapping[str, Any],
        rules: Mapping[str, _Rule],
        base: Device | Link | None,
        needed: list[str],
    ) -> tuple[dict[str, float], dict[str, str]]:
        figures: dict[str, float] = {}
        sources: dict[str, str] = {}
        for key, rule in rules.items():
            if key in table:
                value, source = self.sourced(where, key, table[key])
                figures[key], sources[key] = self.number(where, key, value, rule), source
            elif base is not None and key in base.sources:
                holder = base.availability if isinstance(base, Link) and key in _ABSENCE else base
                figures[key], sources[key] = getattr(holder, key), _inherited(base.name, base.sources[key])
            elif key in needed:
                self.number(where, key, None, rule)
        return figures, sources

    def sourced(self, where: str, key: str, given: Any) -> tuple[Any, str]:
        if not isinstance(given, list):
            if self.shipped:
                raise BadInput(Code.DEVICE_FIGURE, f"{where}.{key}: a figure of the catalogue is [value, source].")
            return given, f"given in {self.label}"
        if len(given) != 2 or not isinstance(given[1], str) or not given[1].strip():
            raise must_be(Code.DEVICE_FIGURE, f"{where}.{key}", "a number or [number, source]", given)
        return given[0], given[1]

    def number(self, where: str, key: str, given: Any, rule: _Rule) -> float:
        if given is None:
            fix = "An unknown figure is not taken as 0."
            raise must_be(Code.DEVICE_FIGURE, f"{where}.{key}", rule.allowed, shown="nothing", fix=fix)
        number = isinstance(given, int | float) and not isinstance(given, bool)
        if not number or not math.isfinite(given) or not rule.holds(given):
            raise must_be(Code.DEVICE_FIGURE, f"{where}.{key}", rule.allowed, given)
        return float(given)

    def title(self, where: str, table: Mapping[str, Any], name: str) -> str:
        return self.text(where, table, "title", None) if "title" in table or self.shipped else name

    def text(self, where: str, table: Mapping[str, Any], key: str, base: Device | Link | None) -> str:
        if key not in table and base is not None:
            return str(getattr(base, key))
        given = table.get(key)
        if not isinstance(given, str) or not given.strip():
            raise must_be(Code.DEVICE_FIGURE, f"{where}.{key}", "a text", given)
        return given


def _inherited(name: str, source: str) -> str:
    return source if source.startswith("as ") else f"as {name}: {source}"
