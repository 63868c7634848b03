"""What one arrival of an asynchronous run costs, beside one client of a synchronous round with the same work.

    python benchmarks/arrivals.py [--clients 1000] [--arrivals 4000]
    python benchmarks/arrivals.py --registered 1000000 --reachable 0.3

The second one keeps `--clients` of a large fleet at work (`fleet.at_once`), whose clients can be reached for a share of
the time. W0's model and samples. FedAsync keeps all clients at work; FedAvg asks all of them in each round. Times are
processor time in one thread, and contain everything: the method's decision, the engine and training.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

import torch
import workloads
from bench import engine

from potluck import devices
from potluck.learn import Recipe
from potluck.methods import fedasync
from potluck.runs.lasting import lasting
from potluck.wire.classes import classes_of


def synchronous(w: workloads.Workload, rounds: int) -> float:
    """Seconds per client of the best round."""
    round_ = engine(w, workloads.model_of(w), workloads.Arrays(w), 1)
    best = float("inf")
    for number in range(rounds + 1):
        begin = time.process_time()
        round_(number)
        if number:
            best = min(best, time.process_time() - begin)
    return best / w.cohort


def asynchronous(w: workloads.Workload, arrivals: int, registered: int, reachable: float) -> tuple[float, float]:
    """Seconds per arrival in the best part, once all clients are at work; and the mean size of a stack."""
    model = workloads.model_of(w)
    large, at_once = (replace(w, clients=registered), w.clients) if registered else (w, 0)
    available = devices.Availability(reachable, 3600.0) if reachable < 1.0 else None
    fleet = workloads.fleet_of(large, model, workloads.Arrays(large), 1, available=available, at_once=at_once)
    cfg = fedasync.Config(recipe=Recipe(epochs=w.epochs, batch=w.batch, lr=w.lr))
    program = fedasync.server(fleet, fedasync.start(model.init(0), cfg), cfg)
    for _ in range(3 * w.clients):
        next(program)
    executor = fleet._executor
    before, best = (executor.stacks, executor.stacked), float("inf")
    for _ in range(-(-arrivals // w.clients)):  # as many arrivals as a round has clients
        begin = time.process_time()
        for _ in range(w.clients):
            next(program)
        best = min(best, time.process_time() - begin)
        fleet.log.drain()  # as a run does
    return best / w.clients, (executor.stacked - before[1]) / max(1, executor.stacks - before[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--arrivals", type=int, default=4000)
    parser.add_argument("--registered", type=int, default=0, help="clients of the fleet; default: those at work")
    parser.add_argument("--reachable", type=float, default=1.0, help="share of the time a client can be reached")
    args = parser.parse_args()
    torch.set_num_threads(1)
    w = replace(workloads.WORKLOADS["W0"], clients=args.clients, cohort=args.clients)
    with lasting():  # as in a run
        one = synchronous(w, 4)
        workloads.method_of = lambda w: fedasync
        workloads.classes = lambda w: classes_of(fedasync, "fedasync")
        arrival, stack = asynchronous(w, args.arrivals, args.registered, args.reachable)
    print(
        f"synchronous {1e3 * one:.3f} ms a client; asynchronous {1e3 * arrival:.3f} ms an arrival, {arrival / one:.1f}x"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{args.clients} clients at work, {stack:.0f} trained together on average; peak memory {peak:.0f} MB")


if __name__ == "__main__":
    main()
