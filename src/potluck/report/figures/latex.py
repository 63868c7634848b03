"""The table of a comparison for a paper: plain LaTeX, with the package booktabs."""

from __future__ import annotations

from potluck.metrics import distance, metric, score, words
from potluck.report.figures.comparison import Comparison, Row, Spread
from potluck.units import NARROW, quantity

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--"}
_SPECIAL |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
_COLUMNS = ("Sent up", "Sent down", "Time", "Energy", "Idle")


def latex(found: Comparison) -> str:
    """A row per method, best first; the caption says what each figure is, and over what its spread is."""
    in_percent = r" (\%)" if metric().share else ""
    columns = ["Method", f"{words(capital=True)}{in_percent}", f"Worst tenth{in_percent}", *_COLUMNS]
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_caption(found)}}}",
        r"\begin{tabular}{l" + "r" * (len(columns) - 1) + "}",
        r"\toprule",
        " & ".join(columns) + r" \\",
        r"\midrule",
        *(_row(row) for row in found.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _caption(found: Comparison) -> str:
    seeds = max((len(row.seeds) for row in found.rows), default=0)
    spread = f"; $\\pm$ is the standard deviation over {seeds} seeds" if seeds > 1 else ""
    return (
        f"{escaped(found.data)}, {found.clients} clients: mean over clients of each client's {words()} on its own test "
        f"rows{spread}. Costs are those of a whole run, all clients together; energy is all that "
        "the devices drew over the run, and idle is the share of it without work."
    )


def _row(row: Row) -> str:
    name = escaped(row.method)
    cells = [rf"\textbf{{{name}}}" if row.best else name, _share(row.accuracy), _share(row.worst_tenth)]
    for spread, kind in (
        (row.bytes_up, "B"),
        (row.bytes_down, "B"),
        (row.virtual_seconds, "s"),
        (row.all_joules, "J"),
    ):
        cells.append(
            "--" if spread is None else escaped(quantity(spread.mean, kind)).replace("\N{NO-BREAK SPACE}", "~")
        )
    share = row.idle_share
    cells.append("--" if share is None else rf"{100 * share.mean:.0f}\,\%")
    return " & ".join(cells) + r" \\"


def _share(spread: Spread | None) -> str:
    if spread is None:
        return "--"
    mean = score(spread.mean).removesuffix(f"{NARROW}%")
    return mean + (rf" $\pm$ {distance(spread.std, signed=False)}" if spread.std else "")


def escaped(words: str) -> str:
    """Text with the characters that mean something to LaTeX escaped."""
    return "".join(_SPECIAL.get(letter, letter) for letter in words)
