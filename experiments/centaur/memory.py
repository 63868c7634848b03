"""Memory and MACs of a device: the classifier alone trained, the whole model trained, inference (Fig. 2 of Centaur).

    python experiments/centaur/memory.py [--batch 8]

Nothing is measured on a board: the peak of live tensors and the multiply-accumulates of one mini-batch are counted as a
run counts them, with the model, its samples and what training keeps.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import torch

from potluck import keys
from potluck.engines.price import count
from potluck.fleet import Data, Done, Local, Params
from potluck.learn import Recipe
from potluck.methods import centaur
from potluck.methods.centaur import Collect, Config, Retrain
from potluck.methods.parts.centaur.handover import Handover
from potluck.methods.parts.selection import EVERYTHING
from potluck.models import build

MODELS = {
    "ConvNet, 64 channels": ("convnet", (128, 9), 6, {"norm": "batch", "dropout": 0.0}),
    "ConvNet, 8 channels": ("convnet", (128, 9), 6, {"norm": "batch", "dropout": 0.0, "width": 8}),
    "compact, 16 channels, 32 x 32": ("compact", (3, 32, 32), 10, {"dropout": 0.0}),
    "compact, 16 channels, 96 x 96": ("compact", (3, 96, 96), 10, {"dropout": 0.0}),
}


@dataclass(frozen=True)
class Infer:
    weights: Params
    recipe: Recipe


def infer(task: Infer, local: Local) -> Done:
    answers = [
        local.model.logits(task.weights, local.data.x[i : i + task.recipe.batch]).argmax(-1)
        for i in range(0, len(local.data.x), task.recipe.batch)
    ]
    return Done(torch.cat(answers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    batch = parser.parse_args().batch
    torch.set_num_threads(1)
    for name, (kind, shape, classes, settings) in MODELS.items():
        model = build(kind, shape, classes, settings)
        cfg = Config(Recipe(epochs=1, batch=batch, lr=0.01, momentum=0.9), selection=EVERYTHING)
        state = centaur.start(model.init(0), cfg)
        rows = Data(torch.zeros(1, *shape), torch.zeros(1, dtype=torch.int64), torch.ones(1))
        local = Local(model, rows, None, keys.key(0))
        how = Handover.of(0, here=False, again=False, storage=0.0)
        part = replace(Collect.of(state, cfg, model.split().classifier, 0, how), share=1.0)
        # The encoder runs in every step, in groups of the batch, so that a step of each kind is compared.
        part = replace(part, encoding=replace(part.encoding, cache=False, stream=batch))
        found = {
            "inference": count(infer, Infer(state.weights, cfg.recipe), local),
            "classifier alone": count(centaur.collect, part, local),
            "whole model": count(centaur.retrain, Retrain.of(state, cfg, 0), replace(local, parcel=rows)),
        }
        base = found["inference"]
        print(f"{name}, batch {batch}")
        for what, price in found.items():
            memory, macs = price.memory / 1024, price.macs.of(batch) / batch / 1e6
            print(
                f"  {what:17s} {memory:9.0f} kB ({price.memory / base.memory:5.2f} x)"
                f"  {macs:8.2f} million MACs a sample ({price.macs.of(batch) / base.macs.of(batch):5.2f} x)"
            )


if __name__ == "__main__":
    main()
