"""`potluck check-method`: does a method keep every promise? The same checks as for Potluck's own methods."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from potluck.cli import flags, text

_STYLE = {"passed": "green", "failed": "bold red", "skipped": "dim", "not applicable": "yellow"}


def check_method(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="a file (mine.py), an import path or a name")],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CHECK", help="run this check only; may be repeated")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="method.KEY=VALUE", help="a setting of the method; may be repeated"),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Run the battery on a method: small runs that check what Potluck promises of every method.

    The runs have five clients and a few samples each: same seed, stacks, resume, lost clients, late clients, refused
    updates, the Flower engine, and more. Exit status 0: no check failed. 1: a check failed. 2: the method cannot be
    loaded, or a flag is wrong.
    """
    from potluck.errors import Code, unknown
    from potluck.runs.experiment import override
    from potluck.testing import CHECKS, Trial, run_checks

    for name in only or ():
        if name not in CHECKS:
            raise unknown(Code.SETTING_VALUE, "--only", name, CHECKS)
    given = override({}, settings or ())
    for section in given.keys() - {"method"}:
        raise unknown(Code.SET_FORM, "--set section", section, ["method"])
    trial = Trial(method, given.get("method", {}))
    trial.method.configure(given.get("method", {}))  # a wrong setting is bad input, not a failed check
    wide = max(map(len, CHECKS))
    results = []
    for result in run_checks(trial, only or ()):
        results.append(result)
        if not as_json:
            where = f" ({result.where})" if result.where else ""
            outcome = Text(f"{result.outcome:<14}", style=_STYLE[result.outcome])
            text.show(outcome.append(f"  {result.name:<{wide}}  {result.detail}{where}", style="default"))
    failed = [result for result in results if result.outcome == "failed"]
    if as_json:
        text.as_json({"method": method, "passed": not failed, "checks": [asdict(result) for result in results]})
    else:
        text.line(_verdict(method, [result.outcome for result in results]))
    if failed:
        raise typer.Exit(1)


def _verdict(method: str, outcomes: list[str]) -> str:
    counts = {kind: outcomes.count(kind) for kind in _STYLE if kind in outcomes}
    return f"\n{method}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()) + "."
