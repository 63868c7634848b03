"""Arrivals per second of an asynchronous run, and how much of each arrival is the method, by the number of clients.

    python benchmarks/echopfl_arrivals.py [--clients 100 1000 10000] [--arrivals 600] [--predictor rnn]
    python benchmarks/echopfl_arrivals.py --against-rounds --clients 1000 --arrivals 20000
    python benchmarks/echopfl_arrivals.py --distances

EchoPFL on the local engine, 58,000 parameters (MLP 450-128-5), 250 samples each, boards of unlike speed. "Method" is
the time inside `push` and `refined`, that is everything the server decides; "posts" the time to hand broadcasts to
the engine's mail, "reads" the time legs take to find theirs. `--against-rounds` trains as many clients in
synchronous rounds of FedAvg, same model, data and devices, and compares the time per trained client. `--distances`
compares the two ways to find the nearest of four clusters (Table 5). All times are the processor's (one thread), so
that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from workloads import Arrays, Workload

from potluck import devices, keys, methods
from potluck.engines.execute import Executor
from potluck.engines.local import LocalFleet, Roster
from potluck.engines.local.kept import Kept
from potluck.engines.local.store import Store
from potluck.engines.price import Prices
from potluck.fleet import Data, Local
from potluck.methods import echopfl
from potluck.methods.parts.echopfl import merging
from potluck.models import build
from potluck.runs.lasting import lasting

BOARDS = ("jetson-nano", "jetson-xavier-nx", "jetson-orin-nano", "raspberry-pi-4", "raspberry-pi-4")
SLOWER = 200.0  # so that training, not the link, sets the pace, as in EchoPFL's evaluation


def fleet_of(method: methods.Method, config: Any, clients: int) -> tuple[LocalFleet, Any]:
    w = Workload("E", "arrivals", "mlp", {"hidden": [128]}, (450,), 5, clients, clients, 250, 32, 2)
    arrays, model = Arrays(w), build(w.model, w.shape, w.classes, w.settings)
    weights, classes = model.init(0), method.classes
    gear = []
    for name in BOARDS:
        device = devices.catalogue()[name]
        slow = dataclasses.replace(device, macs_per_second=device.macs_per_second / SLOWER)
        gear.append((slow, devices.link("echopfl")))
    names = [f"c{i:05d}" for i in range(clients)]
    roster = Roster(names, np.full(clients, w.samples), gear, np.arange(clients) % len(gear))
    one = arrays.stacked([0], w.samples)
    home = Local(model, Data(one.x[0, :0], one.y[0, :0], one.weight[0, :0]), None, keys.key(0))
    executor = Executor(model, method.programs, classes, arrays.stacked)
    return LocalFleet(
        roster, executor, home, Kept(Store(classes), Store(classes), ()), Prices(method.programs)
    ), method.start(weights, config)


class Clock:
    """Adds up the processor time spent in functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return function(*args, **named)
            finally:
                self.seconds += time.process_time() - began

        return timed


def asynchronous(clients: int, arrivals: int, predictor: str, legs: int) -> dict[str, float]:
    method = methods.load("echopfl")
    config = method.configure({"broadcast.predictor": predictor, "legs": legs, "recipe.batch": 32})
    fleet, state = fleet_of(method, config, clients)
    deciding, posting, reading = Clock(), Clock(), Clock()
    push, refined = echopfl.push, echopfl.refined
    echopfl.push, echopfl.refined = deciding(push), deciding(refined)
    fleet.post = posting(fleet.post)  # type: ignore[method-assign]
    mail = fleet._mail
    mail.read, mail.first = reading(mail.read), reading(mail.first)  # type: ignore[method-assign]
    try:
        program = method.server(fleet, state, config)
        for _ in range(min(100, arrivals // 4)):  # the first tasks, prices and the predictor's training
            state = next(program)
        fleet.log.drain()
        deciding.seconds = posting.seconds = reading.seconds = 0.0
        began, count = time.process_time(), 0
        while count < arrivals:
            state = next(program)
            fleet.log.drain()
            count += 1
        wall = time.process_time() - began
    finally:
        echopfl.push, echopfl.refined = push, refined
    executor = fleet._executor
    return {
        "clients": clients,
        "arrivals": arrivals,
        "per second": arrivals / wall,
        "ms each": 1e3 * wall / arrivals,
        "ms method": 1e3 * deciding.seconds / arrivals,
        "ms posts": 1e3 * posting.seconds / arrivals,
        "ms reads": 1e3 * reading.seconds / arrivals,
        "method share": deciding.seconds / wall,
        "mean stack": executor.stacked / executor.stacks,
        "broadcasts": state.grouping.broadcasts,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def rounds(clients: int, trained: int) -> float:
    """Milliseconds per trained client in synchronous rounds."""
    method = methods.load("fedavg")
    config = method.configure({"recipe.batch": 32})
    fleet, state = fleet_of(method, config, clients)
    program = method.server(fleet, state, config)
    next(program)
    fleet.log.drain()
    count = max(1, round(trained / clients))
    began = time.process_time()
    for _ in range(count):
        next(program)
        fleet.log.drain()
    return 1e3 * (time.process_time() - began) / (count * clients)


def distances(rows: int = 1000) -> None:
    """One assignment by L1 of the weights, and by the divergence of answers on a probe set of so many rows."""
    for name, settings, shape, classes in (("mlp", {"hidden": [128]}, (450,), 5), ("cnn", {}, (3, 32, 32), 10)):
        model = build(name, shape, classes, settings)
        blank = torch.zeros(rows, dtype=torch.int64)
        probe = Data(keys.normal(keys.key("probe"), (rows, *shape)), blank, torch.ones(rows))
        centres, upload = [model.init(seed) for seed in range(4)], model.init(9)
        took = []
        for distance, repeats in ((merging.l1(model.trainable), 50), (merging.kl(model, probe), 2)):
            distance(upload, centres[0])
            began = time.process_time()
            for _ in range(repeats):
                min(distance(upload, centre) for centre in centres)
            took.append(1e3 * (time.process_time() - began) / repeats)
        weights = sum(upload[key].numel() for key in model.trainable)
        print(
            f"{name}, {weights:,} weights: L1 {took[0]:.3g} ms, KL on {rows} rows {took[1]:.3g} ms, "
            f"{took[1] / took[0]:.0f} times as long"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--arrivals", type=int, default=600)
    parser.add_argument("--predictor", default="rnn")
    parser.add_argument("--legs", type=int, default=2, help="legs of an epoch")
    parser.add_argument("--against-rounds", action="store_true")
    parser.add_argument("--distances", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.distances:
        distances()
        return
    for clients in args.clients:
        with lasting():  # as in a run
            found = asynchronous(clients, args.arrivals, args.predictor, args.legs)
        print("  ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
        if args.against_rounds:
            with lasting():
                each = rounds(clients, min(args.arrivals, 5 * clients))
            print(
                f"synchronous rounds: {each:.3g} ms per trained client; ratio {found['ms each'] / each:.2f}", flush=True
            )


if __name__ == "__main__":
    main()
