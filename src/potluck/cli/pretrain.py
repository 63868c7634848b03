"""`potluck pretrain`: an encoder for methods that do not train one on the device, in a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import flags, text
from potluck.errors import BadInput, Code


def pretrain(
    out: Annotated[Path, typer.Argument(metavar="ENCODER.safetensors", help="the file to write")],
    data: flags.Data = None,
    model: flags.Model = None,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="passes over the data")] = 5,
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="samples per step")] = 64,
    lr: Annotated[float, typer.Option("--lr", metavar="X", help="step size")] = 0.01,
    split: Annotated[
        str, typer.Option("--split", metavar="LAYER", help="the classifier's first layer; found by itself otherwise")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="of the weights and the order of the rows")] = 0,
    settings: flags.Set = None,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Train a model on a data set in one place and keep its encoder, the part before the classifier.

    A run begins with it by `--set model.encoder=ENCODER.safetensors`, on any data whose samples have the same shape.
    Settings of the model go by `--set model.key=value`.
    """
    import torch

    from potluck.runs import pretrain as training
    from potluck.runs.experiment import override

    values = override({"model": {"name": model} if model else {}}, settings or [])
    if set(values) != {"model"}:
        other = next(section for section in values if section != "model")
        raise BadInput(Code.SET_FORM, f"--set: {other!r} given, pretrain knows the section model only.")
    if data is None:
        raise BadInput(
            Code.NOT_SAID, "--data: missing; which data set is the encoder to learn from? See `potluck datasets`."
        )
    if out.is_dir():  # said now, not after the training
        raise BadInput(Code.OUTPUT_PLACE, f"pretrain: {str(out)!r} is a folder, the name of a file is needed.")
    torch.set_num_threads(1)
    done = training.pretrain(
        out, data, values["model"], epochs=epochs, batch=batch, lr=lr, layer=split, seed=seed,
        said=None if quiet or as_json else lambda epoch, accuracy: text.line(f"epoch {epoch}: accuracy {accuracy:.3f}"),
    )  # fmt: skip
    if as_json:
        text.as_json({**asdict(done), "path": str(done.path)})
    else:
        text.line(
            f"{done.path}: encoder of {done.model}, {done.encoder} numbers, from {done.samples} rows of {done.data}; "
            f"with its classifier it reached {done.accuracy:.3f}."
        )
