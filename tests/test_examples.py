"""The examples run as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import potluck
from potluck import methods
from potluck.runs.results import Run

EXAMPLES = Path(__file__).parents[1] / "examples"
EXAMPLE, SELECTING = EXAMPLES / "a_method_of_your_own.py", EXAMPLES / "fedavg_with_selection.py"


def test_a_method_of_your_own_runs_from_its_file(tmp_path: Path) -> None:
    run = potluck.run(
        {
            "data": {"source": "made"},
            "method": {"name": str(EXAMPLE), "recipe.epochs": 1},
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


def test_centaurs_selection_serves_another_method(tmp_path: Path) -> None:
    """Fewer samples are learned from and paid for; without a rule it is FedAvg."""

    def run(name: str, **settings: float) -> Run:
        return potluck.run(
            {
                "data": {"source": "made"},
                "method": {"name": name, "recipe.epochs": 2, "recipe.lr": 0.1, **settings},
                "model": {"name": "softmax"},
                "stop": {"rounds": 3},
                "run": {"out": str(tmp_path / str(len(list(tmp_path.iterdir()))))},
            }
        )

    all_of_it, some, usual = run(str(SELECTING), alpha=0.0), run(str(SELECTING), alpha=1.0), run("fedavg")
    spent = [sum(task["macs"] for task in one.table("tasks")) for one in (all_of_it, some)]
    assert some.summary["accuracy"]["mean"] > 0.5
    # A look costs a pass, a step two (softmax has a first layer only), and alpha = 1 keeps half: 1 + 2 * 2 * 0.5.
    assert spent[1] / spent[0] == pytest.approx((1 + 4 * 0.5) / (1 + 4), abs=0.05)
    ends = [load_file(one.folder / "models" / "global.safetensors") for one in (all_of_it, usual, some)]
    torch.testing.assert_close(ends[0], ends[1])
    assert not torch.equal(ends[2]["fc.weight"], ends[0]["fc.weight"])


def test_a_file_that_is_not_there_or_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        methods.load(str(tmp_path / "none.py"))
    (tmp_path / "broken.py").write_text("def (")
    with pytest.raises(ValueError, match=r"cannot be loaded \(SyntaxError"):
        methods.load(str(tmp_path / "broken.py"))
