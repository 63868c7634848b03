"""Bad input to `potluck calibrate` is told before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from potluck.cli import app


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--judge", "gru hidden"], "--judge: must be a model and its settings"),
        (["--judge", "gruu"], "gruu"),
        (["--judge", "gru width=24"], "width"),
        (["--judge", "gru hidden=0"], "hidden"),
        (["--judge", "rnn hidden=16 batch=8"], "a network that the fit does not see, got 'rnn-16'"),
        (["--repeat", "0"], "--repeat: must be from 1 to 20"),
        (["--clients", "7"], "--clients: must be from 1 to 6"),
        (["--minutes", "0"], "--minutes: must be above 0"),
        (["--refit"], "has no measured.json"),
    ],
)
def test_bad_input_gets_one_sentence(given: list[str], said: str, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="needs the extra flower")
    done = CliRunner().invoke(app, ["calibrate", "--out", str(tmp_path / "new"), *given])
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "new").exists()
