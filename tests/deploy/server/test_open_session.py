"""What is checked before a run starts on real machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.short_runs import experiment_of, tiny

from potluck.deploy.server.open_session import check, class_names
from potluck.engines.flower.server.members import Sizes
from potluck.errors import BadInput


def sizes(*names: str) -> Sizes:
    return Sizes(1, 1, 0, (2,), names, False, False)


def test_clients_that_name_their_labels_alike_agree_on_their_numbers() -> None:
    assert class_names([sizes("rest", "walk"), sizes("rest", "walk")]) == ("rest", "walk")
    assert class_names([sizes("10", "2"), sizes("3")]) == ("2", "3", "10")
    assert class_names([sizes("walk"), sizes("rest", "run")]) == ("rest", "run", "walk")


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"faults": {"nan": 0.1}}, "faults"),
        ({"drift": {"at": [10.0]}}, "drift.at"),
        ({"fleet": {"joins": {"s00": 3.0}}}, "fleet.joins"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused(sections: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=field):
        check(experiment_of("fedavg", tiny(tmp_path / "tiny.npz"), **sections))
