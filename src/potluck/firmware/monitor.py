"""What a board says of itself, for `potluck firmware monitor`."""

from __future__ import annotations

from collections.abc import Iterator

from potluck.engines.serial.board import Board
from potluck.engines.serial.link import Gone
from potluck.engines.serial.messages import NO_TASK
from potluck.errors import BadInput, Code


class Watch:
    """A board at an address. One that does not answer raises BadInput."""

    def __init__(self, address: str) -> None:
        self._board, self._address = Board(address, address, silence=5.0), address

    def state(self, accuracy: bool = False) -> list[str]:
        try:
            return list(_lines(self._board, accuracy))
        except Gone as error:
            raise BadInput(Code.BOARD_LINE, f"board: {self._address} does not answer: {error}.") from None

    def label(self, label: int) -> str:
        """Say what the last window was, and return what the board took it for."""
        if not 0 <= label < 65536:
            raise BadInput(Code.FLAG_VALUE, f"CLASS: must be 0 to 65535, got {label}.")
        try:
            self._board.connect()
            said = self._board.label(label)
        except Gone as error:
            raise BadInput(Code.BOARD_LINE, f"board: {self._address} does not answer: {error}.") from None
        return f"recorded as class {said.truth}; the board took it for {said.label}"

    def close(self) -> None:
        self._board.close()


def _lines(board: Board, accuracy: bool) -> Iterator[str]:
    """What a board says of itself, in lines."""
    hello, stats = board.connect(), board.stats()
    tasks = ["none" if n == NO_TASK else str(n) for n in (hello.trained, hello.kept)]
    yield f"{hello.board}, protocol {hello.version}, {'ready' if hello.ready else 'not set up'}"
    yield f"tasks: trained {tasks[0]}, kept {tasks[1]}"
    yield f"samples: {hello.train} to train on, {hello.valid} for validation"
    yield f"RAM: {stats.fixed:,} bytes, of these {hello.arena:,} for training; deepest stack {stats.stack:,}"
    worn = f", each page erased about {stats.stores / stats.slots:.1f} times" if stats.slots else ""
    yield f"flash: {hello.flash:,} bytes; {stats.stores} stores in {stats.slots} slots{worn}"
    yield f"line: {stats.answered} requests answered, {stats.dropped} frames dropped"
    if accuracy and hello.ready and hello.valid:
        answers = [board.infer(hello.train + i) for i in range(hello.valid)]
        right = sum(one.label == one.truth for one in answers)
        yield f"validation: {right} of {hello.valid} right ({right / hello.valid:.3f})"
