"""What share of a run's processor time goes to evaluating the clients' models, by default settings.

    python benchmarks/evaluation.py [--data uci_har made] [--model mlp] [--rounds 20] [--workers 1]

Rounds only: neither the start nor the report counts. FedAvg evaluates after each round the shared model and each
client's own, as `run.evaluate_every` says. Each line is one run, with compiled kernels where they are installed and
then without.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from typing import Any

from potluck import compiled
from potluck.runs import drive
from potluck.runs.experiment import Experiment
from potluck.runs.local_session import LocalSession


class Clock:
    """Processor time of this process inside a function, over all its calls."""

    def __init__(self, owner: Any, name: str, inside: Clock | None = None) -> None:
        self.seconds = 0.0
        within = getattr(owner, name)

        def timed(*args: Any) -> Any:
            if inside is not None:
                inside.seconds = 0.0  # what it took before does not count
            begin = time.process_time()
            try:
                return within(*args)
            finally:
                self.seconds += time.process_time() - begin

        setattr(owner, name, timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=["uci_har", "made"])
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    evaluations = Clock(LocalSession, "evaluate")
    all_rounds = Clock(drive._Drive, "_loop", evaluations)
    for data in args.data:
        for kernels in (True, False) if compiled.ready() else (False,):
            with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
                if not kernels:
                    stack.enter_context(compiled.off())
                settings = {
                    "method": {"name": "fedavg"},
                    "data": {"source": data},
                    "model": {"name": args.model},
                    "stop": {"rounds": args.rounds},
                    "run": {"out": folder, "workers": args.workers},
                }
                all_rounds.seconds = evaluations.seconds = 0.0
                drive.start(Experiment.of(settings))
            share = evaluations.seconds / all_rounds.seconds
            print(
                f"{data:12}{'kernels' if kernels else 'PyTorch':10}evaluation {evaluations.seconds:.3f} s of "
                f"{all_rounds.seconds:.3f} s in {args.rounds} rounds, {share:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
