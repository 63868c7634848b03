"""One board: requests and answers over its line, one at a time: install a network, train it, keep it.

Every request may be repeated: a board answers a task that it has done with the same answer. A board that does not
answer is `Gone` for the present task. The next task tries to connect again.
"""

from __future__ import annotations

import secrets
import struct
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from potluck.engines.serial.frames import Frame, Reader, encode
from potluck.engines.serial.link import Gone, Line, Silent, open_line, waiting
from potluck.engines.serial.messages import (
    ANSWER,
    NO_TASK,
    PAYLOAD,
    PIECE,
    VERSION,
    Error,
    Fit,
    Fitted,
    Greet,
    Hello,
    Infer,
    Inferred,
    Keep,
    Kept,
    Kind,
    LabelRequest,
    Message,
    Read,
    Ready,
    Region,
    Setup,
    Shelve,
    Shift,
    Stats,
    Tell,
    Told,
    Train,
    Trained,
    Trouble,
    Write,
    form,
)
from potluck.engines.serial.seal import Seal, split_options
from potluck.engines.serial.shelf import Shelf
from potluck.errors import BadInput, Code

M = TypeVar("M", bound=Message)
HELLO = struct.calcsize(form(Hello))
AGAIN = 1.0  # seconds without an answer after which a request is repeated
BUSY = 0.1  # seconds after which a board is asked again that trained by itself
PIECES = 128  # of one READ at most: `seq` tells them apart


class Refused(BadInput):
    """The board refused a request."""

    def __init__(self, board: str, trouble: int, asked: str) -> None:
        self.trouble = trouble
        known = trouble in Trouble._value2member_map_
        why = Trouble(trouble).name if known else trouble
        super().__init__(Code.BOARD_LINE, f"board {board}: refused {asked} ({why}).")


class Board:
    """A board on a line. `name` is for messages; after `silence` seconds without an answer the board is gone."""

    def __init__(
        self, name: str, opener: str | Callable[[], Line], silence: float = 10.0, key: bytes | None = None
    ) -> None:
        if isinstance(opener, str):
            opener, options = split_options(opener)
            key = key or options.key
        self.name, self._key = name, key
        self._seal: Seal | None = None  # of the conversation at hand, where there is a key
        self._open: Callable[[], Line] = partial(open_line, opener) if isinstance(opener, str) else opener
        self._silence = silence
        self._line: Line | None = None
        self._reader = Reader()
        self._heard: list[Frame] = []  # behind the one that was wanted
        self._seq = 0
        self.sent = self.received = 0  # bytes on the line
        self.forged = 0  # answers without the right tag

    @property
    def talking(self) -> bool:
        """Whether it can be asked without a HELLO. One that has a key and restarted would not be understood."""
        return self._line is not None and self._key is None

    def connect(self) -> Hello:
        """Open the line if it is closed, and return what the board says of itself."""
        try:
            hello = self._greet()
        except Silent:
            raise
        except Gone:  # the line was cut: the board may have restarted
            hello = self._greet()
        if hello.version != VERSION:
            self.close()
            raise BadInput(
                Code.BOARD_LINE,
                f"board {self.name}: its protocol must have version {VERSION}, got {hello.version}.",
            )
        return hello

    def _greet(self) -> Hello:
        if self._line is None:
            try:
                self._line = self._open()
            except OSError as error:
                raise error if isinstance(error, Gone) else Gone(str(error)) from None
            self._reader, self._heard = Reader(), []
        self._put(b"\0")  # ends a frame that was cut off on this line
        self._seal, host = None, secrets.randbits(64)
        answer = self._exchange(Kind.HELLO, Greet(host).pack())
        hello = Hello.unpack(answer[:HELLO])
        if hello.locked != (self._key is not None):
            self.close()
            wanted = "have the key that was given, got a board without one" if self._key else "be given its key"
            raise BadInput(Code.BOARD_LINE, f"board {self.name}: must {wanted} (ADDRESS?key=FILE).")
        if self._key is not None:
            self._seal = Seal(self._key, host, hello.nonce)
            if self._seal.opened(Kind.HELLO | ANSWER, self._seq, answer, 0) is None:
                self.close()
                raise BadInput(
                    Code.BOARD_LINE, f"board {self.name}: must have the key that was given, got another one."
                )
        return hello

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def install(
        self, setup: Setup, weights: bytes, scales: bytes, shelf: Shelf, task: int = NO_TASK, scaler: bytes = b""
    ) -> Ready:
        """Send what a board needs to start, or to continue after `task`. Samples are sent only if they are new."""
        ready = self.place(setup, shelf, scaler)
        self.write(Region.WEIGHTS, weights)
        if scales:
            self.write(Region.SCALES, scales)
        self.keep(task)
        return ready

    def place(self, setup: Setup, shelf: Shelf, scaler: bytes = b"") -> Ready:
        """Send a network, what standardises its readings, and its samples if these are new."""
        ready = self._ask(Kind.SETUP, setup.pack(), Ready)
        if shelf.train + shelf.valid > ready.room:
            raise BadInput(
                Code.BOARD_MEMORY,
                f"board {self.name}: must have at most {ready.room} samples of {ready.sample} bytes in its flash, "
                f"got {shelf.train + shelf.valid}.",
            )
        if len(shelf.data) != (shelf.train + shelf.valid) * ready.sample:
            raise ValueError(f"samples must have {ready.sample} bytes each, got {len(shelf.data)} bytes in all")
        shelve = Shelve(shelf.train, shelf.valid, shelf.crc)
        try:
            self._tell(Kind.SHELVE, shelve.pack())
        except Refused:
            self.shelve(shelf.data, ready.sample)
            self._tell(Kind.SHELVE, shelve.pack())
        if scaler:
            self.write(Region.SCALER, scaler)
        return ready

    def fit(self, order: Fit) -> Fitted:
        """Let the board train its layers by a recipe, from the weights written before."""
        return self._ask(Kind.FIT, order.pack(), Fitted, repeat=False)

    def shift(self, order: Shift, change: bytes) -> None:
        """Let the board take a change of the common weights, and begin from these."""
        self.write(Region.CHANGE, change)
        self._tell(Kind.SHIFT, order.pack())

    def change(self, order: Tell) -> bytes:
        """How training changed the shared weights, in a few bits a number."""
        told = self._ask(Kind.TELL, order.pack(), Told)
        data = self.read(Region.CHANGE, told.bytes)
        if zlib.crc32(data) != told.crc:
            raise BadInput(Code.BOARD_LINE, f"board {self.name}: its change must have the checksum it announced.")
        return data

    def train(self, task: Train, cud: bytes) -> Trained:
        """Let the board do a task. The CUD is written first, in the wire's format."""
        if task.aimed:
            self.write(Region.CUD, cud)
        return self._ask(Kind.TRAIN, task.pack(), Trained, repeat=False)

    def keep(self, task: int) -> None:
        self._ask(Kind.KEEP, Keep(task).pack(), Kept)

    def infer(self, sample: int) -> Inferred:
        return self._ask(Kind.INFER, Infer(sample).pack(), Inferred)

    def label(self, label: int) -> Inferred:
        """Say what the last window of the board's sensor was: it is recorded. Returns what the board took it for."""
        return self._ask(Kind.LABEL, LabelRequest(label).pack(), Inferred, repeat=False)

    def abort(self) -> None:
        """Stop a training that is under way; it leaves no trace."""
        self._tell(Kind.ABORT, b"")

    def stats(self) -> Stats:
        return self._ask(Kind.STATS, b"", Stats)

    def write(self, region: Region, data: bytes) -> None:
        room = (PAYLOAD - len(Write(0, 0).pack())) // 4 * 4
        for at in range(0, len(data), room):
            self._tell(Kind.WRITE, Write(region, at).pack() + data[at : at + room])

    def shelve(self, data: bytes, size: int) -> None:
        """Write samples of `size` bytes each. No piece is of two samples: a board's flash has its samples apart."""
        room = (PAYLOAD - len(Write(0, 0).pack())) // PIECE * PIECE
        for first in range(0, len(data), size):
            for at in range(first, first + size, room):
                piece = data[at : min(at + room, first + size)]
                self._tell(Kind.WRITE, Write(Region.SHELF, at).pack() + piece)

    def read(self, region: Region, nbytes: int, first: int = 0) -> bytes:
        """Bytes of a region. Many pieces answer one request; what does not arrive is asked for again from there on."""
        data = b""
        while (left := nbytes - len(data)) > 0:
            more = min(-(-left // PAYLOAD), PIECES) - 1
            order = Read(region, first + len(data), min(PAYLOAD, left - more * PAYLOAD), more)
            for k in range(more + 1):
                part = self._following(Kind.READ) if k else self._exchange(Kind.READ, order.pack())
                if part is None:
                    break
                if len(part) != (size := PAYLOAD if k < more else order.length):
                    raise BadInput(
                        Code.BOARD_LINE, f"board {self.name}: must answer with {size} bytes, got {len(part)}."
                    )
                data += part
        return data

    def _ask(self, kind: Kind, payload: bytes, answer: type[M], repeat: bool = True) -> M:
        return answer.unpack(self._exchange(kind, payload, repeat))

    def _tell(self, kind: Kind, payload: bytes) -> None:
        data = self._exchange(kind, payload)
        if data:
            raise BadInput(Code.BOARD_LINE, f"board {self.name}: must answer without data, got {len(data)} bytes.")

    def _exchange(self, kind: Kind, payload: bytes, repeat: bool = True) -> bytes:
        """The answer to a request. A board that is training by itself is asked again until it has stopped."""
        began = time.monotonic()
        while True:
            try:
                return self._asked(kind, payload, repeat)
            except Refused as error:
                if error.trouble != Trouble.BUSY or time.monotonic() - began > self._silence:
                    raise
                time.sleep(BUSY)

    def _asked(self, kind: Kind, payload: bytes, repeat: bool) -> bytes:
        self._seq = (self._seq + 1) % 256
        seal = self._seal
        if seal is not None:
            payload = seal.closed(kind, self._seq, payload)
        question = encode(Frame(kind, self._seq, payload))
        answered = time.monotonic()
        try:
            while time.monotonic() - answered < self._silence:
                self._put(question)
                patience = min(AGAIN, self._silence) if repeat else self._silence
                asked = time.monotonic()
                while (left := max(answered, asked) + patience - time.monotonic()) > 0:
                    frame = self._frame(left)
                    if frame is None:
                        continue
                    answered = time.monotonic()
                    if frame.kind == Kind.PROGRESS:
                        asked = answered
                    elif frame.seq == self._seq and frame.kind == kind | ANSWER:
                        return frame.payload
                    elif frame.seq == self._seq and frame.kind == Kind.ERROR:
                        raise Refused(self.name, Error.unpack(frame.payload[:1]).trouble, kind.name)
                if not repeat:
                    break
        except (OSError, ValueError) as error:
            if isinstance(error, BadInput | Gone):
                raise
            self.close()
            raise Gone(str(error)) from None
        self.close()
        raise Silent(f"no answer to {kind.name} for {self._silence:g} s")

    def _following(self, kind: Kind) -> bytes | None:
        """The next answer to the request at hand; None where it does not come."""
        until = time.monotonic() + min(AGAIN, self._silence)
        while (left := until - time.monotonic()) > 0:
            frame = self._frame(left)
            if frame is not None and frame.kind == kind | ANSWER and frame.seq == (self._seq + 1) % 256:
                self._seq = frame.seq
                return frame.payload
        return None

    def _frame(self, seconds: float) -> Frame | None:
        """The next frame that the board itself sent; None where none came in this time, or one of somebody else."""
        self._heard = self._heard or self._get(seconds)
        if not self._heard:
            return None
        frame, seal = self._heard.pop(0), self._seal
        if seal is None:
            return frame
        said = seal.opened(frame.kind, frame.seq, frame.payload, seal.counter)
        self.forged += said is None
        return None if said is None else Frame(frame.kind, frame.seq, said)

    def _put(self, data: bytes) -> None:
        assert self._line is not None
        try:
            self._line.write(data)
        except (OSError, ValueError) as error:
            self.close()
            raise Gone(str(error)) from None
        self.sent += len(data)

    def _get(self, seconds: float) -> list[Frame]:
        assert self._line is not None
        if not waiting(self._line, seconds):
            return []
        try:
            data = self._line.read()
        except Gone:
            self.close()
            raise
        self.received += len(data)
        return list(self._reader.feed(data))
