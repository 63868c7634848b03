"""Grouping `one`, `given` and `choice` for the server program (`books.Grouping`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from potluck.fleet import Arrival, ClientId, Fleet
from potluck.methods.parts.compose.books import Grouping, Offer, nothing, unchanged
from potluck.methods.parts.compose.groups import Groups, Step, level, placed
from potluck.methods.parts.compose.shapes import Upload


def grouping(number_of: Callable[[ClientId], int], step: Step, newest: bool, choices: int) -> Grouping:
    """Groups that are known, or that clients choose (`choices` above 0)."""

    def ask(state: Any, aside: None, client: ClientId) -> tuple[Any, Offer]:
        book: Groups = state.book
        if choices:
            models = tuple(book.groups[k].weights for k in range(choices))
            version = book.groups[0].version
            return state, Offer(0, models[0], (0, version), models=models, serial=version)
        number = number_of(client)
        group = book.groups[number]
        return state, Offer(number, group.weights, (number, group.version), serial=group.version)

    def place(one: Upload) -> int:
        return int(one.update.group) if choices else number_of(one.client)

    def take(fleet: Fleet, state: Any, came: Sequence[tuple[Arrival, Upload]]) -> Any:
        book, learned = placed(state.book, state.learned, [one for _, one in came], place, step, newest)
        book = level(book) if choices else book
        return replace(state, book=book, learned=learned)

    return Grouping(nothing, ask, take, unchanged)
