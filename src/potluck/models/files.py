"""Read encoders from safetensors files of `potluck pretrain` or of any program with the same tensor names."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from potluck.errors import BadInput, Code
from potluck.fleet import Params


def read_encoder(path: Path, weights: Params, encoder: Collection[str]) -> Params:
    """Read the tensors of a file that belong to the model. Those of the classifier may be missing or of other sizes.

    All tensors of the encoder must be there and fit: the rest of it would be random.
    """
    try:
        found = load_file(path)
    except FileNotFoundError:
        raise BadInput(
            Code.ENCODER_FILE, f"model.encoder: there is no file {str(path)!r}; `potluck pretrain` makes one."
        ) from None
    except (SafetensorError, OSError) as error:
        raise BadInput(
            Code.ENCODER_FILE, f"model.encoder: {str(path)!r} is not a safetensors file ({error})."
        ) from None
    fits = {n: value for n, value in found.items() if n in weights and value.shape == weights[n].shape}
    for name in weights:
        if name in encoder and name not in fits:
            given = f"{tuple(found[name].shape)}" if name in found else "nothing"
            raise BadInput(
                Code.ENCODER_FILE,
                f"model.encoder: {str(path)!r} has {given} for {name!r}, the model needs {tuple(weights[name].shape)}; "
                f"pretrain with the same model and sample shape.",
            )
        if name in fits and not bool(torch.isfinite(fits[name]).all()):
            raise BadInput(
                Code.ENCODER_FILE, f"model.encoder: {str(path)!r} has numbers in {name!r} that are not finite."
            )
    return {name: value.to(weights[name].dtype) for name, value in fits.items()}
