"""How far training on unlike classes and unlike data moves f, g and h (docs/methods/fedcfc_protocol.md).

    python experiments/fedcfc/volatile.py --seeds 3 --picture pca.svg

Figure 4 on four sets, Figure 5 (the two main components of the weights of f, a tanh network, a GRU and a CKCNN) and
Figure 6 (angles between f trained on two sets). Plain descent from common weights, 60 rows a class, 5 passes.
"""

from __future__ import annotations

import argparse
import statistics
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import spread

from potluck import keys
from potluck.cli.columns import loaded
from potluck.data.dataset import Dataset
from potluck.fleet import Data, Params
from potluck.models import Model, build
from potluck.models.cfc import HEADS, in_head
from potluck.studies import stacks
from potluck.studies.volatility import angle, span

SETS = ("uci_har_10hz", "motionsense_10hz", "utd_mhad_inertial_10hz", "utd_mhad_skeleton_10hz")
CFC: dict[str, Any] = {"hidden": 16, "backbone": 24, "head": 16, "init": "xavier"}
ROWS, EPOCHS, LR, PAIRS = 60, 5, 0.03, 15
NETS = {"cfc": CFC, "rnn": {"hidden": 16}, "gru": {"hidden": 16}, "rivals:CkCnn": {"hidden": 8}}


def networks(data: Dataset, model: Model, seed: int, heads: Params | None = None) -> list[Params]:
    """One network for each pair of classes, at most `PAIRS`, all from one start; `heads` replace its f, g and h."""
    every = stacks.rows_of(stacks.together(data, seed), "train", 0, seed)
    pairs = list(combinations(range(data.classes), 2))
    draw = keys.rng(seed, "pairs", data.name)
    pairs = [pairs[i] for i in np.sort(draw.permutation(len(pairs))[:PAIRS])]
    chosen = []
    for pair in pairs:
        own = [np.flatnonzero(every.y.numpy() == label) for label in pair]
        chosen.append(np.concatenate([draw.choice(rows, ROWS, replace=len(rows) < ROWS) for rows in own]))
    at = torch.from_numpy(np.stack(chosen))
    rows = Data(
        every.x[at], every.y[at], torch.ones(at.shape), None, None if every.length is None else every.length[at]
    )
    begin = model.init(seed)
    begin |= {name: value for name, value in (heads or {}).items() if name[0] in HEADS and name[1] == "."}
    first = stacks.stacked([begin] * len(pairs))
    trained = stacks.train(model, first, rows, seed=seed, lr=LR, epochs=EPOCHS, batch=8, own=True, optimiser="sgd")
    return [{name: value[k] for name, value in trained.items()} for k in range(len(pairs))]


def between(first: list[Params], second: list[Params], head: str) -> list[float]:
    pairs = combinations(first, 2) if first is second else product(first, second)
    return [angle(span(a, head), span(b, head)) for a, b in pairs]


def components(found: list[Params], names: list[str]) -> tuple[torch.Tensor, float]:
    """The networks in their two main components, and the mean square of a weight's deviation from their mean."""
    rows = torch.stack([torch.cat([one[name].flatten() for name in names]) for one in found]).double()
    middle = rows - rows.mean(0)
    _, _, axes = torch.linalg.svd(middle, full_matrices=False)
    return middle @ axes[:2].T, float(middle.square().mean() ** 0.5)


def pca(seeds: int, picture: Path | None) -> None:
    shown: dict[str, torch.Tensor] = {}
    data = loaded("uci_har_10hz", {})
    for kind, settings in NETS.items():
        model = build(kind, data.sample_shape, data.classes, settings)
        parts = ("f", "g", "h", "") if kind == "cfc" else ("",)
        wide: dict[str, list[float]] = {part: [] for part in parts}
        deep: dict[str, list[float]] = {part: [] for part in parts}
        for seed in range(seeds):
            found = networks(data, model, seed)
            for part in parts:
                names = [name for name in found[0] if in_head(name, part) or (not part and not name.startswith("fc."))]
                at, one = components(found, names)
                wide[part].append(float(at.square().sum(1).mean() ** 0.5))
                deep[part].append(one)
                if not seed and part in ("f", ""):
                    shown[f"{kind} {part}".strip()] = at
        for part in parts:
            print(
                f"Figure 5: {kind} {part:2s} distance from the mean, two components {spread(wide[part])}  "
                f"of a weight {spread(deep[part])}",
                flush=True,
            )
    if picture is not None:
        _draw(shown, picture)


def _draw(shown: dict[str, torch.Tensor], picture: Path) -> None:
    from matplotlib.figure import Figure

    from potluck.studies.plots import COLOURS

    figure = Figure(figsize=(5.0, 3.4), layout="constrained")
    axes = figure.subplots()
    names = {
        "cfc f": "f of the CFC",
        "cfc": "the whole CFC",
        "rnn": "tanh network",
        "gru": "GRU",
        "rivals:CkCnn": "CKCNN",
    }
    for colour, (name, at) in zip(COLOURS, shown.items(), strict=False):
        axes.plot(at[:, 0], at[:, 1], "o", markersize=4, alpha=0.7, color=colour, label=names[name])
    axes.set_xlabel("first component")
    axes.set_ylabel("second component")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(picture, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    angles: dict[tuple[str, str, str], list[list[float]]] = {}
    for seed in range(args.seeds):
        trained: dict[str, list[Params]] = {}
        heads: Params | None = None
        for name in SETS:
            data = loaded(name, {})
            model = build("cfc", data.sample_shape, data.classes, CFC)
            heads = heads or model.init(seed)
            trained[name] = networks(data, model, seed, heads)
        for head in HEADS:
            for name in SETS:
                angles.setdefault((head, name, name), []).append(between(trained[name], trained[name], head))
            for other in SETS[1:]:
                found = between(trained[SETS[0]], trained[other], head)
                angles.setdefault((head, SETS[0], other), []).append(found)
    for (head, one, other), found in sorted(angles.items(), key=lambda item: (item[0][1:], item[0][0])):
        middle, most = ([pick(each) for each in found] for pick in (statistics.median, max))
        figure = "4" if one == other else "6"
        both = one if one == other else f"{one} and {other}"
        print(f"Figure {figure}: {head} {both:44s} median {spread(middle)}  largest {spread(most)}", flush=True)
    pca(args.seeds, args.picture)


if __name__ == "__main__":
    main()
