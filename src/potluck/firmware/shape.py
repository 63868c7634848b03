"""From a model and FedCFC's settings to what a board is told: the SETUP record, or why a board cannot do it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from potluck.engines.serial.messages import Setup as Setup
from potluck.errors import BadInput, Code
from potluck.firmware.toolchain import host_program
from potluck.fleet import Params
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import precision
from potluck.models import Model
from potluck.models.cfc import as_series

KEEPING = ("all", "states", "segments")
FORMATS = precision.FORMATS  # float32, float16, int8: their places are the protocol's numbers
FORMS = ("hinge", "printed")
MOST_BATCH, MOST_EPOCHS = 64, 16  # PL_MAX_BATCH, PL_MAX_EPOCHS


def setup_of(
    model: Model, config: Any, *, timed: bool = False, keep: str = "segments", kept: str = "float32", form: str = ""
) -> Setup:
    """The record that installs this model with these settings; a setting no board knows is refused."""
    _refuse(model, config)
    settings = model.settings
    steps, channels = as_series(model.shape)
    layers = [int(n) for n in settings["layers"]]
    return Setup(
        session=0,
        inputs=channels,
        hidden=int(settings["hidden"]),
        backbone=int(settings["backbone"]),
        head=int(settings["head"]),
        classes=model.classes,
        steps=steps,
        layers_f=layers[0],
        layers_g=layers[1],
        layers_h=layers[2],
        gated=int(settings["gate"] == "gated"),
        timed=int(timed),
        keep=KEEPING.index(keep),
        weights=FORMATS.index(form or config.precisions[0]),
        kept=FORMATS.index(kept),
        wire=FORMATS.index(config.wire),
        ra_form=FORMS.index(config.ra_form),
        epochs=config.recipe.epochs,
        lambda_d=config.lambda_d,
        lambda_m=config.lambda_m,
        lambda_a=config.lambda_a,
        v=config.v,
        lr=config.recipe.lr,
        clip=config.recipe.clip,
    )


def _refuse(model: Model, config: Any) -> None:
    if not isinstance(config, fedcfc.Config):
        raise BadInput(Code.BOARD_SETTINGS, 'firmware: boards run FedCFC only; set method.name = "fedcfc".')
    if model.name != "cfc":
        raise BadInput(
            Code.BOARD_SETTINGS, f'firmware: boards train a CFC, not {model.name!r}; set model.name = "cfc".'
        )
    if model.settings["activation"] != "lecun_tanh":
        raise BadInput(
            Code.BOARD_SETTINGS,
            "model.activation: 'silu' is no function of its output, so a board would have to keep twice as much; "
            "'lecun_tanh' is allowed on boards.",
        )
    allowed: dict[str, tuple[Any, ...]] = {
        "variant": ("fbind",),
        "federate": ("f",),
        "second": ("exact",),
        "first_classes": (0,),
        "depths": ((),),
    }
    for name, values in allowed.items():
        if getattr(config, name) not in values:
            raise BadInput(
                Code.BOARD_SETTINGS, f"method.{name}: {getattr(config, name)!r} given, boards know {values[0]!r} only."
            )
    if "float16" in config.precisions:
        raise BadInput(Code.BOARD_SETTINGS, "method.precisions: 'float16' given, boards store float32 or int8 weights.")
    for name, most in (("batch", MOST_BATCH), ("epochs", MOST_EPOCHS)):
        if getattr(config.recipe, name) > most:
            raise BadInput(
                Code.BOARD_SETTINGS,
                f"method.recipe.{name}: must be at most {most} on boards, got {getattr(config.recipe, name)}.",
            )


@dataclass(frozen=True)
class Memory:
    """Bytes of a board's arena, by what they are for."""

    weights: int
    gradient: int
    vectors: int  # CUD, LUD, and the direction of the second-order terms
    kept: int  # states, and their tangents, for the way back
    work: int  # the steps at hand

    @property
    def total(self) -> int:
        return self.weights + self.gradient + self.vectors + self.kept + self.work


def memory(setup: Setup) -> Memory:
    """Asked of the firmware's own arithmetic, `pl_memory_needed`; boards need the same as this machine does."""
    done = subprocess.run([str(host_program("stages")), "needed"], input=setup.pack(), capture_output=True, check=False)
    if done.returncode:
        raise BadInput(
            Code.BOARD_SETTINGS,
            "model: the firmware has no such network; sizes of 1 to 512 units and 4096 steps are allowed.",
        )
    total, *parts = (int(word) for word in done.stdout.split())
    found = Memory(*parts)
    assert found.total == total
    return found


def memory_needed(setup: Setup) -> int:
    return memory(setup).total


def weights_as_stored(weights: Params, names: list[str]) -> tuple[bytes, bytes]:
    """Weights (and scales of int8 ones) as a board keeps them, in the order of the model's parameters."""
    scales = b"".join(_bytes(weights[name + "#scale"]) for name in names if name + "#scale" in weights)
    return b"".join(_bytes(weights[name]) for name in names), scales


def weights_from(data: bytes, scales: bytes, like: Params, names: list[str], int8: bool) -> Params:
    """The reverse, with the shapes of `like`."""
    out: Params = {}
    dtype, at = (torch.int8 if int8 else torch.float32), 0
    flat = torch.frombuffer(bytearray(data), dtype=dtype)
    scale = torch.frombuffer(bytearray(scales), dtype=torch.float32) if int8 else None
    for i, name in enumerate(names):
        shape = like[name].shape
        out[name] = flat[at : at + shape.numel()].reshape(shape).clone()
        at += shape.numel()
        if scale is not None:
            out[name + "#scale"] = scale[i].clone()
    return out


def _bytes(value: Tensor) -> bytes:
    return value.detach().contiguous().numpy().tobytes()
