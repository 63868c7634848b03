"""`potluck pretrain`: train an encoder for methods that do not train one on the device."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from potluck.cli import flags, text
from potluck.cli.columns import loaded, reads_own_data, sections
from potluck.errors import BadInput, Code


@reads_own_data("split")
def pretrain(
    out: Annotated[Path, typer.Argument(metavar="ENCODER.safetensors", help="the file to write")],
    data: flags.Data = None,
    model: flags.Model = None,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="passes over the data")] = 5,
    batch: Annotated[int, typer.Option("--batch", metavar="N", help="samples per step")] = 64,
    lr: Annotated[float, typer.Option("--lr", metavar="X", help="learning rate")] = 0.01,
    split: Annotated[
        str, typer.Option("--split", metavar="LAYER", help="first layer of the classifier (default: detected)")
    ] = "",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="seed of the weights and of the order of the samples")
    ] = 0,
    settings: flags.Set = None,
    as_json: flags.Json = False,
    quiet: flags.QuietFlag = False,
) -> None:
    """Train a model centrally on a dataset and keep its encoder, the part before the classifier.

    `--set model.encoder=ENCODER.safetensors` starts a run with it, on any data whose samples have the same shape.
    `--set model.key=value` changes the model, `--label` and the like say how a file of your own is read.
    """
    import torch

    from potluck.runs import pretrain as training

    values = sections(settings or [], "pretrain")
    chosen = {**({"name": model} if model else {}), **values.get("model", {})}
    if data is None:
        raise BadInput(Code.NOT_SAID, "--data: name the dataset to train the encoder on; see `potluck datasets`.")
    if out.is_dir():  # checked now, not after the training
        raise BadInput(Code.OUTPUT_PLACE, f"pretrain: {str(out)!r} is a folder; give the name of a file.")
    torch.set_num_threads(1)
    recipe: dict[str, Any] = {"epochs": epochs, "batch": batch, "lr": lr, "layer": split, "seed": seed}
    said = None if quiet or as_json else _show_epoch
    done = training.pretrain(out, data, chosen, **recipe, said=said, dataset=loaded(data, values))
    if as_json:
        text.as_json({**asdict(done), "path": str(done.path)})
    else:
        text.line(
            f"{done.path}: encoder of {done.model}, {done.encoder} parameters, trained on {done.samples} samples of "
            f"{done.data}; accuracy with its classifier {done.accuracy:.3f}."
        )


def _show_epoch(epoch: int, accuracy: float) -> None:
    text.line(f"epoch {epoch}: accuracy {accuracy:.3f}")
