"""Encoders in files: safetensors, written by `potluck pretrain` or by anyone who names tensors as the model does."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from potluck.errors import BadInput
from potluck.fleet import Params


def read_encoder(path: Path, weights: Params) -> Params:
    """The tensors of a file that are the model's, by name; the classifier's may be missing or of other sizes.

    What the file has for the first layer must fit: a file that shares nothing with the model is refused.
    """
    try:
        found = load_file(path)
    except FileNotFoundError:
        raise BadInput(f"model.encoder: there is no file {str(path)!r}; `potluck pretrain` makes one.") from None
    except (SafetensorError, OSError) as error:
        raise BadInput(f"model.encoder: {str(path)!r} is not a safetensors file ({error}).") from None
    fits = {n: value for n, value in found.items() if n in weights and value.shape == weights[n].shape}
    first = next(iter(weights))
    if first not in fits:
        given = f"{tuple(found[first].shape)}" if first in found else f"no {first!r}"
        raise BadInput(
            f"model.encoder: {str(path)!r} has {given}, the model's first layer {first!r} is "
            f"{tuple(weights[first].shape)}; pretrain with the same model and sample shape."
        )
    return {name: value.to(weights[name].dtype) for name, value in fits.items()}
