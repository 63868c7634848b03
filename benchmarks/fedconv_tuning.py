"""FedConv's server work, as ratios of processor times in one run, one thread.

`python benchmarks/fedconv_tuning.py`: tuning the dilation of eight clients as one stack against one client after
another, for a dense and a convolutional model; a long kernel by Fourier transform against sums of products; and an
Adam step of the CNN's kernels as first written (32 rows, one plane of all entries of the layer after the flatten)
against the defaults, and against steps of one set of kernels for all clients of a width.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest import mock

import torch

from potluck import keys
from potluck.fleet import Data, Params
from potluck.methods.parts.submodels import kernels, tuning
from potluck.methods.parts.submodels.widths import cut, leading, plan_of
from potluck.models import build

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


def tuned(name: str, shape: tuple[int, ...], settings: dict[str, object], kind: str) -> float:
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


def per_step(batch: int, flatten: str, turns: bool) -> tuple[float, float]:
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

    def compress(free: Params, _: object) -> Params:
        return kernels.compress(weights, free, plan, RATIO, lattice=lattice)

    def dilate(free: Params, sub: Params) -> Params:
        return kernels.dilate(sub, free, weights, lattice=lattice)

    members = [own] * (1 if turns else CLIENTS)
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


def main() -> None:
    torch.set_num_threads(1)
    for name, shape, settings in (("mlp", (561,), {"hidden": [64]}), ("cnn", (1, 28, 28), {})):
        ratio = tuned(name, shape, dict(settings), "conv") / tuned(name, shape, dict(settings), "dense")
        print(f"{name}: {CLIENTS} clients one after another take {ratio:.2f} times as long as one stack", flush=True)
    before = per_step(32, "entries", False)
    for what, now in (("a step", per_step(8, "positions", False)), ("a shared step", per_step(8, "positions", True))):
        ratios = ", ".join(
            f"{old / new:.1f} times in {phase}" for old, new, phase in zip(before, now, PHASES, strict=True)
        )
        print(
            f"{what} of 8 rows with a plane for each position: {1e3 * now[0]:.2f} and {1e3 * now[1]:.2f} ms; {ratios}",
            flush=True,
        )
    ratio = convolved(1 << 30) / convolved(0)
    print(f"a kernel of 785 taps: sums of products take {ratio:.1f} times as long as the Fourier transform")


if __name__ == "__main__":
    main()
