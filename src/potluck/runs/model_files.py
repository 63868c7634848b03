"""Model files: safetensors with one JSON text that says how to build the model.

All metadata is in one key. With several keys safetensors writes them in random order, and two equal runs would leave
files with different bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from potluck.data.dataset import Dataset
from potluck.errors import BadInput, Code, no_file
from potluck.files import write_bytes
from potluck.fleet import ClientId, Params
from potluck.models import Model
from potluck.models.answering import Answering
from potluck.tasks import Classification, plain

_KEY = "potluck"


def save(path: Path, weights: Params, about: Mapping[str, Any], private: bool = False) -> None:
    """Write tensors and plain JSON values; equal content gives equal bytes."""
    named = {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in weights.items()}
    write_bytes(path, to_bytes(named, metadata={_KEY: json.dumps(dict(about), sort_keys=True)}), private)


def load(path: Path) -> tuple[Params, dict[str, Any]]:
    """Read the tensors and the JSON values of a file that `save` wrote."""
    try:
        with safe_open(path, "pt") as file:
            found = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise no_file(Code.RUN_DAMAGED, "model file", path) from None
    except (SafetensorError, OSError) as error:
        raise BadInput(
            Code.RUN_DAMAGED,
            f"model file: {str(path)!r} must be a safetensors file ({error}). Run the experiment again.",
        ) from None
    if _KEY not in found:
        raise BadInput(
            Code.RUN_DAMAGED,
            f"model file: {str(path)!r} comes from an older version of Potluck or from another program. "
            "To use its models in this version, run the experiment again.",
        )
    return weights, json.loads(found[_KEY])


def about_of(model: Model, dataset: Dataset | None = None) -> dict[str, Any]:
    """Describe a model for its file: how to build it, and the layout of the samples it takes.

    Without a dataset, samples are expected in the layout of the model, channels first.
    """
    about = {
        "model": model.name,
        "shape": list(model.shape),
        "classes": model.classes,
        "settings": model.settings,
        "kind": "image" if len(model.shape) == 3 else "",
        "channels_last": False,
        "bytes": False,
    }
    if isinstance(model, Answering):
        about["answers_by"] = model.by
    if model.task != Classification(classes=model.classes):  # files of plain classes stay as they were
        about["task"] = plain(model.task)
    if dataset is not None:
        about["kind"], about["channels_last"] = dataset.kind, dataset.channels_last
        about["bytes"] = dataset.kind == "image" and dataset.x.dtype == np.uint8
        about["timed"], about["lengths"] = dataset.t is not None, dataset.length is not None
        about["channels"] = list(dataset.channel_names)
    return about


def file_name(client: ClientId) -> str:
    """Quote a client's name: a client may have any name, a file may not."""
    return quote(client, safe="")
