"""`potluck fit`: whether a model can be trained on a device, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli import flags, text
from potluck.cli.columns import loaded, reads_own_data, sections
from potluck.errors import BadInput, Code
from potluck.units import quantity

if TYPE_CHECKING:
    from potluck.models import Model
    from potluck.models.memory import Need

PARTS = ("weights", "gradients", "activations", "samples", "messages")


@reads_own_data()
def fit(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="see `potluck models`")],
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="see `potluck devices`")],
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE.toml", help="a file with your own devices, as for fleet.file"),
    ] = None,
    data: flags.Data = None,
    shape: Annotated[
        str, typer.Option("--shape", metavar="TxC", help="shape of one sample, if there is no --data")
    ] = "128x9",
    classes: Annotated[
        int, typer.Option("--classes", metavar="N", help="number of classes, if there is no --data")
    ] = 6,
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="samples in a mini-batch")] = 1,
    precision: Annotated[
        str, typer.Option("--precision", help="precision of the weights: float32, float16 or int8")
    ] = "float32",
    keep: Annotated[
        str,
        typer.Option(
            "--keep", help="activations a CFC keeps: all, states, fours or segments; see docs/methods/fedcfc.md"
        ),
    ] = "segments",
    widths: Annotated[
        str, typer.Option("--widths", metavar="R,R...", help="sub-models of these widths, as FedConv uses them")
    ] = "",
    settings: flags.Set = None,
    as_json: flags.Json = False,
) -> None:
    """Show how many bytes training needs on a device, part by part, and what to shrink if it does not fit.

    The exit status is 0 if it fits and 1 if it does not.
    """
    from potluck import devices
    from potluck.models.memory import need

    if batch < 1:
        raise BadInput(Code.FLAG_VALUE, f"--batch: must be at least 1, got {batch}.")
    built = _model(model, data, shape, classes, sections(settings or [], "fit"))
    known = devices.device(device, None if file is None else devices.read_devices(file).devices)
    if widths:
        from potluck.cli.fit_widths import show_widths

        show_widths(built, known, batch, widths, as_json)
        return
    bytes_ = need(built, batch=batch, precision=precision, keep=keep)
    fits = bytes_.total <= known.memory
    hints = [] if fits else list(_hints(built, known.memory, batch, precision, keep))
    if as_json:
        figures = {**asdict(bytes_), "total": bytes_.total}
        about = {"model": built.name, "settings": built.settings, "device": known.name, "memory": known.memory}
        text.as_json({**about, "bytes": figures, "fits": fits, "hints": hints})
    else:
        _show(built, bytes_, known.name, known.memory, hints)
    if not fits:
        raise typer.Exit(1)


def _model(name: str, data: str | None, shape: str, classes: int, found: dict[str, Any]) -> Model:
    from potluck.models import build

    settings = dict(found.get("model", {}))
    if data is not None:
        dataset = loaded(data, found)
        return build(name, dataset.sample_shape, dataset.classes, settings)
    if "data" in found:
        raise BadInput(Code.NOT_SAID, "--data: must name the file that the settings of data are about.")
    sides = shape.lower().split("x")
    if not all(side.isdecimal() for side in sides):
        raise BadInput(Code.FLAG_VALUE, f"--shape: must be sizes such as 125x6 or 1x28x28, got {shape!r}.")
    return build(name, [int(side) for side in sides], classes, settings)


def _hints(model: Model, memory: int, batch: int, precision: str, keep: str) -> Iterator[str]:
    """Single changes that would make it fit, the least harmful first."""
    from potluck.models import build
    from potluck.models.memory import WIDTH, need

    def total(other: Model = model, **changes: Any) -> int:
        return need(other, **{"batch": batch, "precision": precision, "keep": keep, **changes}).total

    if batch > 1 and total(batch=1) <= memory:
        most = max(n for n in range(1, batch) if total(batch=n) <= memory)
        yield f"--batch {most} would fit ({quantity(total(batch=most), 'B')})"
    if model.name == "cfc" and keep != "segments" and total(keep="segments") <= memory:
        yield f"--keep segments would fit ({quantity(total(keep='segments'), 'B')}) but is slower"
    for form in WIDTH:
        if WIDTH[form] < WIDTH[precision] and total(precision=form) <= memory:
            yield f"--precision {form} would fit ({quantity(total(precision=form), 'B')})"
            break
    widths: list[str] = [name for name in ("hidden", "backbone", "head", "channels", "width") if name in model.settings]
    for share in [k / 20 for k in range(19, 0, -1)] if widths else []:
        smaller = {name: _scaled(model.settings[name], share) for name in widths}
        try:
            other = build(model.name, model.shape, model.classes, {**model.settings, **smaller})
        except BadInput:
            continue
        if total(other) <= memory:
            listed = " ".join(f"--set model.{name}={value}" for name, value in smaller.items())
            yield f"{listed} would fit ({quantity(total(other), 'B')})"
            break


def _scaled(value: Any, share: float) -> Any:
    return [max(1, int(v * share)) for v in value] if isinstance(value, list) else max(1, int(value * share))


def _show(model: Model, bytes_: Need, device: str, memory: int, hints: list[str]) -> None:
    table = text.sheet("", ">bytes", ">share of the device")
    for part in (*PARTS, "total"):
        value = getattr(bytes_, part)
        table.add_row(part, f"{value:,}", f"{100 * value / memory:.1f} %")
    text.show(table)
    verdict = "fits" if bytes_.total <= memory else "does not fit"
    text.line(f"{model.name} {verdict} {device}: {bytes_.total:,} of {memory:,} bytes for training.")
    for hint in hints:
        text.line(hint)
    if bytes_.total > memory and not hints:
        text.line("No single change makes it fit: choose a smaller model or a larger device.")
