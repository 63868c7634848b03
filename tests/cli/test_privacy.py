"""`potluck privacy`: how many clients an epsilon needs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.privacy import account
from potluck.privacy.account import Charge


def asked(*flags: str) -> str:
    result = CliRunner().invoke(app, ["privacy", *flags])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_answer_keeps_its_epsilon_and_its_ratio() -> None:
    told = json.loads(asked("--epsilon", "4", "--clients", "500", "--rounds", "20", "--parameters", "900", "--json"))
    need = told["needs"]
    assert account.epsilon([(Charge(need["noise"], need["rate"]), 20)], 1e-5, "rdp") <= 4.0
    assert need["noise"] * 30.0 / need["cohort"] == pytest.approx(need["ratio"])
    assert need["ratio"] <= 1.0
    assert [row["cohort"] for row in told["choices"]] == [5, 10, 25, 50, 100, 250, 500]


def test_too_few_clients_get_the_number_that_would_do() -> None:
    told = asked("--epsilon", "1", "--clients", "20", "--rounds", "100", "--parameters", "100000")
    assert "there are 20" in told
    assert "all asked in every round" in told


def test_a_flag_out_of_range_is_refused() -> None:
    assert CliRunner().invoke(app, ["privacy", "--delta", "2"]).exit_code != 0
