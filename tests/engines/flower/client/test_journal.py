"""A client's state on disk: which task left what, found again, rolled back, and forgotten when nobody can ask."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from potluck.engines.flower.client.journal import Finished, Journal, Working
from potluck.errors import BadInput


def left(number: float, handoff: float | None = None) -> Finished:
    given = None if handoff is None else torch.tensor(handoff)
    return Finished(torch.tensor(number), torch.tensor(10 * number), given, 0.5)


def test_each_task_leaves_a_state_that_a_new_process_finds(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {})
    journal.finish("0.1", left(1.0), "")
    journal.finish("0.2", left(2.0), "0.1")
    again = Journal(tmp_path, {})
    assert again.mine("", "first") == "first"
    assert float(again.mine("0.1", None)) == 10.0  # the server may go back to it
    assert float(again.finished("0.2").update) == 2.0
    assert "0.3" not in again
    with pytest.raises(BadInput, match=r"task 0\.3 left is missing"):
        again.mine("0.3", None)


def test_what_was_handed_over_holds_until_something_else_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {})
    journal.finish("0.1", left(1.0, handoff=7.0), "")
    journal.finish("0.2", left(2.0), "0.1")
    journal.finish("0.3", left(3.0, handoff=8.0), "0.2")
    assert [float(journal.handoff(ticket)) for ticket in ("0.1", "0.2", "0.3")] == [7.0, 7.0, 8.0]
    assert journal.handoff("") is None


def test_forgets_what_no_checkpoint_knows_and_keeps_what_is_needed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {})
    journal.finish("0.1", left(1.0, handoff=7.0), "")
    for number in (2, 3, 4):
        journal.finish(f"0.{number}", left(float(number)), f"0.{number - 1}")
    journal.forget(safe="", taken="0.1")
    assert len(list(tmp_path.glob("done-*"))) == 4  # no checkpoint yet
    journal.forget(safe="0.3", taken="0.4")
    assert sorted(path.name for path in tmp_path.glob("done-*")) == [
        "done-0.1.safetensors",  # whose hand-over still holds
        "done-0.3.safetensors",
        "done-0.4.safetensors",
    ]
    assert float(Journal(tmp_path, {}).handoff("0.4")) == 7.0


def test_a_task_between_two_legs_survives(tmp_path: Path) -> None:
    Journal(tmp_path, {}).leave(Working("0.1", 2, None, torch.tensor(4.0), 1.5))
    working = Journal(tmp_path, {}).working
    assert working is not None
    assert (working.leg, float(working.carry)) == (2, 4.0)
    Journal(tmp_path, {}).finish("0.1", left(1.0), "")
    assert Journal(tmp_path, {}).working is None


def test_two_processes_that_serve_one_client_in_turn_see_each_others_work(tmp_path: Path) -> None:
    """As in Flower's simulation, where any of Ray's processes may be any client."""
    one, other = Journal(tmp_path, {}), Journal(tmp_path, {})
    one.finish("0.1", left(1.0, handoff=7.0), "")
    assert float(other.mine("0.1", None)) == 10.0
    assert float(other.handoff("0.1")) == 7.0
