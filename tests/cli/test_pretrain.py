"""`potluck pretrain`, and a run that begins with what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cli.conftest import Potluck
from potluck.runs import model_files

ASKED = ["--data", "made", "--model", "mlp", "--set", "model.hidden=[8]", "--epochs", "2", "--lr", "0.05"]


def test_an_encoder_from_the_command_line_starts_a_run(potluck: Potluck, here: Path) -> None:
    result = potluck("pretrain", "encoder.safetensors", *ASKED, "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    kept = load_file("encoder.safetensors")
    assert set(kept) == {"fc1.weight", "fc1.bias"}
    assert said["encoder"] == sum(value.numel() for value in kept.values())
    assert said["accuracy"] > 0.4
    assert model_files.load(Path("encoder.safetensors"))[1]["data"] == "made"

    fleet = ["--fleet", "centaur", "--set", "fleet.access_point=centaur-ap", "--set", "model.hidden=[8]"]
    begin = ["--set", "model.encoder=encoder.safetensors", "--rounds", "2", "--out", "runs", "--quiet"]
    ran = potluck("run", "--method", "ucd", "--data", "made", "--model", "mlp", *fleet, *begin)
    assert ran.exit_code == 0, ran.output
    (end,) = here.glob("runs/*/models/global.safetensors")
    assert torch.equal(load_file(end)["fc1.weight"], kept["fc1.weight"])  # devices leave the encoder alone


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["e.safetensors"], "--data"),
        ([".", *ASKED], "'.' is a folder"),
        (["e.safetensors", "--data", "made", "--epochs", "0"], "must be above 0, got 0"),
        (["nowhere/e.safetensors", "--data", "made"], "no folder 'nowhere'"),
        (["e.safetensors", "--data", "made", "--set", "method.recipe.lr=1"], "got 'method'"),
        (["e.safetensors", "--data", "made", "--split", "fc9"], "Allowed: fc1, fc2"),
        (["e.safetensors", "--data", "made", "--model", "softmax", "--epochs", "1"], "nothing before 'fc'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_refused_and_nothing_written(
    potluck: Potluck, here: Path, arguments: list[str], named: str
) -> None:
    result = potluck("pretrain", *arguments)
    assert result.exit_code == 2
    assert named in result.output.replace("\n", " ")
    assert not list(here.glob("**/*.safetensors"))
