"""Print what the drivers found as tables: our accuracy, theirs, the difference and the CPU-time ratio.

python benchmarks/against/table.py against/results
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import cases
import numpy as np
import results
from reasons import ORDER, REASONS, Reason
from results import Result
from scipy import stats

CLOSE = 0.5  # points: a larger difference needs a reason
UNEXPLAINED = "**not explained**"
NAMES = {"fluke": "fluke", "pfllib": "PFLlib"}
HEAD = "| method | ours | theirs | difference | repaired | whole batches | CPU time | |"


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences in points, and half of its 95 % interval (nan for one seed)."""

    points: float
    half: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Difference:
        apart = 100.0 * (np.asarray(ours) - np.asarray(theirs))
        n = len(apart)
        half = stats.t.ppf(0.975, n - 1) * apart.std(ddof=1) / np.sqrt(n) if n > 1 else float("nan")
        return cls(float(apart.mean()), float(half))

    @property
    def close(self) -> bool:
        return abs(self.points) <= CLOSE

    def __str__(self) -> str:
        spread = "" if np.isnan(self.half) else f" ± {self.half:.2f}"
        return f"{round(self.points, 2) + 0.0:+.2f}{spread}"  # never -0.00


@dataclass(frozen=True)
class Row:
    """One method against one library, over the seeds that both have."""

    method: str
    seeds: int
    ours: float
    theirs: float
    difference: Difference
    repaired: Difference | None
    whole: Difference | None  # of the repaired form where there is one, with all rows of a client in each step
    cpu_ratio: float  # theirs / ours, the median over the seeds
    verdict: str


def rows_of(found: Sequence[Result], case: str, library: str) -> list[Row]:
    """Pair the runs of a case by seed; a method without a pair has no row."""
    runs, whole = _by_form(found, case, library), _by_form(found, case + cases.WHOLE, library)
    rows = []
    for method in cases.METHODS:
        ours, theirs = (runs.get((form, method), {}) for form in ("ours", "published"))
        difference = _apart(runs, method, "published")
        if difference is None:
            continue
        seeds = sorted(ours.keys() & theirs.keys())
        exact = _apart(whole, method, "repaired") or _apart(whole, method, "published")
        rows.append(
            Row(
                method,
                len(seeds),
                mean(_accuracy(ours, seeds)),
                mean(_accuracy(theirs, seeds)),
                difference,
                _apart(runs, method, "repaired"),
                exact,
                median(theirs[seed].cpu_seconds / ours[seed].cpu_seconds for seed in seeds),
                _verdict(library, method, difference, exact),
            )
        )
    return rows


Runs = Mapping[tuple[str, str], Mapping[int, Result]]


def _by_form(found: Iterable[Result], case: str, library: str) -> Runs:
    """The runs of a case by (ours, published or repaired; method), and by seed."""
    runs: dict[tuple[str, str], dict[int, Result]] = {}
    for one in found:
        form = "ours" if one.library == "potluck" and one.form == library else one.form
        if one.case == case and (one.library == library or form == "ours"):
            runs.setdefault((form, one.method), {})[one.seed] = one
    return runs


def _apart(runs: Runs, method: str, form: str) -> Difference | None:
    """Ours minus theirs, over the seeds that both have."""
    ours, theirs = runs.get(("ours", method), {}), runs.get((form, method), {})
    seeds = sorted(ours.keys() & theirs.keys())
    return Difference.of(_accuracy(ours, seeds), _accuracy(theirs, seeds)) if seeds else None


def _accuracy(runs: Mapping[int, Result], seeds: Iterable[int]) -> list[float]:
    return [mean(runs[seed].scores["headline"]) for seed in seeds]


def _verdict(library: str, method: str, difference: Difference, whole: Difference | None) -> str:
    if difference.close:
        return "agrees"
    if (library, method) in REASONS:
        return "explained below"
    # The codes are one where nothing is drawn at random: what is left is the order of the mini-batches.
    return "order of batches" if whole is not None and whole.close else UNEXPLAINED


def markdown(rows: Sequence[Row], what: str, rounds: int) -> str:
    lines = [f"**{what}** ({_seeds(rows)}, {rounds} rounds)", "", HEAD, "|---" * 8 + "|"]
    for row in rows:
        again, whole = ("" if one is None else str(one) for one in (row.repaired, row.whole))
        accuracies = f"{100 * row.ours:.2f} | {100 * row.theirs:.2f} | {row.difference}"
        lines.append(f"| {row.method} | {accuracies} | {again} | {whole} | {row.cpu_ratio:.1f}x | {row.verdict} |")
    return "\n".join(lines)


def _seeds(rows: Sequence[Row]) -> str:
    most = max(row.seeds for row in rows)
    return "1 seed" if most == 1 else f"{most} seeds"


def explained(shown: Iterable[tuple[str, str]]) -> str:
    """The reasons of the (library, method) pairs that are shown, as a list; then the lines that draw mini-batches."""
    pairs = sorted(set(shown))
    lines = [_line(f"{NAMES[pair[0]]}, {pair[1]}", REASONS[pair]) for pair in pairs if pair in REASONS]
    by_order = sorted({library for library, method in pairs if (library, method) not in REASONS})
    return "\n".join([*lines, *(_line(f"{NAMES[one]}, order of batches", ORDER[one]) for one in by_order)])


def _line(what: str, reason: Reason) -> str:
    return f"* **{what}**: `{reason.lines}`. {reason.what} *The paper's form:* {reason.paper}"


def report(folder: Path) -> str:
    found = results.read(folder)
    parts, shown = [], []
    for rounds in sorted({one.rounds for one in found}):
        for case in cases.CASES:
            for library in cases.LIBRARIES:
                rows = rows_of([one for one in found if one.rounds == rounds], case, library)
                if rows:
                    parts.append(markdown(rows, f"{case}, {NAMES[library]}", rounds))
                    shown += [
                        (library, row.method) for row in rows if not row.difference.close and row.verdict != UNEXPLAINED
                    ]
    return "\n\n".join([*parts, explained(shown)]) if parts else f"{folder}: no results of both sides yet."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the results that the drivers wrote")
    print(report(parser.parse_args().folder))


if __name__ == "__main__":
    main()
