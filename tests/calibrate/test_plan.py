"""Networks to judge on, as a user names them."""

from __future__ import annotations

import pytest

from potluck.calibrate import plan
from potluck.calibrate.plan import Network, not_fitted, read_network
from potluck.errors import BadInput


def test_a_network_is_named_by_its_model_and_sizes():
    assert read_network("gru hidden=24") == Network("gru-24", {"name": "gru", "hidden": 24}, 32)
    found = read_network("cnn1d channels=[18,32] batch=4 epochs=2")
    assert found == Network("cnn1d-18-32", {"name": "cnn1d", "channels": [18, 32]}, 4, epochs=2)
    assert read_network("mlp hidden=[24] activation=tanh").name == "mlp-24-tanh"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "a model and its settings"),
        ("gru hidden", "a model and its settings"),
        ("gru hidden=", "a model and its settings"),
        ("gru batch=0", "--judge: batch: must be a whole number from 1 to 10000"),
        ("gru epochs=x", "--judge: epochs"),
    ],
)
def test_other_words_are_refused_before_anything_is_measured(words: str, told: str) -> None:
    with pytest.raises(BadInput, match="(?s).*" + told.replace("(", r"\(")):
        read_network(words)


def test_the_fit_judges_no_network_of_its_own():
    not_fitted(plan.JUDGE)
    with pytest.raises(BadInput, match="a network that the fit does not see, got 'rnn-16'"):
        not_fitted([Network("mine", {"name": "rnn", "hidden": 16}, 8)])
    with pytest.raises(BadInput, match="differ in more than batch"):
        not_fitted([read_network("gru hidden=24 batch=8"), read_network("gru hidden=24 batch=16")])
