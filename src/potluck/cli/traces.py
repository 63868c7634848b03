"""`potluck traces`: public traces of networks, radio power and availability as links of a devices file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli import flags, text
from potluck.errors import BadInput, Code, unknown
from potluck.units import number

if TYPE_CHECKING:
    from potluck.devices.imports import Habits, Power, Rates, Speeds

KINDS = ("lumos5g", "ucc5g", "mahimahi", "power5g", "flash", "flash-speed", "fedscale")


def traces(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a public trace; docs/devices.md names the formats")],
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help=f"{', '.join(KINDS)}; by default as the file looks")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="name of the link")] = "measured",
    like: Annotated[str, typer.Option("--like", metavar="LINK", help="the link whose other figures it takes")] = "5g",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.toml", help="write the link to this devices file")
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Read a public trace and print what it says; with --out, write it as a link for `fleet.file`."""
    from potluck import devices
    from potluck.devices import imports

    kind = kind or imports.guess(file)
    if kind not in KINDS:
        raise unknown(Code.FLAG_VALUE, "--kind", kind, KINDS)
    base = devices.link(like)
    if out is not None and out.exists():
        raise BadInput(Code.OUTPUT_PLACE, f"--out: must be a new file, {str(out)!r} exists.")
    if kind == "power5g":
        found: Any = imports.power_5g(file)
        shown, figures, trace = _power(found, base, file)
    elif kind == "flash-speed":
        shown, figures, trace = _speeds(imports.flash_speed(file), file)
    elif kind in ("flash", "fedscale"):
        found = imports.habits(getattr(imports, kind)(file), clock=kind == "flash")
        shown, figures, trace = _habits(found, file)
    else:
        found = getattr(imports, kind)(file)
        shown, figures, trace = _rates(found)
    if out is not None:
        _write(out, name, like, figures, trace, file)
    if as_json:
        text.as_json(shown)
        return
    for key, value in shown.items():
        text.line(f"{key:24} {value}")
    if out is not None:
        text.line(f"link {name} in {out}: --set fleet.file={out} --set fleet.link={name}")


Found = tuple[dict[str, Any], dict[str, Any], "Rates | None"]


def _power(lines: list[Power], base: Any, file: Path) -> Found:
    shown = {
        "all signals" if one.signal is None else f"{one.signal[0]} to {one.signal[1]} dBm": (
            f"{one.base:.2f} W + {1000 * one.up:.3g} mW per Mbit/s up + {1000 * one.down:.3g} mW per Mbit/s down "
            f"({one.rows} rows, median error {100 * one.error:.0f} %)"
        )
        for one in lines
    }
    whole = lines[0]
    how = f"derived: straight line through {whole.rows} measured seconds of {file.name}"
    up, down = base.up / 1e6, base.down / 1e6
    figures = {
        "up_watts": [round(whole.watts(up, True), 3), f"{how}, at {number(up)} Mbit/s"],
        "down_watts": [round(whole.watts(down, False), 3), f"{how}, at {number(down)} Mbit/s"],
    }
    return shown, figures, None


def _habits(found: Habits, file: Path) -> Found:
    shown: dict[str, Any] = {"users": found.users, "share of the time": round(found.on_share, 3)}
    shown["usual cycle, hours"] = round(found.period / 3600, 2)
    if found.opens is not None:
        shown["usual hours"] = f"[{found.opens:g}, {found.closes:g}], for fleet.hours"
    how = f"derived: {found.users} users of {file.name}"
    figures = {"on_share": [max(0.001, round(found.on_share, 4)), how], "period": [round(found.period), how]}
    return shown, figures, None


def _speeds(found: Speeds, file: Path) -> Found:
    shown: dict[str, Any] = {"users": found.users, "mean up, Mbit/s": round(found.up / 1e6, 3)}
    shown |= {"mean down, Mbit/s": round(found.down / 1e6, 3), "sigma between users": round(found.spread, 3)}
    shown["sigma within a user"] = round(found.jitter, 3)
    how = f"measured: mean of {found.users} users of {file.name}"
    return (
        shown,
        {"up": [round(found.up), how], "down": [round(found.down), how], "jitter": [round(found.jitter, 3), how]},
        None,
    )


def _rates(found: Rates) -> Found:
    figures = {}
    shown: dict[str, Any] = {"seconds": len(found.factors)}
    for way in ("up", "down"):
        mean = found.mean(way)
        if mean is not None:
            shown[f"mean {way}, Mbit/s"] = round(mean, 3)
            figures[way] = [round(mean * 1e6), found.source]
    shown["lowest and highest factor"] = f"{min(found.factors):g}, {max(found.factors):g}"
    return shown, figures, found


def _write(out: Path, name: str, like: str, figures: dict[str, Any], trace: Rates | None, file: Path) -> None:
    from potluck.devices.imports.write import link_file
    from potluck.files import write_text

    write_text(out, link_file(name, like, figures, None if trace is None else trace.factors, file.name))
