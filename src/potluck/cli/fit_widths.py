"""`potluck fit --widths`: the cost of sub-models of several widths on a device, and the widest it can train."""

from __future__ import annotations

from dataclasses import asdict, replace

import typer

from potluck import devices
from potluck.cli import text
from potluck.errors import BadInput, Code
from potluck.methods.parts.submodels.fitting import affordable, costs
from potluck.methods.parts.submodels.train import ADAM
from potluck.models import Model


def show_widths(model: Model, known: devices.Device, batch: int, widths: str, as_json: bool) -> None:
    ratios = _ratios(widths)
    lines = costs(model, model.init(0), ratios, replace(ADAM, batch=batch))
    fits = lines[-1].memory <= known.memory
    widest = affordable(lines, known.memory, None)
    if as_json:
        rows = [{**asdict(line), "seconds": line.macs / known.macs_per_second} for line in lines]
        text.as_json(
            {
                "model": model.name,
                "device": known.name,
                "widths": rows,
                "widest": widest if fits else None,
                "fits": fits,
            }
        )
    else:
        table = text.sheet(
            ">width", ">parameters", ">bytes each way", ">MACs a step", ">peak memory", ">seconds a step", "fits"
        )
        for line in lines:
            size = (f"{line.ratio:g}", f"{line.parameters:,}", f"{line.nbytes:,}")
            work = (f"{line.macs:,.0f}", f"{line.memory:,}", f"{line.macs / known.macs_per_second:.3g}")
            table.add_row(*size, *work, "yes" if line.memory <= known.memory else "no")
        text.show(table)
        verdict = f"the widest that fits {known.name} is {widest:g}" if fits else f"none of these fits {known.name}"
        text.line(f"{model.name}, mini-batches of {batch}: {verdict} ({known.memory:,} bytes for training).")
    if not fits:
        raise typer.Exit(1)


def _ratios(text: str) -> list[float]:
    try:
        ratios = [float(part) for part in text.split(",")]
    except ValueError:
        ratios = []
    if not ratios or not all(0.0 < ratio <= 1.0 for ratio in ratios):
        raise BadInput(
            Code.FLAG_VALUE, f"--widths: must be ratios above 0 and at most 1, such as 1,0.75,0.5, got {text!r}."
        )
    return ratios
