"""FedCFC's own protocol: no pre-training, runs past convergence, both metrics (docs/methods/fedcfc_protocol.md).

    python experiments/fedcfc/protocol.py gamma --seeds 3 --out runs/gamma.json       Figure 8 and Table 3
    python experiments/fedcfc/protocol.py fifty --seeds 3 --out runs/fifty.json       section 5.2, 50 clients
    python experiments/fedcfc/protocol.py clients --seeds 3 --out runs/clients.json   Figure 15a
    python experiments/fedcfc/protocol.py terms --seeds 3 --out runs/terms.json       Figure 14

`--set data.source=utd_mhad_inertial_10hz` takes other data. Each row of a table has the learning rate that is best on
the validation rows of seed 100. A run is measured in the round in which no client's validation accuracy gains (the
paper's rule, the same for all methods) and at its end. Finished runs are kept in `--out`; the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.func import vmap

from potluck.methods.parts.fedcfc.convergence import best_so_far
from potluck.runs.build import build
from potluck.runs.evaluate import Evaluator
from potluck.runs.experiment import Experiment
from potluck.runs.local_session import LocalSession

HERE = Path(__file__).parent
SHARE = 0.0005  # a gain of less than this share of the best is none
NEAR = 0.01  # the mean validation accuracy is near its best within a point
TRIAL, RATES = 100, (0.01, 0.03, 0.1)
NO_TERMS = tuple(f"method.terms.lambda_{term}=0.0" for term in "dma")
ARMS: dict[str, tuple[str, ...]] = {
    "fbind": ("method.variant=fbind",),
    "alone": NO_TERMS,
    "favg": ("method.variant=favg",),
    "fprox": ("method.variant=fprox",),
    "fscaf": ("method.variant=fscaf",),
    "fgh": ("method.variant=fgh",),
    "lotteryfl": ("method.name=lotteryfl",),
    "balancefl": ("method.name=balancefl",),
    "fedbits": ("method.name=fedbits", "method.bits=7"),
    "centralised": ("method.name=centralised",),
}


class Kept:
    """Finished runs by name, in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        file.parent.mkdir(parents=True, exist_ok=True)

    def of(self, name: str, make: Any) -> Any:
        if name not in self.rows:
            began, spent = time.time(), time.process_time()
            self.rows[name] = make()
            self.file.write_text(json.dumps(self.rows))
            print(f"  {name}: {time.process_time() - spent:.1f} s of {time.time() - began:.1f} s", flush=True)
        return self.rows[name]


def carried_out(file: str, settings: list[str], seed: int, rounds: int) -> dict[str, Any]:
    """One run of so many rounds: accuracies at convergence and at the end, curves and bytes."""
    plan = Experiment.read(HERE / file, [*settings, f"run.seed={seed}", f"stop.rounds={rounds}"])
    session = build(plan)
    try:
        return _measured(session, seed, rounds)
    finally:
        session.close()


def spent(settings: list[str], lr: float, rounds: int = 8) -> float:
    """Processor time of a round without any look at accuracies, behind a first one that loads what it needs."""
    session = build(Experiment.read(HERE / "protocol.toml", [*settings, f"method.recipe.lr={lr}", "run.seed=0"]))
    try:
        began = 0.0
        for state in session.method.server(
            session.fleet, session.method.start(session.weights, session.config), session.config
        ):
            began = began if state.round > 1 else time.process_time()
            if state.round > rounds:
                return (time.process_time() - began) / rounds
    finally:
        session.close()
    raise AssertionError("the run ended early")


def _measured(session: LocalSession, seed: int, rounds: int) -> dict[str, Any]:
    def on(part: Any) -> LocalSession:
        evaluator = Evaluator(session.model, session.federation, 10**6, seed, part=part)
        return replace(session, evaluator=evaluator)

    tests, valid, train = on("test"), on("valid"), on("train")
    best: dict[str, float] = {}
    out: dict[str, Any] = {"settled": 0, "train": [], "valid": []}
    last: list[Any] = []
    first = session.method.start(session.weights, session.config)
    for state in session.method.server(session.fleet, first, session.config):
        tasks, _ = session.fleet.log.drain()
        last = [task for task in tasks if task.outcome == "accepted"] or last
        found = valid.evaluate(state)
        now = {client: float(value) for client, value in zip(found.clients, found.accuracy, strict=True)}
        best, gained = best_so_far(best, now, SHARE)
        out["valid"].append(float(np.mean(found.accuracy)))
        out["train"].append(float(train.evaluate(state).accuracy.mean()))
        if not gained and not out["settled"]:
            out["settled"] = state.round
            out["at"] = figures(tests, state)
        if state.round >= rounds:
            break
    out["end"] = figures(tests, state)
    out["bytes"] = sum(task.bytes_up + task.bytes_down for task in last) / max(1, len(last))
    out["agreement"] = float(getattr(state, "agreement", float("nan")))
    out["cum"] = [float(aim.cum) for aim in getattr(state, "aims", ())]
    return out


@torch.no_grad()
def figures(session: LocalSession, state: Any) -> dict[str, float]:
    """Accuracy on the clients' own test rows, and of all their models on all test rows, class by class."""
    federation = session.federation
    rows = [federation.materialise(place, "test") for place in session.evaluator.places]
    joined = [
        None if one is None else torch.from_numpy(np.concatenate([each[i] for each in rows]))
        for i, one in enumerate(rows[0])
    ]
    x, y, t, length = joined
    more = {name: value for name, value in (("t", t), ("length", length)) if value is not None}
    names = federation.names
    models = [session.personal(state, place, names[place]) for place in session.evaluator.places]
    weights = {name: torch.stack([model[name] for model in models]) for name in models[0]}
    right = vmap(lambda w: session.model.logits(w, x, **more))(weights).argmax(-1) == y
    known = np.array([[float(one[y == label].float().mean()) for label in torch.unique(y)] for one in right])
    own = session.evaluate(state).accuracy
    return {
        "own": float(own.mean()),
        "low": float(np.quantile(own, 0.1)),
        "all": float(known.mean()),
        "worst": float(known.mean(0).min()),
    }


def best_rate(kept: Kept, name: str, file: str, settings: list[str], rounds: int) -> float:
    """The learning rate with the highest validation accuracy on a seed that is in no table."""
    tried = {
        lr: kept.of(
            f"{name} lr={lr:g} trial",
            lambda lr=lr: carried_out(file, [*settings, f"method.recipe.lr={lr}"], TRIAL, rounds),
        )
        for lr in RATES
    }
    return max(RATES, key=lambda lr: statistics.mean(tried[lr]["valid"][-5:]))


def row(kept: Kept, name: str, file: str, settings: list[str], lr: float, args: argparse.Namespace) -> list[Any]:
    runs = [
        kept.of(
            f"{name} seed={seed}",
            lambda seed=seed: carried_out(file, [*settings, f"method.recipe.lr={lr}"], seed, args.rounds),
        )
        for seed in range(args.seeds)
    ]
    print(line(name, lr, runs), flush=True)
    return runs


def line(name: str, lr: float, runs: list[dict[str, Any]]) -> str:
    def both(when: str, what: str) -> str:
        return spread([run.get(when, run["end"])[what] for run in runs])

    rounds = [run["settled"] or len(run["train"]) for run in runs]
    ends = "".join("+" if not run["settled"] else "" for run in runs)
    rough = [1e4 * statistics.pvariance([b - a for a, b in pairwise(run["train"])]) for run in runs]
    near = [next(k for k, v in enumerate(run["valid"], 1) if v >= max(run["valid"]) - NEAR) for run in runs]
    kb = [run["bytes"] / 1000 for run in runs]
    total = [value * number for value, number in zip(kb, rounds, strict=True)]
    return (
        f"{name:26s} lr {lr:g}  converged: own {both('at', 'own')} all {both('at', 'all')} "
        f"rounds {statistics.mean(rounds):.0f}{ends} kB {statistics.mean(kb):.2f} "
        f"to there {statistics.mean(total):.0f} near best {statistics.mean(near):.0f}"
        f"  end: own {both('end', 'own')} all {both('end', 'all')} worst {both('end', 'worst')}"
        f"  roughness {statistics.mean(rough):.2f}e-4  agreement {statistics.mean(r['agreement'] for r in runs):.2f}"
    )


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.3f}"


def gamma(kept: Kept, args: argparse.Namespace) -> None:
    """Figure 8 and Table 3: all arms at gamma 1, 0.5 and 0. The learning rate of an arm is chosen at 0.5."""
    for arm in args.arms or ARMS:
        lr = best_rate(kept, arm, "protocol.toml", [*args.set, *ARMS[arm], "partition.gamma=0.5"], args.trial)
        for share in (1.0, 0.5, 0.0):
            if arm == "centralised" and share < 1:
                continue
            row(
                kept,
                f"{arm} gamma={share:g}",
                "protocol.toml",
                [*args.set, *ARMS[arm], f"partition.gamma={share}"],
                lr,
                args,
            )


def fifty(kept: Kept, args: argparse.Namespace) -> None:
    """Section 5.2: the same with 50 clients, fBind and going alone."""
    for arm in ("fbind", "alone"):
        for share in (1.0, 0.5, 0.0):
            given = [*args.set, *ARMS[arm], "partition.clients=50", f"partition.gamma={share}"]
            row(kept, f"{arm} 50 gamma={share:g}", "protocol.toml", given, args.lr, args)


def clients(kept: Kept, args: argparse.Namespace) -> None:
    """Figure 15a: 4 to 24 clients with as many rows each, pre-trained on a fifth of the rows."""
    common = [
        "data.source=uci_har_10hz", "partition.kind=iid", "partition.samples=60", "server.share=0.2",
        "method.pretrain.epochs=1", "method.pretrain.lr=0.02", "method.pretrain.batch=16",
    ]  # fmt: skip
    for arm in ("fbind", "alone"):
        for count in (4, 8, 12, 16, 24):
            given = [*common, *args.set, *ARMS[arm], f"partition.clients={count}"]
            row(kept, f"{arm} clients={count}", "protocol.toml", given, args.lr, args)


def terms(kept: Kept, args: argparse.Namespace) -> None:
    """Figure 14: one λ from 0 to 0.8 with the others at 0.1, and the processor time of a round."""
    common = ["partition.gamma=0.5"]
    without = spent([*common, *args.set, *NO_TERMS], args.lr)
    for value in (0.1, 0.8):
        given = [f"method.terms.lambda_{term}={value}" for term in "dma"]
        ratio = spent([*common, *args.set, *given], args.lr) / without
        print(f"processor time of a round with all λ at {value:g}: {ratio:.2f} of that without terms", flush=True)
    for term in "dma":
        for value in (0.0, 0.1, 0.2, 0.4, 0.6, 0.8):
            weights = {other: 0.1 for other in "dma"} | {term: value}
            name = "terms " + " ".join(f"{other}={weight:g}" for other, weight in weights.items())
            given = [f"method.terms.lambda_{other}={weight}" for other, weight in weights.items()]
            row(kept, name, "protocol.toml", [*common, *args.set, *given], args.lr, args)


TABLES = {made.__name__: made for made in (gamma, fifty, clients, terms)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--trial", type=int, default=15, help="rounds of the runs that choose a learning rate")
    parser.add_argument("--lr", type=float, default=0.03, help="fifty, clients, terms: the learning rate")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    args = parser.parse_args()
    TABLES[args.table](Kept(args.out), args)


if __name__ == "__main__":
    main()
