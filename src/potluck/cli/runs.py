"""`potluck runs`: the runs in a folder, what they differ in, and how to keep or delete them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from potluck.cli import flags, text
from potluck.errors import BadInput, Code, must_be, unknown
from potluck.metrics import ACCURACY, METRICS, headline
from potluck.runs.beside import shown
from potluck.units import plural, quantity

SHOWN = 5  # settings with a column of their own
KNOWN = {"method.name", "data.source", "run.seed"}  # these have columns already
SORTS = ("run", "state", "method", "data", "seed", "round", "accuracy", "when")

Folders = Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs")]


class ListFirst(TyperGroup):
    """`potluck runs DIR` means `potluck runs list DIR`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=ListFirst,
    help="List runs with the settings that differ; compare two, tag them, or delete them.",
    epilog="`potluck runs DIR` is short for `potluck runs list DIR`.",
)


@app.command("list", epilog="Example: potluck runs --method fedavg --sort accuracy")
def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder that holds the runs")] = Path("runs"),
    method: Annotated[str | None, typer.Option("--method", metavar="NAME", help="only runs of this method")] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="DATA", help="only runs on this data")] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE", help="only finished, running, paused, interrupted or killed"),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="only runs with this tag; repeatable")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="SETTING=VALUE", help="only runs with this setting; repeatable"),
    ] = None,
    sort: Annotated[
        str,
        typer.Option("--sort", metavar="COLUMN", help=f"order by {', '.join(SORTS)}; the best accuracy comes first"),
    ] = "run",
    as_json: flags.Json = False,
) -> None:
    """List the runs in a folder: state, accuracy (mean over clients), tags, and the settings that differ.

    A run is finished, running, paused (by tuning), interrupted (by Ctrl-C) or killed. `potluck resume` continues a
    paused, interrupted or killed run.
    """
    from potluck.report.reading.folders import run_folders
    from potluck.runs.shelf import differing

    if not folder.is_dir():
        raise BadInput(Code.RUN_ABSENT, f"runs: there is no folder {str(folder)!r}; `potluck run` creates one.")
    if sort not in SORTS:
        raise unknown(Code.FLAG_VALUE, "--sort", sort, SORTS)
    wanted = {"method": method, "data": data, "state": state}
    rows = [_line(path, folder) for path in run_folders(folder)]
    every = len(rows)
    rows = [row for row in rows if _fits(row, wanted, tag or [], [_pair(one) for one in where or []])]
    rows.sort(key=lambda row: (row[sort] is None, -_merit(row) if sort == "accuracy" else row[sort] or ""))
    names = [name for name in differing([row["settings"] for row in rows]) if name not in KNOWN]
    if as_json:
        text.as_json([{**row, "differs": {n: row["settings"].get(n) for n in names}, "settings": None} for row in rows])
        return
    if not rows:
        text.show(f"No runs in {folder}." if not every else f"None of the {plural(every, 'run')} in {folder} fits.")
        return
    _show(rows, names, every)


def _show(rows: Sequence[dict[str, Any]], names: Sequence[str], every: int) -> None:
    tagged = ["tags"] if any(row["tags"] for row in rows) else []
    shown = list(names[:SHOWN])
    kinds = {row["metric"] for row in rows if row["accuracy"] is not None} or {ACCURACY.name}
    (name,) = kinds if len(kinds) == 1 else ("score",)  # runs of several tasks
    head = METRICS[name].words if name in METRICS else name
    table = text.sheet("run", "state", "method", "data", ">seed", ">round", f">{head}", *tagged, *shown)
    for row in rows:
        accuracy = _score(row, named=len(kinds) > 1)
        cells = ["" if row[n] is None else str(row[n]) for n in ("run", "state", "method", "data", "seed", "round")]
        cells += [accuracy, *([" ".join(row["tags"])] if tagged else [])]
        table.add_row(*cells, *(_value(row["settings"].get(name)) for name in shown))
    text.show(table)
    if len(rows) < every:
        text.show(f"{len(rows)} of {plural(every, 'run')}")
    text.show(f"{head}: mean over clients ± standard deviation over clients")
    if len(names) > SHOWN:
        text.show(f"these runs also differ in {text.some(names[SHOWN:], 6)}; `potluck runs diff A B` shows all of two.")


@app.command(epilog="Example: potluck runs diff runs/fedavg-made-s0 runs/fedavg-made-s0-2")
def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run")],
    second: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of another run")],
    as_json: flags.Json = False,
) -> None:
    """Show the settings and the results in which two runs differ."""
    from potluck.runs.shelf import differing, settings_of

    for folder in (first, second):
        if not (folder / "experiment.toml").is_file():
            raise BadInput(Code.RUN_ABSENT, f"runs diff: {str(folder)!r} is not a run: it has no experiment.toml.")
    settings, results = [settings_of(first), settings_of(second)], [_results(first), _results(second)]
    apart = {name: [one.get(name) for one in settings] for name in differing(settings, absent=True)}
    found = {name: [one.get(name) for one in results] for name in results[0] | results[1]}
    if as_json:
        text.as_json({"settings": apart, "results": found})
        return
    table = text.sheet("", str(first), str(second))
    for name, (a, b) in apart.items():
        table.add_row(name, _value(a), _value(b))
    if apart:
        table.add_section()
    for name, (a, b) in found.items():
        table.add_row(name, _figure(name, a), _figure(name, b))
    text.show(table)
    if not apart:
        text.show("The settings are the same.")


@app.command(epilog="Example: potluck runs tag runs/fedavg-made-s0 --add paper")
def tag(
    folders: Folders,
    add: Annotated[list[str] | None, typer.Option("--add", metavar="TAG", help="add this tag; repeatable")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="TAG", help="remove this tag; repeatable")
    ] = None,
) -> None:
    """Add tags to runs, or remove them. `potluck runs --tag TAG` lists the runs with a tag."""
    from potluck.runs.shelf import set_tags

    if not add and not remove:
        raise BadInput(Code.NOT_SAID, "runs tag: must have --add or --remove.")
    for folder in folders:
        text.line(f"{folder}: {', '.join(set_tags(folder, add or [], remove or [])) or 'no tags'}")


@app.command(epilog="Example: potluck runs delete runs/fedavg-made-s0-2")
def delete(
    folders: Folders,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Delete the folders of runs, for good. It asks first, and never touches a running run or anything else."""
    from potluck.runs import shelf

    for folder in folders:  # all are checked before the first one goes
        shelf.check_deletable(folder)
    size = sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
    what = str(folders[0]) if len(folders) == 1 else plural(len(folders), "run")
    if not yes and not typer.confirm(f"Delete {what} ({quantity(size, 'B')}) for good?"):
        text.show("Nothing was deleted.")
        return
    for folder in folders:
        shelf.delete(folder)
        text.line(f"deleted {folder}")


def _pair(given: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in given.partition("="))
    if not equals or "." not in name:
        raise must_be(Code.FLAG_VALUE, "--where", "SETTING=VALUE, such as method.recipe.lr=0.1", given)
    return name, value


def _fits(row: dict[str, Any], wanted: dict[str, str | None], tags: list[str], where: list[tuple[str, str]]) -> bool:
    if any(value is not None and row[name] != value for name, value in wanted.items()):
        return False
    if any(one not in row["tags"] for one in tags):
        return False
    return all(name in row["settings"] and _value(row["settings"][name]) == value for name, value in where)


def _value(value: Any) -> str:
    return "–" if value is None else flags.plain(value)


def _figure(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    kind = {"virtual time": "s", "wall time": "s", "bytes": "B", "energy": "J"}.get(name)
    return (
        f"{value:.3f}"
        if kind is None and isinstance(value, float)
        else str(value)
        if kind is None
        else quantity(value, kind)
    )


def _results(folder: Path) -> dict[str, Any]:
    """The figures of a finished run; empty for one that has not ended."""
    try:
        s = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        metric = headline(s)
        return {
            "ended": s["ended"],
            f"{metric.words}, mean over clients": s[metric.name]["mean"],
            "worst tenth of the clients": s[metric.name]["worst_tenth"],
            "shared model, pooled test rows": s[metric.name]["global"],
            **{name: shown(name, value) for name, value in (s.get("beside") or {}).items()},
            f"{s.get('clock', 'virtual')} time": s["virtual_seconds"],
            "bytes": s["bytes"]["up"] + s["bytes"]["down"],
            "energy": (s.get("energy") or {}).get("total", s["energy_joules"]),
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _merit(row: dict[str, Any]) -> float:
    """More is better; the key of the sorting by score."""
    return METRICS[row["metric"]].merit(row["accuracy"]) if row["accuracy"] is not None else 0.0


def _score(row: dict[str, Any], named: bool) -> str:
    if row["accuracy"] is None:
        return ""
    metric = METRICS[row["metric"]]
    name = f"{metric.words} " if named else ""
    return f"{name}{metric.plain(row['accuracy'])} ± {metric.spread(row['std'])}"


def _line(path: Path, base: Path) -> dict[str, Any]:
    """One run as a row of the table; the run may be half-written or damaged."""
    from potluck.runs.compare import state_of
    from potluck.runs.record import Unreadable, read
    from potluck.runs.results import Run
    from potluck.runs.shelf import settings_of, tags_of

    run = Run(path)
    row: dict[str, Any] = dict.fromkeys(
        ("run", "state", "method", "data", "seed", "round", "accuracy", "std", "when", "metric")
    )
    row |= {"run": str(path if path == base else path.relative_to(base)), "tags": tags_of(path)}
    row |= {"settings": settings_of(path), "when": (path / "experiment.toml").stat().st_mtime}
    try:
        experiment = run.experiment
        row |= {
            "method": str(experiment.method["name"]),
            "data": experiment.data.source,
            "seed": experiment.run.seed,
        }
        row["state"] = state_of(run)
        sql = "SELECT round, mean, std FROM steps JOIN evaluations USING (step) ORDER BY step DESC LIMIT 1"
        for latest in read(path / "run.db", sql):
            row |= {
                "round": latest["round"],
                "accuracy": latest["mean"],
                "std": latest["std"],
                "metric": run.metric.name,
            }
    except Unreadable:  # killed before it wrote anything
        row["state"] = row["state"] or "killed"
    except (BadInput, ValueError, KeyError, TypeError):
        row["state"] = "unreadable"
    return row
