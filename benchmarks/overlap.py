"""Whether it would pay to evaluate a round while the next one trains: wall time of the rounds, in turns.

    python benchmarks/overlap.py [--data made uci_har] [--rounds 100 30] [--workers 2] [--repeat 9]

`as it is` evaluates after each round, on all workers. `overlapped` is a trial that Potluck does not do: it evaluates on
a thread of its own, from the models as the round left them, while the next round trains, and records the result when
that has ended. `without` evaluates the last round only: no overlap could gain more.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

from potluck.runs import drive, infer
from potluck.runs.evaluation import Evaluation
from potluck.runs.experiment import Experiment

WAYS = ("as it is", "overlapped", "without")


class Beside:
    """What replaces the evaluation of a round."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.pending: tuple[Future[Evaluation], int] | None = None

    def finish(self, one: Any) -> None:
        if self.pending is not None:
            future, step = self.pending
            self.pending = None
            one.recorder.evaluation(step, one._evaluation_record(future.result()))

    def evaluation(self, one: Any, counts: bool, asked: bool) -> None:
        self.finish(one)
        session, kept = one.session, one.session.fleet.kept
        one.done.evaluated, one.done.measured = one._round(), one.done.step
        clients = [
            infer.Client(name, session.fleet.mine(index), kept.trained(index), kept.own(index))
            for index, name in session._evaluated()
        ]
        models = infer.models_of(session.method, session.config, one.state, session.weights, clients)
        shared = session.method.shared(one.state)
        self.pending = self.pool.submit(session.evaluator, models, shared, session.fleet.now), one.done.step


@contextmanager
def clocked(way: str, seconds: list[float]) -> Iterator[None]:
    """Carry out rounds in one of the ways, and note what they took."""
    beside, usual = Beside(), drive._Drive._loop

    def loop(one: Any, began: float) -> None:
        begin = time.perf_counter()
        usual(one, began)
        beside.finish(one)
        seconds.append(time.perf_counter() - begin)

    changed: dict[str, Any] = {"_loop": loop}
    if way == "overlapped":
        changed["_evaluation"] = lambda one, *given: beside.evaluation(one, *given)
    with mock.patch.multiple(drive._Drive, **changed), beside.pool:
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=["made", "uci_har"])
    parser.add_argument("--rounds", nargs="*", type=int, default=[100, 30])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=9)
    args = parser.parse_args()
    for data, rounds in zip(args.data, args.rounds, strict=True):
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(args.repeat + 1):
            for way, seconds in taken.items():
                with tempfile.TemporaryDirectory() as folder, clocked(way, seconds):
                    every = 10**6 if way == "without" else 1
                    run = {"out": folder, "workers": args.workers, "evaluate_every": every}
                    settings = {"method": {"name": "fedavg"}, "data": {"source": data}, "model": {"name": "mlp"}}
                    drive.start(Experiment.of({**settings, "stop": {"rounds": rounds}, "run": run}))
        for way, seconds in taken.items():
            del seconds[0]  # it loads kernels
            told = f"{statistics.median(seconds):7.3f} s   ({min(seconds):.3f} to {max(seconds):.3f})"
            print(f"{data:12}{rounds:4} rounds, {way:12}{told}", flush=True)


if __name__ == "__main__":
    main()
