"""Round times of the local engine beside a plain PyTorch loop and the machine's own limit, as ratios in one run.

    python benchmarks/bench.py [--only W1 W2] [--rounds 5] [--workers 2] [--processes] [--cpu] [--picture bench.png]
    python benchmarks/bench.py --peers ../shared/bench/peers --pythons pythons.json [--turns 1]

The plain loop is `nn.Module` + `torch.optim.SGD`, one client after another on one thread. All variants take turns, so
that a busy machine is busy for each of them; the figure is the best round of each. A turn takes a twentieth of a second
or one round: a short round follows others, as it does in a run. The headline is how many clients one core trains in a
second. Other simulators take turns with it, where their drivers and Pythons are given (`peers.py`). Recurrent networks
take the plain loop so long that one client stands for all.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from peers import Peers
from workloads import WORKLOADS, Arrays, Workload, config_of, fleet_of, method_of, model_of

from potluck import compiled, keys
from potluck.learn import training_macs
from potluck.models import Model
from potluck.runs.lasting import lasting

OURS = ("stacked", "compiled", "engine")
LIMIT = "GEMM limit"
TURN = 0.05  # seconds
TARGETS = {  # against the plain loop on one core, and with two workers
    "W0": (18.0, 30.0),
    "W1": (8.0, 14.0),
    "W2": (2.2, 4.2),
    "W3": (350.0, 650.0),
    "W3g": (None, None),
    "W3f": (None, None),
    "W4": (7.0, 12.0),
}


def plain_loop(w: Workload, model: Model, arrays: Arrays) -> Callable[[int], None]:
    """What one would write without a framework; a recurrent net's time steps are ordinary autograd operations."""
    module = _textbook(w, model)
    start = {name: value.clone() for name, value in module.state_dict().items()}

    def round(number: int) -> None:
        for i in cohort(w, number):
            x, y = arrays.client(i)
            module.load_state_dict(start)
            optimiser = torch.optim.SGD(module.parameters(), lr=w.lr)
            for _ in range(w.epochs):
                for at in range(0, w.samples, w.batch):
                    optimiser.zero_grad()
                    F.cross_entropy(module(x[at : at + w.batch]), y[at : at + w.batch]).backward()
                    optimiser.step()

    return round


class _TextbookGru(torch.nn.Module):
    """A GRU cell in a Python loop, as one writes a cell that no library has."""

    def __init__(self, channels: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.inputs = torch.nn.Linear(channels, 3 * hidden)
        self.state = torch.nn.Linear(hidden, 3 * hidden)
        self.out = torch.nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], self.hidden)
        for t in range(x.shape[1]):
            ri, zi, ni = self.inputs(x[:, t]).chunk(3, -1)
            rh, zh, nh = self.state(h).chunk(3, -1)
            r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
            n = torch.tanh(ni + r * nh)
            h = (1 - z) * n + z * h
        return self.out(h)


class _TextbookCfc(torch.nn.Module):
    """A closed-form continuous-time cell in a Python loop, gated, as its equations are printed."""

    def __init__(self, channels: int, hidden: int, backbone: int, head: int, classes: int) -> None:
        super().__init__()
        linear = torch.nn.Linear
        self.hidden = hidden
        self.backbone = linear(channels + hidden, backbone)
        self.first = torch.nn.ModuleDict({name: linear(backbone, head) for name in "fgh"})
        self.last = torch.nn.ModuleDict({name: linear(head, hidden) for name in "fgh"})
        self.out = linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(x.shape[0], self.hidden)
        for t in range(x.shape[1]):
            z = 1.7159 * torch.tanh(0.666 * self.backbone(torch.cat((x[:, t], state), 1)))
            f, g, h = (self.last[k](1.7159 * torch.tanh(0.666 * self.first[k](z))) for k in "fgh")
            gate = torch.sigmoid(-f)
            state = gate * torch.tanh(g) + (1 - gate) * torch.tanh(h)
        return self.out(state)


def _textbook(w: Workload, model: Model) -> torch.nn.Module:
    if w.model == "gru":
        return _TextbookGru(w.shape[1], int(str(w.settings["hidden"])), w.classes)
    if w.model == "cfc":
        sizes = (int(str(w.settings[name])) for name in ("hidden", "backbone", "head"))
        return _TextbookCfc(w.shape[1], *sizes, w.classes)
    if w.model == "cnn5":
        conv, pool, relu = torch.nn.Conv2d, torch.nn.MaxPool2d(2), torch.nn.ReLU()
        flat = torch.nn.Flatten()
        return torch.nn.Sequential(
            conv(1, 32, 5), relu, pool, conv(32, 64, 5), relu, pool, flat, torch.nn.Linear(1024, w.classes)
        )
    return model.module


def cohort(w: Workload, number: int) -> list[int]:
    if w.cohort == w.clients:
        return list(range(w.clients))
    return sorted(int(i) for i in keys.rng("cohort", number).choice(w.clients, w.cohort, replace=False))


def engine(w: Workload, model: Model, arrays: Arrays, workers: int, processes: int = 0) -> Callable[[int], None]:
    fleet = fleet_of(w, model, arrays, workers, processes)
    method, cfg = method_of(w), config_of(w)
    program = method.server(fleet, method.start(model.init(0), cfg), cfg)
    return lambda number: next(program) and None


def gemm_seconds(w: Workload, model: Model, arrays: Arrays, clock: Callable[[], float] = time.perf_counter) -> float:
    """The round's multiply-accumulates at the speed of one large matrix product on one core."""
    size = 1024
    a, b = torch.randn(size, size, generator=torch.Generator().manual_seed(0)), torch.ones(size, size)
    best = min(_timed(lambda: torch.mm(a, b), clock) for _ in range(7))
    data = arrays.stacked([0], w.samples)
    one = type(data)(data.x[0], data.y[0], data.weight[0])
    macs = training_macs(model, model.init(0), one) * w.samples * w.epochs * w.cohort
    return macs / (size**3 / best)


def _timed(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    call()
    return clock() - start


def best_of_a_turn(round: Callable[[int], None], number: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the best round of a turn: in caches that another variant left, the first takes half as long again."""
    begin, best = clock(), float("inf")
    while True:
        best = min(best, _timed(lambda: round(number), clock))
        if clock() - begin >= TURN:
            return best


def without_kernels(round: Callable[[int], None]) -> Callable[[int], None]:
    def stacked(number: int) -> None:
        with compiled.off():
            round(number)

    return stacked


def _few(w: Workload) -> Workload:
    """The clients of the plain loop: a recurrent net takes so long that one stands for all of them."""
    return replace(w, cohort=1) if w.name[:2] == "W3" else w


def cpu_times(w: Workload, rounds: int, peers: Peers) -> dict[str, float]:
    """Processor time of the best round in one thread, for a machine that others use too."""
    torch.set_num_threads(1)
    model, arrays = model_of(w), Arrays(w)
    few = _few(w)
    variants = {} if w.method == "fedcfc" else {"plain loop": plain_loop(few, model, arrays)}
    variants["stacked"] = without_kernels(engine(w, model, arrays, 1))
    if compiled.ready():
        variants["compiled"] = engine(w, model, arrays, 1)
    best = dict.fromkeys(variants, float("inf"))
    for number in range(rounds + 1):  # the first round warms up, and compiles
        for name, round in variants.items():
            if few is not w and name == "plain loop" and number > 1:
                continue
            seconds = best_of_a_turn(round, number, time.process_time)
            if number:
                times = w.cohort // few.cohort if name == "plain loop" else 1
                best[name] = min(best[name], times * seconds)
        if number in (1, rounds):
            peers.turn()
    return best | {LIMIT: gemm_seconds(w, model, arrays, time.process_time)} | peers.best


def cpu_line(w: Workload, best: dict[str, float]) -> str:
    first = next(iter(best))
    parts = [f"{name} {1e3 * t:.1f} ms ({best[first] / t:.2f}x)" for name, t in best.items()]
    ours = min(t for name, t in best.items() if name in OURS)
    return f"{w.name:4}{', '.join(parts)}; {w.cohort / ours:.0f} client-rounds a second and core"


def draw(rows: dict[str, dict[str, float]], path: Path) -> None:
    """Client-rounds a second of each variant, by workload, on a logarithmic axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    figure, axes = pyplot.subplots(figsize=(10, 4), layout="constrained")
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        here = [(place, row[name]) for place, row in enumerate(rows.values()) if name in row]
        speeds = [WORKLOADS[list(rows)[place]].cohort / seconds for place, seconds in here]
        bars = axes.bar([place + (i + 0.5) * width - 0.4 for place, _ in here], speeds, width, label=name)
        axes.bar_label(bars, [f"{speed:,.0f}" for speed in speeds], fontsize=6)
    axes.set_yscale("log")
    axes.set_xticks(range(len(rows)), list(rows))
    axes.set_title("clients trained in a second", fontsize=10)
    figure.legend(loc="outside right upper", fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def measure(w: Workload, rounds: int, workers: int, processes: bool, peers: Peers) -> dict[str, float]:
    torch.set_num_threads(1)
    model, arrays = model_of(w), Arrays(w)
    build, few = time.perf_counter(), _few(w)
    variants = {
        "plain": plain_loop(few, model, arrays),
        "engine": engine(w, model, arrays, 1),
        f"engine x{workers}": engine(w, model, arrays, workers),
    }
    if processes:
        variants["processes"] = engine(w, model, arrays, 1, workers)
    built = time.perf_counter() - build
    best = dict.fromkeys(variants, float("inf"))
    for number in range(rounds + 1):  # the first round warms up
        for name, round in variants.items():
            if few is not w and name == "plain" and number > 1:
                continue
            seconds = best_of_a_turn(round, number)
            seconds *= w.cohort // few.cohort if name == "plain" else 1
            if number:
                best[name] = min(best[name], seconds)
        if number in (1, rounds):
            peers.turn()
    best["limit"] = gemm_seconds(w, model, arrays)
    best["build"] = built
    return best


def main() -> None:
    with lasting():  # as in a run
        _main()


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(WORKLOADS), help="W3f has no plain loop and needs --cpu")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--processes", action="store_true", help="also as many processes, with the ratio to the threads"
    )
    parser.add_argument("--cpu", action="store_true", help="processor time in one thread, with and without kernels")
    parser.add_argument("--picture", type=Path, help="draw client-rounds a second and core")
    parser.add_argument("--peers", type=Path, help="the folder of the peers' drivers")
    parser.add_argument("--pythons", type=Path, help="a JSON file with each peer's Python")
    parser.add_argument("--turns", type=int, default=2, choices=(1, 2), help="how often each peer runs")
    args = parser.parse_args()
    if (args.peers is None) != (args.pythons is None):
        parser.error("--peers and --pythons must be given together")
    args.only = args.only or [name for name, w in WORKLOADS.items() if args.cpu or w.method == "fedavg"]
    rows: dict[str, dict[str, float]] = {}
    if args.cpu:
        for name in args.only:
            peers = Peers(args.peers, args.pythons, name[:2], "cpu", args.turns)
            rows[name] = cpu_times(WORKLOADS[name], args.rounds, peers)
            print(cpu_line(WORKLOADS[name], rows[name]), flush=True)
        if args.picture:
            draw(rows, args.picture)
        return
    print(
        f"{'':4}{'plain loop':>12}{'engine':>10}{f'x{args.workers}':>10}{'GEMM limit':>12}"
        "   ratios to the plain loop (target)"
    )
    for name in args.only:
        w = WORKLOADS[name]
        peers = Peers(args.peers, args.pythons, name[:2], "seconds", args.turns)
        t = measure(w, args.rounds, args.workers, args.processes, peers)
        two = f"engine x{args.workers}"
        goal, goal_two = TARGETS[name]
        ratios = f"{t['plain'] / t['engine']:.1f}x ({goal or '-'})   {t['plain'] / t[two]:.1f}x ({goal_two or '-'})"
        print(
            f"{name:4}{t['plain']:11.3f}s{t['engine']:9.3f}s{t[two]:9.3f}s{t['limit']:11.3f}s   {ratios}"
            f"   {w.cohort / t['engine']:.0f} client-rounds a second and core   built in {t['build']:.1f}s   {w.title}",
            flush=True,
        )
        rows[name] = {"plain loop": t["plain"], "engine": t["engine"], two: t[two], LIMIT: t["limit"]} | peers.best
        for peer, seconds in peers.best.items():
            print(f"{'':4}{peer}: {seconds:.3f}s, engine {seconds / t['engine']:.1f}x as fast")
        if args.processes:
            share = t["processes"] / t[two]
            print(f"{'':4}{args.workers} processes {t['processes']:.3f}s, {share:.2f} of the threads' time")
    if args.picture:
        draw(rows, args.picture)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
