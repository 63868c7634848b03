"""FedConv's server work, as ratios of processor times in one run, one thread.

`python benchmarks/fedconv_tuning.py`: tuning the dilation of eight clients as one stack against one client after
another, for a dense and a convolutional model; and a long kernel by Fourier transform against sums of products.
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
    ratio = convolved(1 << 30) / convolved(0)
    print(f"a kernel of 785 taps: sums of products take {ratio:.1f} times as long as the Fourier transform")


if __name__ == "__main__":
    main()
