"""What a run of very many clients may not do: look at each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import potluck
from potluck.data.federation import Numbered
from potluck.engines.local.mail import Mail
from potluck.runs import record


def test_a_run_names_only_the_clients_that_work_or_are_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = 0
    one, all_of = Numbered.__getitem__, Numbered.__iter__

    def counted(self: Numbered, i: Any) -> Any:
        nonlocal named
        named += 1
        return one(self, i)

    def walked(self: Numbered) -> Iterator[str]:
        for name in all_of(self):
            nonlocal named
            named += 1
            yield name

    monkeypatch.setattr(Numbered, "__getitem__", counted)
    monkeypatch.setattr(Numbered, "__iter__", walked)
    run = potluck.run(
        {
            "data": {"source": "made"},
            "method": {"name": "fedavg", "cohort": 10},
            "partition": {"kind": "iid", "samples": 20, "clients": 300_000},
            "stop": {"rounds": 3},
            "run": {"out": str(tmp_path), "evaluate_clients": 20, "checkpoint_seconds": 0.0},
        }
    )
    assert run.summary["clients"] == 300_000
    assert named < 2_000


def test_mail_without_notes_asks_nobody() -> None:
    class Nobody(list[str]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("asked each client")

    assert Mail(Nobody(["a"]), lambda client, post: (0.0, 0.0)).snapshot(1.0, {}) == []


@pytest.mark.parametrize("counts", [[[3, 0, 11], [0, 0, 0]], [[4], [5]], [[7]]])
def test_counts_are_written_as_json_lists(counts: list[list[int]]) -> None:
    assert record._lists(np.array(counts)) == [str(row).replace(" ", "") for row in counts]
    assert record._lists(np.zeros((2, 0), int)) == ["[]", "[]"]
    assert record._lists(np.zeros((0, 3), int)) == []
