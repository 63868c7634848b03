"""Small networks on series, each trained until its validation accuracy stops rising (docs/methods/fedcfc_networks.md).

    python experiments/fedcfc/plateau.py har25 har64 har128 --seeds 3 --out runs/plateau.json
    python experiments/fedcfc/plateau.py air_quality physionet2012 bosch_cnc_irregular --seeds 3 --out runs/plateau.json
    python experiments/fedcfc/plateau.py pixels --seeds 2 --out runs/plateau.json

A state of 16 for all (`--hidden`). Adam trains a few passes, then the validation rows are asked. Training ends when
that has brought nothing three times in a row; the figures are those of the best pass of each network. The learning rate
is the one whose best pass is highest on the validation rows, with a network of seed 100. Classes count alike: rows of
rare ones are repeated, and accuracies are means over classes. Finished rows are kept in `--out`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import Kept, spread
from torch.func import vmap

from potluck import keys
from potluck.cli.columns import loaded
from potluck.data.resample import resampled
from potluck.fleet import Data, Params
from potluck.learn import adam, training_macs
from potluck.models import Model, build
from potluck.models.memory import need
from potluck.studies import stacks

RATES, TRIAL, PATIENCE, CLIP = (0.003, 0.01, 0.03), 100, 3, 1.0
CFC = {"memory": {}, "xavier": {"init": "xavier"}, "time bias": {"time_bias": True}, "leaky": {"gate": "leaky"}}
CFC |= {"mixed": {"mixed": True}, "leaky, mixed": {"gate": "leaky", "mixed": True}}
NETS = [*(f"cfc {name}" for name in CFC), "gru", "lstm", "rnn", "bilstm", "ltc"]
RIVALS = ["rivals:PhasedLstm", "rivals:LipschitzRnn", "rivals:OdeNet", "rivals:CkCnn"]


@dataclass(frozen=True)
class Task:
    train: Data
    valid: Data
    tests: dict[str, Data]
    classes: int
    interval: float  # nominal, in the unit of t


def har(hertz: str, rate: float) -> Any:
    def made(rows: int) -> Task:
        task = of(f"uci_har{hertz}", 1.0 / rate)(rows)
        if rate < 50.0:
            return task
        known = task.tests["test"]
        for other in (30.0, 100.0):  # trained at 50 Hz
            x, t = resampled(known.x.numpy(), rate, other)
            clock = torch.from_numpy(np.broadcast_to(t, x.shape[:2]).copy())
            task.tests[f"{other:g} Hz"] = replace(known, x=torch.from_numpy(x), t=clock)
            seen, t = resampled(task.valid.x.numpy(), rate, other)
            shown = torch.from_numpy(np.broadcast_to(t, seen.shape[:2]).copy())
            task.tests[f"validation, {other:g} Hz"] = replace(task.valid, x=torch.from_numpy(seen), t=shown)
        return task

    return made


def of(name: str, interval: float) -> Any:
    def made(rows: int) -> Task:
        data = loaded(name, {})
        federation = stacks.together(data, 0, valid_share=0.2)
        train, valid, test = (stacks.rows_of(federation, part, rows, 0) for part in ("train", "valid", "test"))
        return Task(_even(train, data.classes), valid, {"test": test}, data.classes, interval)

    return made


def pixels(rows: int) -> Task:
    """MNIST, one pixel after another, at half the resolution: 196 steps."""
    task = of("mnist", 1.0)(rows)

    def line(data: Data) -> Data:
        return replace(data, x=torch.nn.functional.avg_pool2d(data.x, 2).flatten(1).unsqueeze(-1))

    return replace(task, train=line(task.train), valid=line(task.valid), tests={"test": line(task.tests["test"])})


TASKS = {
    "har25": har("_10hz", 10.0), "har64": har("_25hz", 25.0), "har128": har("", 50.0),
    "air_quality": of("air_quality", 1.0), "physionet2012": of("physionet2012", 0.5),
    "bosch_cnc_irregular": of("bosch_cnc_irregular", 4.0), "pixels": pixels,
}  # fmt: skip


def _even(data: Data, classes: int) -> Data:
    """As many rows of each class: those of rare classes are repeated."""
    places = [np.flatnonzero(data.y.numpy() == label) for label in range(classes)]
    most = max(map(len, places))
    at = torch.from_numpy(np.sort(np.concatenate([np.resize(own, most) for own in places if len(own)])))
    t, length = (None if value is None else value[at] for value in (data.t, data.length))
    return Data(data.x[at], data.y[at], data.weight[at], t, length)


def network(name: str, task: Task, hidden: int) -> Model:
    settings: dict[str, Any] = {"hidden": hidden}
    kind = name.partition(" ")[0]
    if kind == "cfc":
        settings |= {"backbone": 3 * hidden // 2, "head": hidden, **CFC[name.partition(" ")[2]]}
    if kind in ("cfc", "ltc") or (kind.startswith("rivals:") and not kind.endswith("CkCnn")):
        settings["interval"] = task.interval
    return build(kind, tuple(task.train.x.shape[1:]), task.classes, settings)


@torch.no_grad()
def trained(model: Model, task: Task, seeds: list[int], lr: float, passes: int, most: int) -> list[dict[str, Any]]:
    """Train a stack of networks; for each, its figures at its best pass."""
    weights = stacks.stacked([model.init(seed) for seed in seeds])
    more = {name: value for name, value in (("t", task.train.t), ("length", task.train.length)) if value is not None}

    def one(w: Params, key: torch.Tensor) -> Params:
        rows = Data(task.train.x, task.train.y, task.train.weight, more.get("t"), more.get("length"))
        return adam(model, w, rows, key=key, lr=lr, epochs=passes, batch=32, clip=CLIP)

    steps = passes * -(-len(task.train.y) // 32)
    best: list[dict[str, Any]] = [{"valid": -1.0} for _ in seeds]
    curves: list[list[float]] = [[] for _ in seeds]
    losses: list[list[float]] = [[] for _ in seeds]
    for number in range(1, most // passes + 1):
        stack = torch.stack([keys.key(seed, "plateau", number) for seed in seeds])
        weights = vmap(one)(weights, stack)
        known = stacks.accuracies(model, weights, task.valid, balanced=True)
        tests = {name: stacks.accuracies(model, weights, data, balanced=True) for name, data in task.tests.items()}
        slower = task.tests.get("validation, 30 Hz")
        for k, value in enumerate(known):
            curves[k].append(value)
            if slower is not None:
                losses[k].append(_loss(model, {n: w[k] for n, w in weights.items()}, slower))
            if value > best[k]["valid"]:
                best[k] = {"valid": value, "steps": number * steps, "at": number}
                best[k] |= {name: found[k] for name, found in tests.items()}
        if all(number - one["at"] >= PATIENCE for one in best):
            break
    return [{**one, "curve": curve, "loss": loss} for one, curve, loss in zip(best, curves, losses, strict=True)]


def _loss(model: Model, weights: Params, data: Data) -> float:
    logits = model.logits(weights, data.x, **({} if data.t is None else {"t": data.t}))
    return float(model.losses(logits, data.y).mean())


def row(kept: Kept, where: str, name: str, task: Task, args: argparse.Namespace) -> None:
    model = network(name, task, args.hidden)
    called = f"{where} {args.rows} {args.hidden} {name}"

    def run(lr: float, seeds: list[int]) -> Any:
        return trained(model, task, seeds, lr, args.passes, args.most)

    rates = args.rates
    tried = (
        {lr: kept.of(f"{called} lr={lr:g}", lambda lr=lr: run(lr, [TRIAL])) for lr in rates} if len(rates) > 1 else {}
    )
    lr = max(tried, key=lambda one: tried[one][0]["valid"]) if tried else rates[0]
    found = kept.of(f"{called} seeds={args.seeds}", lambda: run(lr, list(range(args.seeds))))
    weights = model.init(0)
    count = sum(value.numel() for value in weights.values())
    macs = training_macs(model, weights, task.train)
    tests = "  ".join(f"{test} {spread([one[test] for one in found])}" for test in task.tests)
    moved = [statistics.pstdev([b - a for a, b in pairwise(one["loss"])]) for one in found if len(one["loss"]) > 2]
    rough = f"  loss at 30 Hz moves by {statistics.mean(moved):.3f}" if moved else ""
    steps = statistics.mean(one["steps"] for one in found)
    print(
        f"{where:20s} {name:22s} {count:6,d} numbers  lr {lr:g}  {tests}  steps {steps:,.0f}{rough}  "
        f"training {macs / 1e6:.2f} MMAC and {need(model).total / 1000:.0f} kB a sample",
        flush=True,
    )


def milliseconds(model: Model, task: Task) -> tuple[float, float]:
    """Processor time of 32 windows: forward; forward and backward. The least of ten."""
    data = task.train
    more = {name: value[:32] for name, value in (("t", data.t), ("length", data.length)) if value is not None}
    weights = {name: value.clone().requires_grad_(name in model.trainable) for name, value in model.init(0).items()}
    found = []
    for _ in range(10):
        began = time.process_time()
        loss = model.losses(model.logits(weights, data.x[:32], **more), data.y[:32]).mean()
        middle = time.process_time()
        torch.autograd.grad(loss, [weights[name] for name in model.trainable], allow_unused=True)
        found.append((middle - began, time.process_time() - began))
    return 1e3 * min(one[0] for one in found), 1e3 * min(one[1] for one in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", choices=TASKS)
    parser.add_argument("--nets", nargs="*", default=[], choices=[*NETS, *RIVALS], metavar="NET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--passes", type=int, default=4, help="passes over the rows between two looks at validation")
    parser.add_argument("--most", type=int, default=80, help="passes at most")
    parser.add_argument("--rates", type=float, nargs="*", default=list(RATES))
    parser.add_argument("--times", action="store_true", help="train nothing: the processor time of 32 windows")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    kept = Kept(args.out)
    for where in args.tasks:
        task = TASKS[where](args.rows)
        for name in args.nets or [net for net in NETS if net not in ("bilstm", "ltc")]:
            if args.times:
                forward, both = milliseconds(network(name, task, args.hidden), task)
                print(f"{where:20s} {name:22s} forward {forward:.1f} ms, with backward {both:.1f} ms", flush=True)
            else:
                row(kept, where, name, task, args)


if __name__ == "__main__":
    main()
