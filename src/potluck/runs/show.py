"""A run for a notebook or a terminal: the result in a few lines, and how the accuracy came about."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from potluck.errors import BadInput
from potluck.metrics import METRICS, headline, score, scored_by, words
from potluck.units import plural, quantity

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
        with scored_by(run.metric):
            so_far = "none" if mean is None else score(run.metric.merit(mean))
            return [*found, ("state", "not finished"), (f"{words()} so far", so_far)]
    return [
        *found,
        ("method and data", f"{s['method']} on {s['data']}, seed {run.experiment.run.seed}"),
        *_quality(s),
        ("ended", f"{s['ended']} after {quantity(s['virtual_seconds'], 's')} of virtual time"),
        ("communication", f"{quantity(s['bytes']['up'], 'B')} up, {quantity(s['bytes']['down'], 'B')} down"),
        ("energy", _energy(s)),
        *([("too small to train", plural(len(s["unfit_clients"]), "client"))] if s.get("unfit_clients") else []),
    ]


def _energy(s: Mapping[str, Any]) -> str:
    found = s.get("energy")
    if not found or found["idle_share"] is None:
        return quantity(s["energy_joules"], "J")
    return f"{quantity(found['total'], 'J')}, {100 * found['idle_share']:.0f} % of it idle"


def _quality(s: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The metrics of the task, the headline first, and the worst tenth by it."""
    now = headline(s)
    clients = plural(len(s["per_client"]), "client")
    found: list[tuple[str, str]] = []
    for one in (now, *(other for other in METRICS.values() if other != now)):
        values = s.get(one.name)
        if isinstance(values, Mapping) and values.get("mean") is not None:
            with scored_by(one):
                found.append((one.words, f"{score(values['mean'])} ± {score(values['std'])} over {clients}"))
                if one == now:
                    found.append(("worst tenth of the clients", score(values["worst_tenth"])))
    return found


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
    with scored_by(run.metric):
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
    return _drawn(at_x, at_y, (score(low), score(high)), quantity(max(x), "s"))


def _drawn(x: Sequence[float], y: Sequence[float], ends: tuple[str, str], last: str) -> str:
    way = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    ground = HEIGHT - BOTTOM

    def label(at: float, height: float, text: str, anchor: str) -> str:
        return f'<text x="{at}" y="{height}" font-size="11" fill="currentColor" text-anchor="{anchor}">{text}</text>'

    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{words()} by virtual time, from {ends[0]} to {ends[1]}">'
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
