"""The result of one run of one library: a small JSON file, the same for all three. Potluck is not imported here."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cases


@dataclass
class Result:
    """Accuracy of every client by what is scored, and the time of the rounds (no building, no scoring)."""

    library: str
    version: str
    case: str
    seed: int
    method: str
    form: str  # published; repaired: with the lines of `reasons.py` changed; for ours the library compared with
    rounds: int
    scores: dict[str, list[float]] = field(default_factory=dict)  # headline, and others
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def path(self) -> str:
        return f"{self.case}/{self.seed}/{self.library}-{self.form}-{self.method}-{self.rounds}.json"

    def write(self, folder: Path) -> None:
        target = folder / self.path
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_suffix(".part")
        half.write_text(json.dumps(asdict(self), indent=1))
        os.replace(half, target)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the CPU time of this process and the wall time of the block."""
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            yield
        finally:
            self.cpu_seconds += time.process_time() - cpu
            self.wall_seconds += time.perf_counter() - wall


def read(folder: Path) -> list[Result]:
    return [Result(**json.loads(path.read_text())) for path in sorted(folder.glob("*/*/*.json"))]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The arguments that all drivers share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="exported federations: CASE/SEED, from export.py")
    parser.add_argument("--methods", nargs="+", required=True, help="names of cases.METHODS")
    parser.add_argument("--rounds", type=int, required=True, help="rounds; all clients take part in each")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the results")
    parser.add_argument("--whole", action="store_true", help="take all rows of a client in each step")
    parser.add_argument("--again", action="store_true", help="also run what has a result")
    return parser


def todo(
    args: argparse.Namespace, library: str, version: str, repairs: Collection[str]
) -> Iterator[tuple[Path, Result]]:
    """The runs of another library that the arguments ask for and that have no result yet, with their folders."""
    for folder in args.folders:
        case, seed = case_of(args, folder)
        for name in args.methods:
            form = "repaired" if args.repaired else "published"
            one = Result(library, version, case, seed, name, form, args.rounds)
            if (name in repairs or not args.repaired) and missing(args, one):
                yield folder.resolve(), one


def case_of(args: argparse.Namespace, folder: Path) -> tuple[str, int]:
    """The case with its ending, and the seed."""
    found = about(folder)
    return found["case"] + (cases.WHOLE if args.whole else ""), found["seed"]


def about(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "about.json").read_text())
    return found


def missing(args: argparse.Namespace, result: Result) -> bool:
    """Whether a run is still to be done; says so on the terminal."""
    lacking = args.again or not (args.out / result.path).exists()
    print("run " if lacking else "have", result.path, flush=True)
    return lacking
