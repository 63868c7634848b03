"""The forms of a convolution's gradient in compiled kernels: which is the fastest, and which the rule picks.

`python benchmarks/windows.py [--repeat 3]` takes the gradient of one mini-batch of 20 samples through small networks,
in processor time of one thread. Each of their convolutions takes each form, while the others take the rule's.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import torch

from potluck import _convolved
from potluck.compiled import forms, images, kernels
from potluck.fleet import Data
from potluck.models import build

NAMES = ("dense", "lists", "picks")
NETS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("cnn5", (1, 28, 28), {}),
    ("cnn5", (3, 32, 32), {"channels": [16, 32]}),
    ("cnn5", (1, 28, 28), {"channels": [8, 16], "activation": "tanh"}),
    *(
        ("cnn", shape, {"channels": channels, "pool": pool})
        for shape, channels, pool in product(((1, 28, 28), (3, 32, 32)), ([8, 16], [32, 64]), (1, 2, 3))
    ),
    *(
        ("cnn1d", (128, 6), {"channels": channels, "pool": pool, "kernel": kernel, "padding": kernel // 2})
        for channels, pool, kernel in product(([8, 16], [32, 64]), (1, 2, 4), (3, 7))
    ),
]


def seconds(name: str, shape: tuple[int, ...], settings: dict[str, Any], kinds: dict[int, int], repeat: int) -> float:
    """Of one gradient, with these forms of these convolutions."""
    model = build(name, shape, 10, settings)
    draw = torch.Generator().manual_seed(0)
    data = Data(torch.randn(20, *shape, generator=draw), torch.arange(20) % 10, torch.ones(20))
    weights, width = model.init(0), kernels("vectors").WIDTH
    net = _convolved.net_of(model, weights, data)
    assert net is not None
    chosen = [
        next(form for form in forms.possible(block, i == 0, width) if form.kind == kinds[i])
        if i in kinds
        else forms.form_of(block, i == 0, width)
        for i, block in enumerate(net.blocks)
    ]
    images._placed.cache_clear()
    with mock.patch.object(images, "form_of", lambda block, first, width: chosen[net.blocks.index(block)]):
        slopes = _convolved.slopes(model, net, data, 20)
        row = torch.cat([form.row(weights[form.name][None]) for form in net.forms], 1)[0].numpy()
        best = np.inf
        for _ in range(3 * repeat):
            begin = time.process_time()
            for _call in range(3):
                slopes(row, torch.arange(20), torch.ones(20))
            best = min(best, (time.process_time() - begin) / 3)
    images._placed.cache_clear()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    torch.set_num_threads(1)
    width, losses = kernels("vectors").WIDTH, []
    for name, shape, settings in NETS:
        model = build(name, shape, 10, settings)
        net = _convolved.net_of(model, model.init(0), Data(torch.zeros(1, *shape), torch.zeros(1), torch.ones(1)))
        assert net is not None
        for i, block in enumerate(net.blocks):
            found = {
                form.kind: seconds(name, shape, settings, {i: form.kind}, repeat)
                for form in forms.possible(block, i == 0, width)
            }
            picked = forms.form_of(block, i == 0, width).kind
            losses.append(found[picked] / min(found.values()))
            times = ", ".join(f"{NAMES[kind]} {1e3 * value:.2f} ms" for kind, value in found.items())
            what = f"{name} {shape} {settings} convolution {i + 1}"
            print(f"{what}: {times}; the rule picks {NAMES[picked]}, {losses[-1]:.2f} of the best", flush=True)
    right = sum(loss < 1.02 for loss in losses)
    print(
        f"the rule picks the fastest form, or one within 2 %, {right} times of {len(losses)}; its picks take "
        f"{np.mean(losses):.2f} times the best on average and {max(losses):.2f} times at worst"
    )


if __name__ == "__main__":
    main()
