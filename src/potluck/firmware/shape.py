"""Turns a model and FedCFC's settings into the SETUP record of a board, or says why a board cannot do it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from potluck.engines.serial.messages import Setup as Setup
from potluck.engines.serial.seal import Options, split_options
from potluck.errors import BadInput, Code, unknown
from potluck.firmware.toolchain import host_program
from potluck.fleet import Params
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import precision
from potluck.models import Model
from potluck.models.cfc import as_series
from potluck.models.cfc_steps import is_plain
from potluck.models.memory import KEEPING as KEEPING

FORMATS = precision.FORMATS  # float32, float16, int8: their indices are the protocol's numbers
FORMS = ("hinge", "printed")
LUDS = ("bound", "task")
MOST_BATCH, MOST_EPOCHS = 64, 16  # PL_MAX_BATCH, PL_MAX_EPOCHS


def checked_options(address: str) -> Options:
    """What stands behind a board's address."""
    _, options = split_options(address)
    if options.keep not in KEEPING:
        raise unknown(Code.BOARD_ADDRESS, "board: keep", options.keep, KEEPING)
    return options


def setup_of(
    model: Model, config: Any, *, timed: bool = False, keep: str = "segments", kept: str = "float32", form: str = ""
) -> Setup:
    """The record that installs this model with these settings. A setting that boards lack raises BadInput."""
    _refuse(model, config)
    return replace(
        cfc_setup(model, timed=timed, keep=keep, kept=kept, form=form or config.precisions[0]),
        wire=FORMATS.index(config.wire),
        ra_form=FORMS.index(config.terms.ra_form),
        lud=LUDS.index(config.lud),
        epochs=config.recipe.epochs,
        lambda_d=config.terms.lambda_d,
        lambda_m=config.terms.lambda_m,
        lambda_a=config.terms.lambda_a,
        v=config.terms.v,
        lr=config.recipe.lr,
        clip=config.recipe.clip,
    )


def cfc_setup(
    model: Model, *, timed: bool = False, keep: str = "segments", kept: str = "float32", form: str = "float32",
    extras: int = 0,
) -> Setup:  # fmt: skip
    """The record of a CFC alone, for methods that send their recipe with each task."""
    if model.settings["activation"] != "lecun_tanh":
        raise BadInput(
            Code.BOARD_SETTINGS,
            "model.activation: must be 'lecun_tanh' on boards, got 'silu', whose gradient needs twice the memory.",
        )
    settings = model.settings
    if not is_plain(settings):
        raise BadInput(
            Code.BOARD_SETTINGS,
            "model: must be a cfc of the printed form on boards, got one with gate = 'leaky', time_bias or mixed.",
        )
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
        weights=FORMATS.index(form),
        kept=FORMATS.index(kept),
        wire=0,
        ra_form=0,
        lud=0,
        epochs=1,
        lambda_d=0.0,
        lambda_m=0.0,
        lambda_a=0.0,
        v=0.0,
        lr=0.0,
        clip=0.0,
        extras=extras,
    )


def _refuse(model: Model, config: Any) -> None:
    if not isinstance(config, fedcfc.Config):
        raise BadInput(Code.BOARD_SETTINGS, 'firmware: boards run FedCFC only; set method.name = "fedcfc".')
    if model.name != "cfc":
        raise BadInput(Code.BOARD_SETTINGS, f'model.name: must be "cfc" on boards, got {model.name!r}.')
    for name, given, known in (
        ("variant", config.variant, "fbind"),
        ("federate", config.federate, "f"),
        ("terms.second", config.terms.second, "exact"),
        ("classes.first", config.classes.first, 0),
        ("depths", config.depths, ()),
        ("scales", config.scales, "tensor"),
        ("recipe.momentum", config.recipe.momentum, 0.0),
    ):
        if given != known:
            raise BadInput(Code.BOARD_SETTINGS, f"method.{name}: must be {known!r} on boards, got {given!r}.")
    if "float16" in config.precisions:
        raise BadInput(Code.BOARD_SETTINGS, "method.precisions: must be float32 or int8 on boards, got 'float16'.")
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
    vectors: int  # CUD, LUD and the direction of the second-order terms; momentum and pull
    kept: int  # states and their tangents, for the backward pass
    work: int  # scratch for the present steps

    @property
    def total(self) -> int:
        return self.weights + self.gradient + self.vectors + self.kept + self.work


def memory(setup: Setup) -> Memory:
    """Ask the firmware itself (`pl_memory_needed`), compiled for this machine; boards need the same."""
    done = subprocess.run([str(host_program("stages")), "needed"], input=setup.pack(), capture_output=True, check=False)
    if done.returncode:
        raise BadInput(
            Code.BOARD_SETTINGS,
            "model: must have 1 to 512 units per layer and at most 4096 steps on boards.",
        )
    total, *parts = (int(word) for word in done.stdout.split())
    found = Memory(*parts)
    assert found.total == total
    return found


def memory_needed(setup: Setup) -> int:
    return memory(setup).total


def weights_as_stored(weights: Params, names: list[str]) -> tuple[bytes, bytes]:
    """Weights, and scales of int8 weights, in the layout of a board and the order of the model's parameters."""
    scales = b"".join(_bytes(weights[name + "#scale"]) for name in names if name + "#scale" in weights)
    return b"".join(_bytes(weights[name]) for name in names), scales


def weights_from(data: bytes, scales: bytes, like: Params, names: list[str], int8: bool) -> Params:
    """The reverse of `weights_as_stored`, with the shapes of `like`."""
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
