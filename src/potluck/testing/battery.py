"""The battery: run the checks on a method, and say of each whether it passed and why not."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from potluck.errors import BadInput
from potluck.testing.checks import CHECKS, Check, NotApplicable
from potluck.testing.trial import Trial

FIRST = ("saves", "runs")  # without these the other checks say nothing new


@dataclass(frozen=True)
class Result:
    """The outcome of one check: `passed`, `failed`, `skipped` (an earlier failure) or `not applicable`."""

    name: str
    outcome: str
    detail: str  # what passing means, or why the method did not pass
    where: str = ""  # the line of the method's file that failed


def run_checks(trial: Trial, only: Collection[str] = ()) -> Iterator[Result]:
    """Run the checks one after another, and give each result as soon as it is known."""
    broken = ""
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        if broken:
            yield Result(name, "skipped", f"{broken!r} failed.")
            continue
        result = run_check(name, check, trial)
        if result.outcome == "failed" and name in FIRST:
            broken = name
        yield result


def run_check(name: str, check: Check, trial: Trial) -> Result:
    try:
        check(trial)
    except NotApplicable as reason:
        return Result(name, "not applicable", str(reason))
    except (AssertionError, BadInput) as failure:
        return Result(name, "failed", str(failure) or "an assertion failed.", _line_of(trial, failure))
    except Exception as error:  # whatever a method does
        return Result(name, "failed", f"{type(error).__name__}: {error}", _line_of(trial, error))
    return Result(name, "passed", promise(check))


def promise(check: Check) -> str:
    """What passing this check means, in one sentence."""
    return (check.__doc__ or "").strip().splitlines()[0]


def _line_of(trial: Trial, error: BaseException) -> str:
    """The innermost line of the method's own file in a traceback."""
    file = trial.method.module.__file__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{Path(str(file)).name}:{lines[-1]}" if lines else ""
