"""`potluck compose`: the parts of a composed method, which fit together and why not, and a search among them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from potluck.cli import flags, text
from potluck.cli.columns import reads_own_data
from potluck.cli.compare import Jobs, Resume, new_or_latest
from potluck.cli.progress.board import Board
from potluck.cli.progress.line import watching
from potluck.cli.several import several
from potluck.cli.tune import carry_out


@reads_own_data()
def compose(
    ctx: typer.Context,
    parts: Annotated[
        str | None,
        typer.Argument(
            metavar="PARTS", help="six parts, as in arrivals/clusters/slices/all/all/latest: say whether they fit"
        ),
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="find parts that suit the data and the fleet, on validation rows")
    ] = False,
    among: Annotated[
        list[str] | None,
        typer.Option("--among", metavar="AXIS=PART,PART", help="search among these parts of an axis only"),
    ] = None,
    experiment: Annotated[
        Path | None, typer.Option("--experiment", metavar="EXPERIMENT.toml", help="a file with settings")
    ] = None,
    data: flags.Data = None,
    model: flags.Model = None,
    fleet: flags.Fleet = None,
    clients: flags.Clients = None,
    rounds: flags.Rounds = None,
    budget: flags.Budget = None,
    seed: flags.Seed = None,
    trials: Annotated[
        int | None, typer.Option("--trials", metavar="N", help="combinations to try (default: 20)")
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", metavar="K", help="seeds for each (default: 2)")] = None,
    out: flags.Out = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="name of the folder")] = None,
    workers: flags.Workers = None,
    jobs: Jobs = 1,
    settings: flags.Set = None,
    resume: Resume = False,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """List the parts that a method can be composed of, what each needs, and which pairs do not fit.

    With PARTS, say whether these six fit together, or why not. With --search, try combinations on a data set and a
    fleet: all begin with a small part of the budget, and one in three goes on. Validation rows decide, never test rows.

    A composition runs as any method does: potluck run --method compose --set method.parts=PARTS. What each part does,
    and compositions worked out: docs/methods/compose.md.
    """
    if not search:
        _explain(parts, as_json) if parts else _list(as_json)
        return
    with watching(quiet, Board) as watcher:
        from potluck.tune.compositions import by_part, space_of
        from potluck.tune.request import request_of

        asked = several(
            watcher, experiment, ["compose"], 1, settings, budget=budget, cohort=None, data=data, model=model,
            fleet=fleet, clients=clients, rounds=rounds, seed=seed, out=out, workers=workers,
        )  # fmt: skip
        request = request_of(asked.tuning, trials=trials, seeds=seeds)
        first = asked.plan.runs[0].experiment
        folder = new_or_latest(first.run.out, name or first.run.name or f"compose-{asked.stem}", resume)
        space = [*asked.space, space_of(first, among or [])]
        found = carry_out(ctx, asked.plan, folder, request, space, watcher, resume, jobs)
    one = found["methods"]["compose"]
    if as_json:
        text.as_json({"folder": str(folder), **found, "map": by_part(one)})
        return
    _map(one, by_part(one))
    text.line(f"folder  {folder}")
    text.line(f"run     {text.itself()} compare --experiment {shlex.quote(str(folder / 'chosen.toml'))}")


def _list(as_json: bool) -> None:
    from potluck.methods.parts.compose.choice import AXES, FACTS, PARTS, legal, unmet

    apart = [
        (f"{one.axis} {one.name}", f"{other.axis} {other.name}", why)
        for place, axis in enumerate(AXES)
        for one in PARTS[axis].values()
        for beyond in AXES[place + 1 :]
        for other in PARTS[beyond].values()
        if (why := unmet(one, other))
    ]
    if as_json:
        listed = {
            axis: {
                p.name: {
                    "does": p.does,
                    "gives": sorted(p.gives),
                    "needs": {str(fact): why for fact, why in p.needs.items()},
                }
                for p in of.values()
            }
            for axis, of in PARTS.items()
        }
        text.as_json({"parts": listed, "facts": FACTS, "never together": apart})
        return
    table = text.sheet("axis", "part", "what it does", "settings")
    for axis in AXES:
        for one in PARTS[axis].values():
            table.add_row(axis, one.name, Text(one.does), " ".join(f"method.{name}" for name in one.settings))
        table.add_row()
    text.show(table)
    pairs = text.sheet("does not fit", "with", "why")
    for row in apart:
        pairs.add_row(*(Text(cell) for cell in row))
    text.show(pairs)
    count = sum(1 for _ in legal(("server rows", "access points")))
    text.show(f"\n{count} combinations fit together. `potluck compose PARTS` says of one whether it does, or why not.")


def _explain(parts: str, as_json: bool) -> None:
    from potluck.errors import BadInput, Code
    from potluck.methods.parts.compose.choice import AXES, PARTS, Fact, refused, spelled

    chosen = spelled(parts)
    both: list[Fact] = ["server rows", "access points"]
    why = refused(chosen, both)
    lacking = "" if why else refused(chosen, both[1:]) or refused(chosen, both[:1])
    if as_json:
        text.as_json({"parts": chosen, "fits": not why, "why": why, "besides": lacking})
        return
    if why:
        raise BadInput(Code.SETTINGS_CLASH, why)
    for axis in AXES:
        one = PARTS[axis][chosen[axis]]
        text.show(Text(f"{axis:9} {one.name:13} {one.does}"))
    text.show(Text("\nThese parts fit together." + (f" Without more: {lacking}" if lacking else "")))
    text.line(f"run     {text.itself()} run --method compose --set method.parts={parts} --data made --rounds 5")


def _map(found: Mapping[str, Any], by_part: Mapping[str, Mapping[str, tuple[float, float, int]]]) -> None:
    table = text.sheet(">", "parts", ">lr", *(f">{100 * rung['share']:.0f} %" for rung in found["rungs"]))
    for one in sorted(found["candidates"], key=_order):
        scores = [score for score in one["scores"] if score is not None]
        chosen = "*" if one["number"] == found["chosen_candidate"] else ""
        shown = [f"{score:.3f}" for score in scores] + [""] * (len(found["rungs"]) - len(scores))
        settings = one["settings"]
        rate = settings.get("recipe.lr")
        table.add_row(
            chosen, settings.get("parts") or "as the file has it", "" if rate is None else f"{rate:g}", *shown
        )
    text.show(table)
    text.show(_parts_table(by_part))
    text.show("Scores are means over clients and seeds on validation rows, at a share of the budget. * was chosen.")


def _order(one: Mapping[str, Any]) -> tuple[int, float]:
    scores = [score for score in one["scores"] if score is not None]
    return -len(scores), -scores[-1]


def _parts_table(by_part: Mapping[str, Mapping[str, tuple[float, float, int]]]) -> Table:
    table = text.sheet("axis", "part", ">best", ">mean", ">tried")
    for axis, of in by_part.items():
        for part, (best, mean, count) in of.items():
            table.add_row(axis, part, f"{best:.3f}", f"{mean:.3f}", str(count))
    return table
