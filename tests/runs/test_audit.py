"""The attackers on staff: below the claim with privacy, clearly above zero without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from potluck.privacy import audit
from potluck.runs.audit import audited
from potluck.runs.experiment import Experiment


def experiment(clients: int, **privacy: Any) -> Experiment:
    return Experiment.of(
        {
            "data": {"source": "made"},
            "partition": {"kind": "iid", "clients": clients},
            "fleet": {"devices": "boards"},
            "method": {"name": "fedavg", "recipe": {"lr": 0.05, "epochs": 1}},
            "stop": {"rounds": 2},
            "privacy": privacy,
        }
    )


def test_canaries_show_much_without_privacy_and_no_more_than_claimed_with_it() -> None:
    bare = audited(experiment(60), share=1.0)
    assert bare.claimed is None
    assert bare.canaries.epsilon > 1.5
    for noise in (1.0, 3.0):
        kept = audited(experiment(60, unit="client", clip=1.0, noise=noise, accountant="rdp"), share=1.0)
        assert kept.claimed is not None
        assert kept.canaries.epsilon < kept.claimed
        assert kept.canaries.epsilon < bare.canaries.epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_bound_holds_for_randomised_response_which_has_exactly_this_epsilon(epsilon: float) -> None:
    draw = np.random.default_rng(0)
    found = [audit.bound(int((draw.random(400) < 1 / (1 + np.exp(-epsilon))).sum()), 400, 400, 0.0) for _ in range(200)]
    assert np.mean(np.array(found) > epsilon) <= 0.09  # 5 %, and the luck of 200 draws
    assert np.mean(found) > 0.6 * epsilon


def test_nothing_is_shown_by_coins() -> None:
    assert audit.bound(50, 100, 100, 1e-5) == 0.0
    assert audit.bound(0, 100, 100, 1e-5) == 0.0
    same = audit.separated(np.random.default_rng(1).normal(size=400), np.random.default_rng(2).normal(size=400), 1e-5)
    assert same.epsilon < 0.3
    assert same.auc == pytest.approx(0.5, abs=0.06)


def test_scores_that_differ_show_an_epsilon() -> None:
    draw = np.random.default_rng(1)
    told = audit.separated(draw.normal(2.0, size=1000), draw.normal(size=1000), 1e-5)
    assert told.auc == pytest.approx(0.92, abs=0.02)
    assert told.epsilon > 1.0


def test_the_command_says_what_was_claimed_and_what_was_shown(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from potluck.cli import app

    path = tmp_path / "mine.toml"
    path.write_text(experiment(12, unit="client", clip=1.0, noise=4.0, accountant="rdp").toml())
    told = CliRunner().invoke(app, ["audit", str(path)])
    assert told.exit_code == 0, told.output
    assert "Claimed: epsilon" in told.output
