"""`potluck study`: what it refuses before anything is computed."""

from __future__ import annotations

import pytest

from .conftest import Potluck


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["sampling", "--set", "data.source=made"],
            "--set: data.source must be given by --data.",
        ),
        (["volatile"], "study: 'volatile'"),
        (["volatility", "--picture", "angles.txt"], "--picture: 'angles.txt' given"),
        (["irregular", "--set", "model.init=random"], "model.init"),
    ],
)
def test_bad_input_gets_one_sentence(potluck: Potluck, words: list[str], said: str) -> None:
    result = potluck("study", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output
