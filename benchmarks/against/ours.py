"""Run Potluck's methods on an exported federation. `python benchmarks/against` calls this.

python benchmarks/against/ours.py against/exported/uci-har/0 --methods ditto --rounds 20 --out against/results
"""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import cases
import results
import torch
from results import Result

from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from potluck.runs.saveable import first_state


def experiment_of(folder: Path, method: str, settings: dict[str, Any], rounds: int) -> Experiment:
    about = results.about(folder)
    network = cases.entry(about["case"], method).network_of(about["networks"])
    return Experiment.of(
        {
            "data": {"source": str(folder / "clients"), "standardise": "none"},
            "partition": {"kind": "subject", "split": "given"},
            "fleet": {"devices": "pc-i7-9700"},
            "model": about["networks"][network],
            "method": {"name": method, **settings},
            "stop": {"rounds": rounds},
            "run": {"seed": about["seed"], "workers": 1},
        }
    )


def run(folder: Path, result: Result, settings: dict[str, Any]) -> None:
    session = build(experiment_of(folder, result.method, settings, result.rounds))
    method = session.method
    state = first_state(method, session.weights, session.config)
    program = method.server(session.fleet, state, session.config)
    with result.timed():
        for _ in range(result.rounds):
            state = next(program)
    for _ in range(cases.MORE_ROUNDS.get(result.method, 0)):
        state = next(program)
    found = session.evaluate(state)
    scored = {"headline": found.accuracy, **{kind: scores.accuracy for kind, scores in found.others.items()}}
    result.scores = {kind: [float(a) for a in accuracy] for kind, accuracy in scored.items()}
    session.close()


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--against", nargs="+", choices=cases.LIBRARIES, default=list(cases.LIBRARIES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for folder in args.folders:
        case, seed = results.case_of(args, folder)
        for name in args.methods:
            run_before: dict[str, Result] = {}  # most settings are the same against both libraries
            for library in args.against:
                result = Result("potluck", metadata.version("potluck"), case, seed, name, library, args.rounds)
                settings = cases.entry(case, name).settings(library)
                if results.missing(args, result):
                    before = run_before.get(repr(settings))
                    if before is None:
                        run(folder, result, settings)
                        run_before[repr(settings)] = result
                    else:
                        result = replace(before, form=library)
                    result.write(args.out)


if __name__ == "__main__":
    main()
