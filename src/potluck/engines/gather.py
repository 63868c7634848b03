"""`Fleet.gather`, written once for all engines: send all tasks, then wait for all answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from potluck.fleet import Arrival, ClientId, Lost, Message

Answer = Arrival | Lost


def gather(
    tasks: Mapping[ClientId, Message],
    send: Callable[[Message, ClientId], None],
    number_of: Callable[[ClientId], int],
    next_answer: Callable[[], Answer | None],
    set_aside: Callable[[Answer], None],
    heard: Callable[[int, int], None] = lambda came, of: None,
) -> tuple[list[Arrival], set[int]]:
    """Return the arrivals in the order of `tasks`, and the numbers of the tasks that are still unanswered.

    `number_of` gives the task number of a client at work. `next_answer` returns None when the time is up. Answers to
    tasks that were sent earlier go to `set_aside`, for a later `receive`. `heard` learns how many have answered.
    """
    waiting = set()
    for client, task in tasks.items():
        send(task, client)
        waiting.add(number_of(client))
    came: dict[ClientId, Arrival] = {}
    while waiting:
        answer = next_answer()
        if answer is None:
            break
        if answer.task not in waiting:
            set_aside(answer)
            continue
        waiting.remove(answer.task)
        heard(len(tasks) - len(waiting), len(tasks))
        if isinstance(answer, Arrival):
            came[answer.client] = answer
    return [came[client] for client in tasks if client in came], waiting
