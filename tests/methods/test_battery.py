"""The battery, for every method: `potluck check-method` runs the same checks on a file outside the package.

A method enters by its line in `METHODS`. The checks themselves are in `potluck.testing.checks`.
"""

from __future__ import annotations

from functools import cache

import pytest

from potluck import methods
from potluck.testing import CHECKS, NotApplicable, Trial
from potluck.testing.checks import like_a_lost_client

# In `make quick`: a plain method, one with private state, an asynchronous one.
QUICK = ("fedavg", "scaffold", "fedasync")
EVERY = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.quick] if name in QUICK else []) for name in methods.METHODS]
)
# These ask or merge by the clock, so another clock leads to other models.
BY_THE_CLOCK = {"echopfl", "fedasync", "fedbuff", "fedsea", "oort"}
# These only note times.
NOTES_TIMES = {"clusterfl", "compose"}
# A cfc is fixed: its heads f, g and h are what FedCFC federates.
NO_DEEP_MODEL = {"fedcfc"}

trial = cache(Trial)  # the run that others are compared with is made once for all checks of a method


@EVERY
@pytest.mark.parametrize("check", CHECKS)
def test_passes(name: str, check: str) -> None:
    if check == "deep-model" and name in NO_DEEP_MODEL:
        with pytest.raises(NotApplicable, match="model"):
            CHECKS[check](trial(name))
    else:
        CHECKS[check](trial(name))


@EVERY
def test_only_these_look_at_the_clock(name: str) -> None:
    """The checks of refused updates and of the Flower engine are less strict with them."""
    assert trial(name).plain.seen.by_the_clock == (name in BY_THE_CLOCK | NOTES_TIMES)


@pytest.mark.parametrize("name", sorted(NOTES_TIMES))
def test_a_method_that_only_notes_times_is_held_to_the_strict_check(name: str) -> None:
    like_a_lost_client(trial(name))
