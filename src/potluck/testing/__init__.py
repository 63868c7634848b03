"""Check a method against everything that Potluck promises of one, also from outside the package.

    potluck check-method mine.py

runs the same checks as

    from potluck.testing import Trial, run_checks
    for result in run_checks(Trial("mine.py")):
        print(result.name, result.outcome, result.detail)

The checks are plain functions (`potluck.testing.checks.CHECKS`) that raise AssertionError with a sentence. A test
suite can parametrise over them. `potluck.testing.loopback` is the Flower engine in one process.
"""

from __future__ import annotations

from potluck.testing.battery import Result, run_checks
from potluck.testing.checks import CHECKS, Check, NotApplicable
from potluck.testing.trial import Ended, Trial, assert_same

__all__ = ["CHECKS", "Check", "Ended", "NotApplicable", "Result", "Trial", "assert_same", "run_checks"]
