"""Networks that a board runs layer by layer: perceptrons, 1-D convolutional networks, GRUs; as its SETUP record."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

from potluck.engines.serial.messages import Setup
from potluck.errors import BadInput, Code, unknown
from potluck.learn import Recipe
from potluck.models import Model

DENSE, CONV, POOL, GRU = 1, 2, 3, 4  # PL_DENSE and so on
ACTIVATIONS = {"none": 0, "relu": 1, "tanh": 2}
VELOCITY, PULL, LOSS_ALONE, SHARE = 1, 2, 4, 8  # PL_VELOCITY and so on; the last is of a CFC without FedCFC's terms
FORMATS = ("float32", "float16", "int8")  # of weights, as everywhere in the protocol
MOST_LAYERS, MOST_UNITS, MOST_STEPS, MOST_BATCH, MOST_EPOCHS = 8, 512, 4096, 64, 255
NETWORKS = ("softmax", "mlp", "cnn1d", "gru")


def layered_setup(model: Model, recipe: Recipe | None = None, *, pulled: bool = False, form: str = "") -> Setup:
    """The record that installs this network. What a board lacks raises BadInput."""
    steps, channels = (
        (model.shape[0], model.shape[1])
        if len(model.shape) == 2 and model.shape[1] <= MOST_UNITS
        else (prod(model.shape), 1)
    )
    layers = _layers(model)
    wide = [out for *_, out in layers]
    if len(layers) > MOST_LAYERS or max(wide) > MOST_UNITS or steps > MOST_STEPS:
        raise BadInput(
            Code.BOARD_SETTINGS,
            f"model: must have at most {MOST_LAYERS} layers of {MOST_UNITS} units and {MOST_STEPS} values of time on "
            f"boards, got {len(layers)} layers of at most {max(wide)} units and {steps}.",
        )
    packed = b"".join(
        struct.pack("<BBBBH", kind | ACTIVATIONS[act] << 4, *sizes, out) for kind, act, sizes, out in layers
    )
    names = ("hidden", "backbone", "head", "layers_f", "layers_g", "layers_h", "gated", "timed", "keep")
    rest: dict[str, Any] = dict.fromkeys((*names, "kept", "wire", "ra_form", "lud"), 0)
    terms: dict[str, Any] = dict.fromkeys(("lambda_d", "lambda_m", "lambda_a", "v", "lr", "clip"), 0.0)
    extras = (VELOCITY if recipe is not None and recipe.momentum else 0) | (PULL if pulled else 0)
    return Setup(
        session=0, inputs=channels, classes=model.classes, steps=steps, epochs=1, network=1, extras=extras,
        weights=FORMATS.index(form or "float32"), layers=packed, **rest, **terms,
    )  # fmt: skip


_Layer = tuple[int, str, tuple[int, int, int], int]


def _layers(model: Model) -> list[_Layer]:
    """Kind, activation, (kernel, stride, padding) and outputs of each layer, in the order of the model's weights."""
    settings, plain = model.settings, (0, 0, 0)
    if model.name not in NETWORKS:
        raise unknown(Code.BOARD_SETTINGS, "model.name: on boards", model.name, (*NETWORKS, "cfc"))
    if settings.get("dropout", 0):
        raise BadInput(Code.BOARD_SETTINGS, f"model.dropout: must be 0 on boards, got {settings['dropout']}.")
    out: list[_Layer] = []
    if model.name == "gru":
        if settings["layers"] != 1:
            raise BadInput(Code.BOARD_SETTINGS, f"model.layers: must be 1 on boards, got {settings['layers']}.")
        return [(GRU, "none", plain, int(settings["hidden"])), (DENSE, "none", plain, model.classes)]
    if model.name == "cnn1d":
        act, pool = settings["activation"], int(settings["pool"])
        sizes = (int(settings["kernel"]), int(settings["stride"]), int(settings["padding"]))
        for channels in settings["channels"]:
            out.append((CONV, "none" if pool > 1 else act, sizes, int(channels)))
            out += [(POOL, act, (pool, pool, 0), int(channels))] if pool > 1 else []
    if model.name != "softmax":
        out += [(DENSE, settings["activation"], plain, int(units)) for units in settings["hidden"]]
    return [*out, (DENSE, "none", plain, model.classes)]
