"""`potluck ranks`: the average ranks of methods over the datasets of several comparisons."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from potluck.cli import flags, text
from potluck.errors import BadInput, Code
from potluck.units import NOTHING

if TYPE_CHECKING:
    from potluck.report import Comparison, Ranks
    from potluck.runs.results import Run


def ranks(
    chosen: Annotated[list[Path], typer.Argument(metavar="RUN", help="folders of comparisons, one for each dataset")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="where to draw the ranks, as PNG or PDF")] = Path(
        "average_ranks.png"
    ),
    as_json: flags.Json = False,
) -> None:
    """Rank methods over the datasets of several comparisons, and draw the critical-difference plot.

    On each dataset the method with the highest mean accuracy has rank 1. A thick bar in the picture joins methods whose
    average ranks do not differ (Nemenyi's test at 5 %). That takes five datasets or more. A dataset in which a method
    is missing is left out.
    """
    from potluck import report
    from potluck.report.reading.folders import runs_in

    if out.suffix not in (".png", ".pdf") or out.is_dir() or not out.parent.is_dir():
        raise BadInput(
            Code.OUTPUT_PLACE, f"--out: must be a .png or .pdf file in a folder that exists, got {str(out)!r}."
        )
    by_data: dict[str, list[Run]] = {}
    for run in runs_in(chosen, "ranks"):
        by_data.setdefault(run.experiment.data.source, []).append(run)
    if len(by_data) < 2:
        (data,) = by_data
        raise BadInput(
            Code.COMPARISON,
            f"ranks: must be comparisons on two datasets or more, got {data} only. The report ranks over seeds.",
        )
    compared = {data: report.compare(runs) for data, runs in by_data.items()}
    found = report.ranks_over_datasets(compared)
    if found is None:
        raise BadInput(Code.COMPARISON, "ranks: no dataset has finished runs of all methods. Compare the same methods.")
    report.write_rank_plot(found, out)
    if as_json:
        text.as_json({**asdict(found), "picture": str(out)})
        return
    _show(found, compared)
    text.line(f"picture {out}")


def _show(found: Ranks, compared: dict[str, Comparison]) -> None:
    from potluck.report.html.statistics import about_ranks

    table = text.sheet("method", ">average rank", *(f">{Path(data).stem}" for data in compared))
    for method, rank in found.average.items():
        means = [{row.method: row.accuracy for row in one.rows}.get(method) for one in compared.values()]
        table.add_row(Text(method), f"{rank:.2f}", *(f"{mean.mean:.3f}" if mean else NOTHING for mean in means))
    text.show(table)
    if found.left_out:
        text.show(Text(f"• Left out, because a method is missing there: {', '.join(found.left_out)}."))
    text.show(Text(f"• {about_ranks(found)}"))
