"""Show the catalogue on the terminal: all entries, or one entry with the source of each figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from potluck.devices import units
from potluck.devices.catalogue import PRESETS, additions, catalogue, either, links
from potluck.devices.profile import Device, Link
from potluck.errors import BadInput, Code, unknown
from potluck.plugins import Plugin

_UNIT: dict[str, Callable[[float], str]] = {
    "macs_per_second": units.macs,
    "memory": units.nbytes,
    "storage": units.nbytes,
    "active_watts": units.watts,
    "idle_watts": units.watts,
    "sleep_watts": units.watts,
    "op_seconds": units.seconds,
    "recorded_op_seconds": units.seconds,
    "moves_per_second": lambda value: f"{units.nbytes(value)}/s",
    "fresh_per_second": lambda value: f"{units.nbytes(value)}/s",
    "battery": lambda value: units.joules(value) if value else "mains",
    "up": units.bits,
    "down": units.bits,
    "latency": units.seconds,
    "up_watts": units.watts,
    "down_watts": units.watts,
    "period": lambda value: f"{value:g} s",
}


def table(devices: Mapping[str, Device] | None = None, own_links: Mapping[str, Link] | None = None) -> Group:
    """List all devices, links and fleets; your own come first."""
    broken = {name: trouble for name, one in additions().items() if (trouble := _trouble(one))}
    shown_devices = {**(devices or {}), **{name: catalogue()[name] for name in catalogue() if name not in broken}}
    shown_links = {**(own_links or {}), **links()}
    return Group(
        _devices(shown_devices), *(Text(f"broken: {one}") for one in broken.values()), _links(shown_links), _fleets()
    )


def _trouble(one: Plugin) -> str:
    """Return why a device of an installed package cannot be used, or an empty text."""
    try:
        one.load()
        catalogue()[one.name]
    except BadInput as error:
        return str(error)
    return ""


def details(
    name: str, devices: Mapping[str, Device] | None = None, own_links: Mapping[str, Link] | None = None
) -> RenderableType:
    """Show one device or link with the source of each figure."""
    every_device, every_link = either(devices or {}, catalogue()), either(own_links or {}, links())
    if name not in every_device and name not in every_link:
        raise unknown(Code.DEVICE_UNKNOWN, "device or link", name, {*every_device, *every_link})
    entry: Device | Link = every_device[name] if name in every_device else every_link[name]
    shown = _sheet(f"{entry.name}: {entry.title}", "figure", ">value", "where it comes from")
    if isinstance(entry, Device):
        shown.add_row("kind", entry.kind, "")
        shown.add_row("link", entry.link, "unless the fleet says otherwise")
    for figure, source in entry.sources.items():
        shown.add_row(figure, _value(entry, figure), Text(source))
    if isinstance(entry, Link) and entry.trace is not None:
        trace = entry.trace
        span = f"{min(trace.factors):.2g} to {max(trace.factors):.2g}"
        shown.add_row("trace", span, Text(f"{trace.title}; factor on both rates, repeats every {trace.period:g} s"))
    return shown


def _devices(entries: Mapping[str, Device]) -> Table:
    shown = _sheet(
        "Devices", "name", "kind", ">training", ">memory", ">storage", ">active", ">idle", ">asleep", ">battery", "link"
    )
    shown.caption = "~ marks an estimate; `potluck devices NAME` shows the source of each figure"
    for entry in entries.values():
        figures = ("macs_per_second", "memory", "storage", "active_watts", "idle_watts", "sleep_watts", "battery")
        shown.add_row(entry.name, entry.kind, *(_marked(entry, figure) for figure in figures), entry.link)
    return shown


def _links(entries: Mapping[str, Link]) -> Table:
    shown = _sheet("Links", "name", ">up", ">down", ">latency", ">jitter", ">sending", ">receiving", "varies")
    for entry in entries.values():
        figures = ("up", "down", "latency", "jitter", "up_watts", "down_watts")
        shown.add_row(entry.name, *(_marked(entry, figure) for figure in figures), _varies(entry))
    return shown


def _fleets() -> Table:
    shown = _sheet("Fleets", "name", "what", "mix")
    for fleet in PRESETS.values():
        mix = ", ".join(
            f"{share} {name}" if isinstance(share, int) else f"{share:.0%} {name}" for name, share in fleet.mix.items()
        )
        shown.add_row(fleet.name, fleet.title, mix)
    return shown


def _varies(link: Link) -> str:
    found = ["trace"] if link.trace is not None else []
    if link.availability is not None:
        found.append(f"reachable {link.availability.on_share:.0%}")
    if link.dropout > 0:
        found.append(f"loses {link.dropout:.0%}")
    return ", ".join(found)


def _marked(entry: Device | Link, figure: str) -> str:
    if figure not in entry.sources:
        return ""
    return ("~" if "estimate" in entry.sources[figure] else "") + _value(entry, figure)


def _value(entry: Device | Link, figure: str) -> str:
    holder = entry.availability if isinstance(entry, Link) and figure in ("on_share", "period") else entry
    value: float = getattr(holder, figure)
    return _UNIT.get(figure, "{:g}".format)(value)


def _sheet(title: str, *columns: str) -> Table:
    shown = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        shown.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return shown
