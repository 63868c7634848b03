"""`potluck check-method` on a file outside the package."""

from __future__ import annotations

import json
from pathlib import Path

from potluck.testing import CHECKS

from .conftest import Potluck

EXAMPLE = Path(__file__).parents[2] / "examples" / "a_method_of_your_own.py"


def test_the_example_passes_every_check(potluck: Potluck) -> None:
    result = potluck("check-method", EXAMPLE)
    assert result.exit_code == 0, result.output
    assert result.output.count("passed  ") == len(CHECKS)
    assert result.output.rstrip().endswith(f"{len(CHECKS)} passed.")


def test_a_failed_check_is_named_with_its_reason(potluck: Potluck, here: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("return Done(", "return (")
    (here / "mine.py").write_text(text, encoding="utf-8")
    result = potluck("check-method", "mine.py", "--only", "runs", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["method"], told["passed"]) == ("mine.py", False)
    (check,) = told["checks"]
    assert (check["name"], check["outcome"]) == ("runs", "failed")
    assert "must return Done" in check["detail"]


def test_settings_of_the_method_can_be_set(potluck: Potluck) -> None:
    """With nine epochs instead of two the same check passes, too; what a setting may not be is bad input."""
    assert potluck("check-method", "fedavg", "--only", "saves", "--set", "method.recipe.epochs=9").exit_code == 0
    wrong = potluck("check-method", "fedavg", "--only", "saves", "--set", "method.cohort=-1")
    assert (wrong.exit_code, "method.cohort" in wrong.output) == (2, True)


def test_bad_input_is_status_2(potluck: Potluck) -> None:
    assert potluck("check-method", "nowhere.py").exit_code == 2
    wrong = potluck("check-method", "fedavg", "--only", "same-sed")
    assert (wrong.exit_code, "did you mean 'same-seed'?" in wrong.output) == (2, True)
    assert potluck("check-method", "fedavg", "--set", "stop.rounds=3").exit_code == 2
