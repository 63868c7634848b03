"""Run Potluck beside fluke and PFLlib on the same clients, first weights, learning rates and rounds, and compare.

    python benchmarks/against --fluke FLUKE/bin/python
    python benchmarks/against --pfllib PFLlib --pfllib-python OTHER/bin/python --cases uci-har --seeds 2
    python benchmarks/against --speed --fluke FLUKE/bin/python       # workload W1, CPU-time ratios

Each library runs in an environment of its own, which you make once:

    python -m venv FLUKE && FLUKE/bin/pip install fluke-fl==0.8.1
    git clone https://github.com/TsingZ0/PFLlib
    python -m venv OTHER && OTHER/bin/pip install torch scikit-learn h5py matplotlib

What has a result is not run again. `docs/against.md` has the tables, and the named lines behind each difference.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import cases
import results
import table
from export import export

HERE = Path(__file__).parent
SPEED = ("ditto", "fedrep", "apfl")
TURNS = 3  # both libraries take turns, so that a busy machine is busy for both


def drive(python: Path, driver: str, folders: Sequence[Path], args: argparse.Namespace, *more: str) -> None:
    """Run one driver with one thread, and end with its message if it fails."""
    command = [str(python), str(HERE / f"{driver}.py"), *map(str, folders), *more]
    command += ["--methods", *args.methods, "--rounds", str(args.rounds), "--out", str(args.out / "results")]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}, check=False)
    if done.returncode:
        raise SystemExit(f"{driver}: failed with exit code {done.returncode}; its message is above.")


def compare(args: argparse.Namespace) -> None:
    """Run the usual recipe for all seeds, and whole batches, which leave nothing to chance, for the first one."""
    folders = {seed: [export(case, seed, args.out / "exported") for case in args.cases] for seed in range(args.seeds)}
    against = [name for name, given in (("fluke", args.fluke), ("pfllib", args.pfllib)) if given]
    for these, more in ((folders[0], ["--whole"]), ([one for seed in folders.values() for one in seed], [])):
        drive(Path(sys.executable), "ours", these, args, "--against", *against, *more)
        for repaired in ([], ["--repaired"]):
            if args.fluke:
                drive(args.fluke, "run_fluke", these, args, *more, *repaired)
            if args.pfllib:
                drive(args.pfllib_python, "run_pfllib", these, args, "--checkout", str(args.pfllib), *more, *repaired)
    print(table.report(args.out / "results"))


def speed(args: argparse.Namespace) -> None:
    """W1: seconds of CPU time for a round of fluke, over those of Potluck, median of the turns."""
    folder = export("w1", 0, args.out / "exported")
    ratios: dict[str, list[float]] = {name: [] for name in args.methods}
    for _ in range(TURNS):
        drive(Path(sys.executable), "ours", [folder], args, "--against", "fluke", "--again")
        drive(args.fluke, "run_fluke", [folder], args, "--again")
        found = {
            (one.library, one.method): one.cpu_seconds for one in results.read(args.out / "results") if one.case == "w1"
        }
        for name in args.methods:
            ratios[name].append(found["fluke", name] / found["potluck", name])
    print(f"W1, {args.rounds} rounds, one thread, CPU time of fluke over that of Potluck, {TURNS} turns")
    for name, turns in ratios.items():
        print(f"{name:10} {median(turns):5.1f}x   ({', '.join(f'{turn:.1f}' for turn in turns)})")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/against", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fluke", type=Path, metavar="PYTHON", help="the Python of an environment with fluke-fl")
    parser.add_argument("--pfllib", type=Path, metavar="FOLDER", help="a checkout of TsingZ0/PFLlib")
    parser.add_argument("--pfllib-python", type=Path, metavar="PYTHON", help="the Python to run PFLlib with")
    shown = [case for case in cases.CASES if case != "w1"]
    usual = [case for case in shown if case != "made"]
    parser.add_argument(
        "--cases", nargs="+", choices=shown, default=usual, help=f"federations (default: {' '.join(usual)})"
    )
    parser.add_argument(
        "--methods", nargs="+", choices=cases.METHODS, help="methods (default: all; with --speed three)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="each draws its own clients and weights (default 3)")
    parser.add_argument("--rounds", type=int, default=cases.ROUNDS, help=f"rounds (default {cases.ROUNDS})")
    parser.add_argument("--out", type=Path, default=Path("against"), help="a folder for all files (default: against)")
    parser.add_argument("--speed", action="store_true", help="time workload W1 with fluke instead")
    args = parser.parse_args()
    args.methods = args.methods or list(SPEED if args.speed else cases.METHODS)
    if not (args.fluke or args.pfllib):
        parser.error("give --fluke PYTHON, --pfllib FOLDER or both.")
    if args.pfllib and not args.pfllib_python:
        parser.error("--pfllib needs --pfllib-python, an environment with torch, scikit-learn, h5py and matplotlib.")
    if args.speed and not args.fluke:
        parser.error("--speed needs --fluke PYTHON.")
    if args.seeds < 1 or args.rounds < 2:
        parser.error("--seeds must be 1 or more, and --rounds 2 or more.")
    return args


if __name__ == "__main__":
    chosen = parsed()
    speed(chosen) if chosen.speed else compare(chosen)
