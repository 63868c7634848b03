"""The firmware's stages beside PyTorch's: one mini-batch, the same numbers for both."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck import keys, methods
from potluck.engines.serial.messages import Setup
from potluck.firmware.shape import setup_of, weights_as_stored
from potluck.firmware.toolchain import host_program
from potluck.fleet import Params
from potluck.learn import clipped
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import precision
from potluck.methods.parts.fedcfc.bind import bound_gradient, by_q
from potluck.models import Model, build
from potluck.models.cfc import in_head, last_layer, logits_and_activity, spans


@dataclass(frozen=True)
class Batch:
    x: Tensor
    y: Tensor
    t: Tensor | None
    length: Tensor | None


@dataclass(frozen=True)
class Stages:
    """What each stage leaves, flat."""

    loss: float
    gradient: Tensor
    activity: float
    norm: float
    direction: Tensor
    bound: Tensor
    clipped: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Case:
    model: Model
    config: fedcfc.Config
    setup: Setup
    weights: Params  # as stored: float, or int8 with scales
    cud: Tensor
    cum: float
    batch: Batch
    key: int = 7

    @property
    def names(self) -> list[str]:
        return [name for name in self.weights if not name.endswith("#scale")]


def case(
    *,
    steps: int = 12,
    channels: int = 3,
    classes: int = 4,
    samples: int = 2,
    timed: bool = False,
    ragged: bool = False,
    aimed: bool = True,
    cum: float = 1e-3,
    keep: str = "states",
    kept: str = "float32",
    form: str = "float32",
    settings: dict[str, Any] | None = None,
    **config: Any,
) -> Case:
    """A contractive network (Xavier) on drawn series; biases are not zero, so that their gradients are tested too."""
    shape = {"hidden": 5, "backbone": 7, "head": 6, "interval": 0.5, **(settings or {})}
    model = build("cfc", (steps, channels), classes, shape)
    weights = {
        name: w if w.dim() > 1 else 0.1 * keys.normal(keys.key("bias", name), w.shape)
        for name, w in model.init(3).items()
    }
    settings_ = methods.load("fedcfc").configure({"recipe.clip": 0.5, "recipe.lr": 0.05, **config})
    x = keys.normal(keys.key("x"), (samples, steps, channels))
    t = None
    if timed:
        t = torch.cumsum(0.2 + keys.uniform(keys.key("t"), (samples, steps)), 1)
    length = torch.tensor([steps - 3 * i for i in range(samples)]) if ragged else None
    y = torch.arange(samples) % classes
    vector = weights[last_layer(list(weights), "f")].numel()
    cud = keys.normal(keys.key("cud"), (vector,)) if aimed else torch.zeros(vector)
    setup = setup_of(model, settings_, timed=timed, keep=keep, kept=kept, form=form)
    stored = precision.stored(weights, form)
    return Case(model, settings_, setup, stored, cud, cum if aimed else -1.0, Batch(x, y, t, length))


def firmware(case: Case, *, double: bool = False, sanitize: bool = False) -> Stages:
    """What the C client makes of it."""
    real: Any = np.float64 if double else np.float32
    weights, scales = case.weights, b""
    int8 = case.setup.weights == 2
    if int8:
        data, scales = weights_as_stored(weights, case.names)
        scales = np.frombuffer(scales, np.float32).astype(real).tobytes()
    else:
        data = np.concatenate([weights[n].numpy().ravel() for n in case.names]).astype(real).tobytes()
    batch, steps = case.batch, case.setup.steps
    parts = [case.setup.pack(), struct.pack("<q", case.key), real(case.cum).tobytes(), struct.pack("<I", len(batch.y))]
    parts += [data, scales, case.cud.numpy().astype(real).tobytes()]
    since = spans(batch.t, case.model.settings["interval"])
    for i in range(len(batch.y)):
        length = steps if batch.length is None else int(batch.length[i])
        parts += [struct.pack("<HH", length, int(batch.y[i])), batch.x[i].numpy().astype(real).tobytes()]
        if since is not None:
            parts.append(since[i].numpy().astype(real).tobytes())
    tool = host_program("stages", double=double, sanitize=sanitize)
    done = subprocess.run([str(tool)], input=b"".join(parts), capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    count, vector = sum(w.numel() for n, w in weights.items() if not n.endswith("#scale")), case.cud.numel()
    out, at = done.stdout, 0

    def some(n: int, kind: Any = real) -> Tensor:
        nonlocal at
        values = np.frombuffer(out, kind, n, at)
        at += values.nbytes
        return torch.from_numpy(values.astype(np.float64))

    loss, gradient = float(some(1)), some(count)
    activity, norm, direction = float(some(1)), float(some(1)), some(vector)
    result = Stages(
        loss, gradient, activity, norm, direction, some(count), some(count), some(count, np.int8 if int8 else real)
    )
    assert at == len(out)
    return result


def pytorch(case: Case, dtype: torch.dtype = torch.float64) -> Stages:
    """The same by `methods/parts/fedcfc/bind.py` and autograd; settings are float32 numbers there as on the wire."""
    cfg, batch, model = case.config, case.batch, case.model
    f32 = lambda value: float(np.float32(value))  # noqa: E731
    own = cfg.terms
    terms = replace(
        own,
        **{name: f32(getattr(own, name)) for name in ("lambda_d", "lambda_m", "lambda_a", "v")},  # type: ignore[arg-type]
    )
    weights = {name: value.to(dtype) for name, value in precision.loaded(case.weights).items()}
    x, t = batch.x.to(dtype), None if batch.t is None else batch.t.to(dtype)
    if t is not None:  # spans are taken in float32 on the way to a board
        since = spans(batch.t, model.settings["interval"])
        assert since is not None
        t = torch.cumsum(since.to(dtype) * model.settings["interval"], 1)
    weight = torch.ones(len(batch.y), dtype=dtype)

    def values(w: Params) -> tuple[Tensor, Tensor]:
        logits, activity = logits_and_activity(model, w, x, weight=weight, t=t, length=batch.length)
        return model.losses(logits, batch.y).mean(), activity

    last = last_layer(list(weights), "f")
    bound = frozenset(name for name in weights if in_head(name, "f"))
    cud, cum = case.cud.to(dtype), torch.tensor(case.cum, dtype=torch.float32).to(dtype)
    plain, _ = bound_gradient(
        values, weights, bound, last, replace(terms, lambda_d=0.0, lambda_m=0.0, lambda_a=0.0), cud, cum
    )
    total, activity = bound_gradient(values, weights, bound, last, terms, cud, cum)
    names = case.names
    flat = lambda tree: torch.cat([tree[n].flatten() for n in names]).double()  # noqa: E731
    q = plain[last].flatten()
    short = (
        dict(zip(names, clipped([total[n] for n in names], cfg.recipe.clip), strict=True)) if cfg.recipe.clip else total
    )
    moved = {n: weights[n] - f32(cfg.recipe.lr) * short[n] for n in names}
    if case.setup.weights == 2:
        moved = precision.rounded({n: m.float() for n, m in moved.items()}, case.weights, torch.tensor(case.key))
    return Stages(
        float(values(weights)[0]), flat(plain), float(activity), float(q.norm()), by_q(terms, q, cud, cum).double(),
        flat(total), flat(short), flat(moved),
    )  # fmt: skip


def apart(ours: Tensor | float, theirs: Tensor | float) -> float:
    """Distance relative to the length."""
    a, b = torch.as_tensor(ours).double(), torch.as_tensor(theirs).double()
    return float((a - b).norm() / b.norm().clamp_min(1e-30))
