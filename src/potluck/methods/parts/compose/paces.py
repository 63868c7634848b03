"""The pace: who is asked when, and which answers make one step. Each returns the state and the arrivals of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from potluck.fleet import Arrival, ClientId, Fleet, Lost, Message
from potluck.methods.parts.compose import pairs
from potluck.methods.parts.compose.books import Grouping

Give = Callable[[Any, ClientId], tuple[Any, Message, int]]  # (state, client) -> state, its task, legs
Come = tuple[Any, Sequence[Arrival]]


def together(fleet: Fleet, state: Any, chosen: Sequence[ClientId], give: Give, seconds: float = 0.0) -> Come:
    """Rounds: the chosen get a task, and the step ends with the last answer, or after some seconds."""
    tasks = {}
    for client in chosen:
        state, tasks[client], _ = give(state, client)
    if not tasks:
        return state, []
    return state, fleet.gather(tasks, until=fleet.now + seconds if seconds else None)


def one_by_one(
    fleet: Fleet, state: Any, give: Give, grouping: Grouping, may: Callable[[Any, ClientId], bool], count: int,
    until: float | None = None,
) -> Come:  # fmt: skip
    """Everybody works all the time; the step ends with so many answers (0: any number), or at a moment.

    A client that is lost or that joins ends a step of one answer, too: the program yields, as the run may want to stop.
    """
    came: list[Arrival] = []
    while True:
        for client in grouping.turn(fleet, state):
            if may(state, client):
                state, task, legs = give(state, client)
                fleet.send(task, to=client, legs=max(1, legs))
        before = fleet.now
        moments = [moment for moment in (grouping.until(fleet, state), until) if moment]
        answer = fleet.receive(min(moments, default=None))
        state = grouping.wake(fleet, state, before)
        if isinstance(answer, Lost):
            state = pairs.in_vain(grouping.lost(state, answer.client), answer.client)
        if isinstance(answer, Arrival):
            came.append(answer)
        if (until is not None and fleet.now >= until) or (count and len(came) >= count) or count == 1:
            return state, came
