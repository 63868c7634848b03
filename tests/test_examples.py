"""The examples run as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import potluck
from potluck import methods

EXAMPLE = Path(__file__).parents[1] / "examples" / "a_method_of_your_own.py"


def test_a_method_of_your_own_runs_from_its_file(tmp_path: Path) -> None:
    run = potluck.run(
        {
            "data": {"source": "made"},
            "method": {"name": str(EXAMPLE), "epochs": 1},
            "model": {"name": "softmax"},
            "fleet": {"devices": "boards"},
            "stop": {"rounds": 3},
            "run": {"out": str(tmp_path)},
        }
    )
    assert run.name == "a_method_of_your_own-made-s0"
    assert run.summary["accuracy"]["mean"] > 0.5
    assert potluck.resume(run.folder).finished


def test_the_median_shrugs_off_one_bad_model() -> None:
    module = methods.load(str(EXAMPLE)).module
    models = [{"w": torch.tensor([1.0])}, {"w": torch.tensor([2.0])}, {"w": torch.tensor([1e9])}]
    assert module.median(models)["w"].item() == 2.0


def test_a_file_that_is_not_there_or_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        methods.load(str(tmp_path / "none.py"))
    (tmp_path / "broken.py").write_text("def (")
    with pytest.raises(ValueError, match=r"cannot be loaded \(SyntaxError"):
        methods.load(str(tmp_path / "broken.py"))
