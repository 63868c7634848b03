"""FedConv's server work, as ratios of processor times in one run, one thread.

`python benchmarks/fedconv_tuning.py`: tuning the dilation of eight clients as one stack against one client after
another, for a dense and a convolutional model; a long kernel by Fourier transform against sums of products; and an
Adam step of the CNN's kernels as first written (32 rows, one plane of all entries of the layer after the flatten, by
automatic differentiation) against the defaults, by automatic differentiation and by compiled kernels, and against steps
of one set of kernels for all clients of a width. `--round [method.kernels.compress_epochs=24 ...]`: what the phases of
one round of a run cost, in processor time and as charged to the server's clock; fedconv_before.py has the first form
of the code.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from potluck import compiled, keys
from potluck.fleet import Data, Params
from potluck.methods.parts.submodels import kernels, tuning
from potluck.methods.parts.submodels.making import Compression, Dilation
from potluck.methods.parts.submodels.tuning import Tuner
from potluck.methods.parts.submodels.widths import cut, leading, plan_of
from potluck.models import build
from potluck.runs.build import build as build_run

CLIENTS, RATIO = 8, 0.5
PHASES = ("compression", "the dilation of eight clients")


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    work()
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def stacked(name: str, shape: tuple[int, ...], settings: dict[str, object], kind: str) -> float:
    """Four epochs of two steps."""
    model = build(name, shape, 10, settings)
    weights, plan = model.init(0), plan_of(model)
    names = [tensor for tensor in weights if tensor in model.trainable]
    subs = [cut(model.init(k), plan, leading(plan, RATIO)) for k in range(CLIENTS)]
    free = [kernels.made(weights, names, plan, RATIO, keys.key(k)) for k in range(CLIENTS)]
    data = Data(keys.normal(keys.key(0), (80, *shape)), torch.arange(80) % 10, torch.ones(80))
    rows = tuning.divided(data, keys.key(0))

    def dilated(own: Params, sub: Params) -> Params:
        return kernels.dilate(sub, own, weights)

    with mock.patch.object(model, "kind", kind):  # `tune` stacks whatever is not convolutional
        return seconds(
            lambda: tuning.tune(model, dilated, free, subs, rows, rates=[1e-3] * 4, batch=32, key=keys.key(1))
        )


def per_step(batch: int, flatten: str, turns: bool, quick: bool) -> tuple[float, float]:
    """Seconds of one step of compression, and of one step of all eight clients' dilation."""
    model = build("cnn", (1, 28, 28), 10, {})
    weights, plan = model.init(0), plan_of(model)
    names = [tensor for tensor in weights if tensor in model.trainable]
    lattice = kernels.Lattice(flatten=flatten)  # type: ignore[arg-type]
    own = kernels.made(weights, names, plan, RATIO, keys.key(0), lattice=lattice)
    subs = [cut(model.init(k), plan, leading(plan, RATIO)) for k in range(CLIENTS)]
    count = 8 * batch  # of rows to tune on: eight steps an epoch
    data = Data(keys.normal(keys.key(0), (count + 1, 1, 28, 28)), torch.arange(count + 1) % 10, torch.ones(count + 1))
    rows = tuning.divided(data, keys.key(0), 1 / (count + 1))
    how = {"rates": [1e-3] * 2, "batch": batch, "key": keys.key(1)}

    compress = Compression(weights, plan, RATIO, lattice=lattice)
    dilate = Dilation(weights, lattice=lattice)
    members = [own] * (1 if turns else CLIENTS)
    with nullcontext() if quick else compiled.off():
        first = seconds(lambda: tuning.tune(model, compress, [own], [], rows, **how), 2)  # type: ignore[arg-type]
        second = seconds(lambda: tuning.tune(model, dilate, members, subs, rows, **how), 2)  # type: ignore[arg-type]
    return first / 16, second / 16


def convolved(direct: int) -> float:
    """The linear layer of the MNIST network from half its width to the whole, and its gradient."""
    sub, own = keys.normal(keys.key(0), (1, 10, 784)), keys.normal(keys.key(1), (1, 1, 785))

    def step() -> None:
        w = own.clone().requires_grad_()
        kernels.spread(sub, w).square().sum().backward()

    with mock.patch.object(kernels, "DIRECT", direct):
        return seconds(step, 10)


def a_round(changes: list[str]) -> None:
    """One round of FedConv on MNIST in the form of experiments/fedconv/equal.py, by phases."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "fedconv"))
    from equal import experiment

    parts = build_run(experiment("mnist", "fedconv", 0.1, 0, ["server.pretrain=1", *changes], Path("runs")))
    spent: dict[str, list[float]] = {}
    tuned = Tuner.tuned

    def timed(self: Tuner, phase: str, *given: Any, **more: Any) -> Any:
        began, charged = time.process_time(), self.figures["seconds"][phase]
        steps, found = self.figures["steps"][phase], tuned(self, phase, *given, **more)
        line = spent.setdefault(phase, [0.0, 0.0, 0.0])
        line[0] += time.process_time() - began
        line[1] += self.figures["seconds"][phase] - charged
        line[2] += self.figures["steps"][phase] - steps
        return found

    with mock.patch.object(Tuner, "tuned", timed):
        program = parts.method.server(parts.fleet, parts.method.start(parts.weights, parts.config), parts.config)
        next(program)
        spent.clear()
        next(program)
    for phase, (processor, charged, steps) in spent.items():
        print(f"{phase}: {steps:.0f} steps, {processor:.2f} s of processor, {charged:.2f} s charged", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    if "--round" in sys.argv:
        a_round([one for one in sys.argv[1:] if "=" in one])
        return
    for name, shape, settings in (("mlp", (561,), {"hidden": [64]}), ("cnn", (1, 28, 28), {})):
        ratio = stacked(name, shape, dict(settings), "conv") / stacked(name, shape, dict(settings), "dense")
        print(f"{name}: {CLIENTS} clients one after another take {ratio:.2f} times as long as one stack", flush=True)
    before = per_step(32, "entries", False, False)
    print(f"as first written: {1e3 * before[0]:.2f} and {1e3 * before[1]:.2f} ms a step of {PHASES[0]} and {PHASES[1]}")
    for what, turns, quick in (
        ("8 rows, a plane for each position", False, False),
        ("the same by compiled kernels", False, True),
        ("and clients take turns on one set of kernels", True, True),
    ):
        now = per_step(8, "positions", turns, quick)
        ratios = " and ".join(f"{old / new:.1f}" for old, new in zip(before, now, strict=True))
        print(f"{what}: {1e3 * now[0]:.2f} and {1e3 * now[1]:.2f} ms, {ratios} times as quick", flush=True)
    ratio = convolved(1 << 30) / convolved(0)
    print(f"a kernel of 785 taps: sums of products take {ratio:.1f} times as long as the Fourier transform")


if __name__ == "__main__":
    main()
