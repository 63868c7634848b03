"""`potluck plan`: what a federation will cost and bring, before anything runs on devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from potluck.cli import complete, flags, text
from potluck.cli.columns import reads_own_data
from potluck.cli.progress.line import watching
from potluck.errors import BadInput, Code, must_be
from potluck.units import percent, quantity

if TYPE_CHECKING:
    from potluck.planner.day import Day
    from potluck.planner.interval import Interval
    from potluck.planner.plan import MethodPlan, Plan
    from potluck.planner.words import Advice


@reads_own_data()
def plan(
    methods: Annotated[
        list[str] | None,
        typer.Argument(metavar="METHOD...", help="see `potluck methods`", autocompletion=complete.methods),
    ] = None,
    experiment: Annotated[
        Path | None, typer.Option("--experiment", metavar="EXPERIMENT.toml", help="a file with settings")
    ] = None,
    data: flags.Data = None,
    shape: Annotated[
        str, typer.Option("--shape", metavar="TxC", help="shape of one sample, if there is no --data")
    ] = "128x9",
    classes: Annotated[
        int, typer.Option("--classes", metavar="N", help="number of classes, if there is no --data")
    ] = 6,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=1, help="training rows of a client, if there is no --data")
    ] = 100,
    model: flags.Model = None,
    fleet: flags.Fleet = None,
    clients: flags.Clients = None,
    link: Annotated[str | None, typer.Option("--link", metavar="LINK", help="puts all clients on this link")] = None,
    budget: flags.Budget = None,
    rounds: flags.Rounds = None,
    wish: Annotated[
        list[str] | None,
        typer.Option(
            "--wish",
            metavar="WISH",
            help='"accuracy 0.85", "at most 2 MB per device and day", "battery 20 % a day" or "within 3 days"',
        ),
    ] = None,
    look: Annotated[bool, typer.Option("--look/--no-look", help="with data: train a tenth of each run")] = True,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="K", min=1, max=100, help="dry runs per method, for the intervals")
    ] = 3,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.html", help="also write a page")] = None,
    settings: flags.Set = None,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Say what a federation will cost, without training: time, bytes, joules, memory and battery, by method and device.

    The runs are those that `potluck compare` would make, with their budget and pace. Every interval holds with a
    probability of 80 %. With --data, a look trains at most a tenth of each run, and shows which methods start well.
    """
    from potluck.planner.api import made

    given = {"data": data, "model": model, "fleet": fleet, "clients": clients, "rounds": rounds}
    values, notes = flags.gathered(experiment, **given)
    values = flags.with_budget(values, budget)
    if "source" in flags.section_of(values, "data") and (shape, classes, rows) != ("128x9", 6, 100):
        raise BadInput(Code.FLAG_VALUE, "--shape, --classes, --rows: are for plans without data; leave them out.")
    if link is not None:
        values["fleet"] = {**flags.section_of(values, "fleet"), "link": link}
    sides = shape.lower().split("x")
    if not all(side.isdecimal() for side in sides):
        raise must_be(Code.FLAG_VALUE, "--shape", "sizes such as 125x6 or 1x28x28", shape)
    with watching(quiet or as_json) as watcher:
        found = made(
            values, methods or (), wish or (), settings or (), [int(side) for side in sides], classes, rows, seeds,
            look, watcher.say,
        )  # fmt: skip
    if out is not None:
        found.write(out)
    if as_json:
        text.as_json(found.json())
        return
    _show(found, found.advice, [] if quiet else [*notes, *found.notes])
    if out is not None:
        text.line(f"page    {out}")


def _show(found: Plan, advice: Advice, notes: list[str]) -> None:
    from potluck.planner.words import rough, untold

    for note in notes:
        text.line(note)
    data = found.data or "sizes only"
    text.line(f"{found.clients} clients, {data}, model {found.model} with {found.parameters:,} parameters")
    table = text.sheet(
        "", ">rounds", ">a round", ">the run", ">up", ">down", ">per client", ">of it idle", ">left out", "straggler",
        *((">after a tenth",) if any(one.glimpse for one in found.able) else ()),
        *((">accuracy",) if any(one.prediction for one in found.able) else ()),
    )  # fmt: skip
    for one in found.methods:
        if one.figures is None:
            table.add_row(one.name, Text(f"cannot run: {one.why_not}"))
            continue
        table.add_row(*_row(one, found))
    text.show(table)
    for one in found.able:
        if one.rough:
            text.line(rough(one))
    for sentence in untold(found):
        text.line(sentence)
    chosen = next((one for one in found.able if one.name == advice.method), found.able[0] if found.able else None)
    if chosen is not None and chosen.day is not None:
        _show_day(chosen.name, chosen, chosen.day)
    text.line(advice.use)
    for sentence in (*advice.because, advice.alike, *advice.would_change):
        if sentence:
            text.line(f"  {sentence}")


def _row(one: MethodPlan, found: Plan) -> list[str]:
    figures = one.figures
    assert figures is not None
    joules, count = figures.joules, max(1, found.clients)
    cells = [
        one.name,
        f"{figures.rounds:,}",
        quantity(figures.round_seconds, "s"),
        _ranged(one.seconds, "s"),
        quantity(figures.bytes_up / count, "B"),
        quantity(figures.bytes_down / count, "B"),
        _ranged(one.joules.times(1 / count), "J"),
        percent(joules.idle / joules.total if joules.total else 0.0, 0),
        f"{one.unfit}",
        f"{figures.straggler} {percent(figures.straggles, 0)}",
    ]
    if one.glimpse is not None:
        cells.append(f"{one.glimpse.last:.3f}")
    elif any(other.glimpse for other in found.able):
        cells.append("–")
    if any(other.prediction for other in found.able):
        from potluck.planner.words import told

        cells.append(told(one))
    return cells


def _ranged(found: Interval, kind: str) -> str:
    middle, low, high = quantity(found.value, kind), found.low, found.high
    if low is None or high is None or high - low < 0.01 * found.value:
        return middle
    return f"{middle} ({quantity(max(0.0, low), kind)} to {quantity(high, kind)})"


def _show_day(name: str, one: MethodPlan, day: Day) -> None:
    assert one.figures is not None
    text.line(f"A day of {name}, per client:")
    table = text.sheet(
        "device", ">clients", ">needs", ">a task", ">bytes", ">joules", ">training", ">radio", ">idle", ">battery",
        ">lasts",
    )  # fmt: skip
    for cost, a_day in zip(one.figures.devices, day.devices, strict=True):
        battery = "mains" if a_day.battery is None else percent(a_day.battery)
        lasts = "–" if a_day.battery_days is None else quantity(a_day.battery_days * 86400.0, "s")
        fits = f"{quantity(cost.needs, 'B')} of {quantity(cost.memory, 'B')}"
        table.add_row(
            f"{cost.device}@{cost.link}", f"{cost.clients}", "does not fit" if cost.unfit == cost.clients else fits,
            quantity(cost.task_seconds, "s") if cost.tasks else "–", quantity(a_day.bytes, "B"),
            quantity(a_day.joules.total, "J"),
            *(quantity(getattr(a_day.joules, cause), "J") for cause in ("training", "radio", "idle")), battery, lasts,
        )  # fmt: skip
    text.show(table)
    for hint in one.hints:
        text.line(hint)
