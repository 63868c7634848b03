"""A run for a notebook or a terminal: the result in a few lines, and how the accuracy came about."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from potluck.errors import BadInput
from potluck.units import percent, plural, quantity

if TYPE_CHECKING:
    from potluck.runs.results import Run

WIDTH, HEIGHT, LEFT, BOTTOM = 420, 160, 44, 26
_STYLE = "font-family:system-ui,sans-serif;max-width:44em"


def lines(run: Run) -> list[tuple[str, str]]:
    """What is known of a run, as names and values."""
    found = [("run", run.name)]
    try:
        s = run.summary
    except BadInput:
        rows = run.table("evaluations")
        mean = rows[-1].get("mean") if rows else None
        return [*found, ("state", "not finished"), ("accuracy so far", percent(mean) if mean is not None else "none")]
    return [
        *found,
        ("method and data", f"{s['method']} on {s['data']}, seed {run.experiment.run.seed}"),
        *_quality(s),
        ("ended", f"{s['ended']} after {quantity(s['virtual_seconds'], 's')} of virtual time"),
        ("communication", f"{quantity(s['bytes']['up'], 'B')} up, {quantity(s['bytes']['down'], 'B')} down"),
        ("energy", quantity(s["energy_joules"], "J")),
        *([("too small to train", plural(len(s["unfit_clients"]), "client"))] if s.get("unfit_clients") else []),
    ]


def _quality(s: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Accuracies, or the errors of a run whose task is not classification."""
    accuracy = s.get("accuracy")
    if not isinstance(accuracy, Mapping) or accuracy.get("mean") is None:
        errors = {name: s[name] for name in ("rmse", "mae") if isinstance(s.get(name), Mapping)}
        return [(name.upper(), f"{one['mean']:.4g} ± {one['std']:.4g} over clients") for name, one in errors.items()]
    over = f"± {percent(accuracy['std'])} over {plural(len(s['per_client']), 'client')}"
    return [
        ("accuracy", f"{percent(accuracy['mean'])} {over}"),
        ("worst tenth of the clients", percent(accuracy["worst_tenth"])),
    ]


def in_words(run: Run) -> str:
    """For a terminal."""
    found = lines(run)
    wide = max(len(name) for name, _ in found)
    return "\n".join(f"{name:<{wide}}  {value}" for name, value in found)


def html(run: Run) -> str:
    """For a notebook: a table and the accuracy by virtual time."""
    cells = "".join(
        f'<tr><th style="text-align:left;font-weight:600">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in lines(run)
    )
    return f'<div style="{_STYLE}"><table>{cells}</table>{_curve(run)}</div>'


def _curve(run: Run) -> str:
    moments = {row["step"]: row["virtual"] for row in run.table("steps")}
    rows = [row for row in run.table("evaluations") if row.get("mean") is not None and row["step"] in moments]
    if len(rows) < 2:
        return ""
    x, y = [moments[row["step"]] for row in rows], [row["mean"] for row in rows]
    low, high = min(y), max(y)
    at_x = [LEFT + (WIDTH - LEFT - 8) * value / (max(x) or 1.0) for value in x]
    at_y = [8 + (HEIGHT - BOTTOM - 8) * (1 - (value - low) / ((high - low) or 1.0)) for value in y]
    return _drawn(at_x, at_y, (percent(low), percent(high)), quantity(max(x), "s"))


def _drawn(x: Sequence[float], y: Sequence[float], ends: tuple[str, str], last: str) -> str:
    way = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    ground = HEIGHT - BOTTOM

    def label(at: float, height: float, text: str, anchor: str) -> str:
        return f'<text x="{at}" y="{height}" font-size="11" fill="currentColor" text-anchor="{anchor}">{text}</text>'

    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="accuracy by virtual time, from {ends[0]} to {ends[1]}">'
        f'<path d="M{LEFT} 8V{ground}H{WIDTH - 8}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<polyline points="{way}" fill="none" stroke="#0b7a75" stroke-width="2"/>'
        + label(LEFT - 4, ground, ends[0], "end")
        + label(LEFT - 4, 16, ends[1], "end")
        + label(WIDTH - 8, HEIGHT - 8, f"virtual time, {last}", "end")
        + "</svg>"
    )


def show(run: Run) -> None:
    """Show a run where the code runs: as a table in a notebook, as text elsewhere."""
    shell = sys.modules.get("IPython")
    if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        from IPython.display import display

        display(run)
    else:
        sys.stdout.write(f"{in_words(run)}\n")
