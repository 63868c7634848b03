"""Clients that train outside this process: what the fleet sends them, and what it makes of their answers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.toys import Told, ask, stacks, telling

from potluck.engines.chunks import Job
from potluck.engines.local.boards import Outcome
from potluck.fleet import Arrival, Done, Lost


class Board:
    """Answers with a value of its own, or is lost at a given leg."""

    def __init__(self, lost_at: int | None = None) -> None:
        self.lost_at = lost_at
        self.jobs: list[Job] = []
        self.accepted: list[int] = []
        self.closed = False

    def run(self, job: Job) -> Outcome:
        self.jobs.append(job)
        if self.lost_at == len(self.jobs) - 1:
            return Outcome(None, lost="the board does not answer")
        zero, key = torch.zeros(()), torch.zeros((), dtype=torch.float64)
        update = Told(torch.tensor(7.0), torch.zeros(4), zero, zero, key, examples=torch.tensor(4.0))
        return Outcome(Done(update), note="took 1 s")

    def took(self, number: int) -> None:
        self.accepted.append(number)

    def fetch(self) -> Any:
        return None

    def snapshot(self) -> Any:
        return None

    def restore(self, saved: Any) -> None: ...

    def close(self) -> None:
        self.closed = True


def test_a_board_does_the_work_of_its_client_only() -> None:
    board = Board()
    fleet = telling(boards={1: board})
    answers = fleet.gather({client: ask(3) for client in fleet.clients})
    assert [float(answer.update.value) for answer in answers] == [3.0, 7.0, 3.0]
    assert [job.client for job in board.jobs] == [1]
    assert board.accepted == [board.jobs[0].number]
    assert [event.detail for event in fleet.log.events if event.kind == "board"] == ["took 1 s"]
    assert stacks(fleet)[1] == 2
    fleet.close()
    assert board.closed


@pytest.mark.timeout(60)
def test_a_board_that_is_lost_between_two_legs_loses_its_task() -> None:
    board = Board(lost_at=1)
    fleet = telling(boards={0: board})
    fleet.send(ask(), to="c0", legs=3)
    fleet.send(ask(), to="c1", legs=3)
    answers = [fleet.receive(), fleet.receive()]
    assert [(answer.client, answer.reason) for answer in answers if isinstance(answer, Lost)] == [
        ("c0", "the board does not answer")
    ]
    assert [answer.client for answer in answers if isinstance(answer, Arrival)] == ["c1"]
    assert len(board.jobs) == 2
    assert board.accepted == []
    fleet.close()
