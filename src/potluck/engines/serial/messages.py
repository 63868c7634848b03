"""The messages between a board and the engine: fixed little-endian records, declared only here.

`header.py` writes `firmware/src/pl_messages.h` from these classes; a test compares the two. Large data (weights,
samples, CUD, LUD) are regions, which are read and written piece by piece. docs/firmware/protocol.md has the whole
protocol.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, get_args, get_type_hints

from potluck.engines.serial.kinds import ANSWER as ANSWER
from potluck.engines.serial.kinds import Kind as Kind
from potluck.engines.serial.kinds import Region as Region
from potluck.engines.serial.kinds import Trouble as Trouble
from potluck.errors import BadInput, Code

VERSION = 3
PAYLOAD = 228  # largest payload of a frame, in bytes
TAIL = 12  # what a key adds to it: a counter and a tag
NO_TASK = 0xFFFFFFFF
PIECE = 32  # a piece of a sample begins at a multiple of this within it

U8 = Annotated[int, "B"]
U16 = Annotated[int, "H"]
U32 = Annotated[int, "I"]
U64 = Annotated[int, "Q"]
F32 = Annotated[float, "f"]
Text16 = Annotated[str, "16s"]
Bytes48 = Annotated[bytes, "48s"]


class Message:
    """A record of fixed size."""

    KIND: ClassVar[int]

    def pack(self) -> bytes:
        kind = type(self)
        values = [getattr(self, name) for name, _ in layout(kind)]
        return struct.pack(form(kind), *(v.encode() if isinstance(v, str) else v for v in values))

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read a record. Bytes of another length, or text that is not UTF-8, raise BadInput."""
        if len(data) != struct.calcsize(form(cls)):
            raise BadInput(
                Code.BOARD_LINE,
                f"board: {cls.__name__} must have {struct.calcsize(form(cls))} bytes, got {len(data)}; "
                "the board's firmware has another protocol.",
            )
        values = struct.unpack(form(cls), data)
        try:
            return cls(*(v.rstrip(b"\0").decode() if isinstance(v, bytes) else v for v in values))
        except UnicodeDecodeError:
            raise BadInput(Code.BOARD_LINE, f"board: the text in {cls.__name__} must be UTF-8.") from None


def layout(kind: Any) -> list[tuple[str, str]]:
    """Names and struct codes of a record's fields."""
    if "_layout" not in vars(kind):
        hints: dict[str, Any] = get_type_hints(kind, include_extras=True)
        kind._layout = [(field.name, get_args(hints[field.name])[1]) for field in dataclasses.fields(kind)]
    return list(kind._layout)


def form(kind: type[Message]) -> str:
    return "<" + "".join(code for _, code in layout(kind))


@dataclass(frozen=True)
class Hello(Message):
    """Answer to HELLO: what the board is, and what it remembers."""

    KIND = Kind.HELLO | ANSWER
    version: U16
    payload: U16
    arena: U32  # bytes for the network and its training
    flash: U32  # bytes for weights and samples
    rate: U32  # ticks per second
    session: U32
    trained: U32  # the last task done, NO_TASK for none
    kept: U32  # the last task whose weights are in flash
    train: U16  # samples on the shelf
    valid: U16
    shelf: U32  # their CRC
    ready: U8  # 1: set up, with weights and samples
    board: Text16
    nonce: U64  # the board's number of this conversation, part of every tag
    locked: U8  # 1: it has a key, and does what tagged frames say


@dataclass(frozen=True)
class Greet(Message):
    """What a HELLO may say: the host's number of this conversation."""

    KIND = Kind.HELLO
    nonce: U64


@dataclass(frozen=True)
class Setup(Message):
    """The network and how to train it. It is sent once."""

    KIND = Kind.SETUP
    session: U32
    inputs: U16
    hidden: U16
    backbone: U16
    head: U16
    classes: U16
    steps: U16
    layers_f: U8
    layers_g: U8
    layers_h: U8
    gated: U8
    timed: U8
    keep: U8
    weights: U8
    kept: U8
    wire: U8
    ra_form: U8
    lud: U8  # 0: of L, 1: of l
    epochs: U8
    lambda_d: F32
    lambda_m: F32
    lambda_a: F32
    v: F32
    lr: F32
    clip: F32
    network: U8 = 0  # 0: a CFC by the fields above; 1: the layers below, with inputs, steps, classes of those above
    extras: U8 = 0  # 1 momentum, 2 a term added to the gradient, 4 a CFC without FedCFC's terms, 8 common weights
    layers: Bytes48 = b""  # up to eight of six bytes each: kind and activation, kernel, stride, padding, outputs u16


@dataclass(frozen=True)
class Ready(Message):
    """Answer to SETUP: what the network needs."""

    KIND = Kind.SETUP | ANSWER
    needed: U32  # bytes of the arena
    count: U32  # weights
    vector: U32  # numbers of a LUD
    tensors: U32
    sample: U32  # bytes of one sample on the shelf
    room: U32  # samples that fit


@dataclass(frozen=True)
class Write(Message):
    """Followed by the bytes."""

    KIND = Kind.WRITE
    region: U8
    offset: U32


@dataclass(frozen=True)
class Read(Message):
    """Its pieces are answers one after the other, each with the next `seq`."""

    KIND = Kind.READ
    region: U8
    offset: U32
    length: U8  # of the last piece
    more: U8 = 0  # whole pieces before it, of PAYLOAD bytes


@dataclass(frozen=True)
class Shelve(Message):
    """The samples are written: first those to train on, then those for validation."""

    KIND = Kind.SHELVE
    train: U16
    valid: U16
    crc: U32


@dataclass(frozen=True)
class Train(Message):
    """One task: passes over the samples from the kept weights, bound to the CUD written before."""

    KIND = Kind.TRAIN
    task: U32
    key: U64
    cum: F32  # negative: none
    crc: U32  # of the CUD as float32, before any scale: its length does not matter; 0 and `aimed` 0 without one
    batch: U16
    aimed: U8


@dataclass(frozen=True)
class Trained(Message):
    KIND = Kind.TRAIN | ANSWER
    task: U32
    steps: U32  # mini-batches
    ticks: U64
    loss: F32  # means over the mini-batches
    norm: F32
    activity: F32
    valid: F32  # accuracy on the validation samples, -1 without
    scale: F32  # of an int8 LUD


@dataclass(frozen=True)
class Fit(Message):
    """Train the layers by a recipe, from the weights written before: `learn.fit`."""

    KIND = Kind.FIT
    task: U32
    key: U64
    crc: U32  # of the weights to begin from
    lr: F32
    momentum: F32
    mu: F32  # the term mu w + c is added to the gradient
    clip: F32  # 0: none
    first: U32  # of the weights that may move
    last: U32  # the first one behind them
    pull: U32  # CRC of c, which was written before; 0: c is -mu times the weights to begin from
    batch: U16
    epochs: U8


@dataclass(frozen=True)
class Fitted(Message):
    KIND = Kind.FIT | ANSWER
    task: U32
    steps: U32
    ticks: U64
    loss: F32  # mean over the mini-batches
    valid: F32  # accuracy on the validation samples, -1 without
    crc: U32  # of the weights as they are now


@dataclass(frozen=True)
class Shift(Message):
    """Take the change written before into the common weights, and begin from these where weights are shared."""

    KIND = Kind.SHIFT
    task: U32
    number: U32  # of the changes of this task; the first one begins from what was kept
    crc: U32  # of the change
    first: U32  # of the shared weights
    last: U32  # the first one behind them
    bits: U8  # of a number; 0: there is no change; 32: these are the weights


@dataclass(frozen=True)
class Tell(Message):
    """Round how the shared weights changed in a task, and keep what that leaves out for the next time."""

    KIND = Kind.TELL
    task: U32
    first: U32
    last: U32
    bits: U8


@dataclass(frozen=True)
class Told(Message):
    KIND = Kind.TELL | ANSWER
    bytes: U32  # to be read from CHANGE
    crc: U32


@dataclass(frozen=True)
class Keep(Message):
    """The task was accepted: its weights are kept, also after a power cut."""

    KIND = Kind.KEEP
    task: U32


@dataclass(frozen=True)
class Kept(Message):
    KIND = Kind.KEEP | ANSWER
    task: U32


@dataclass(frozen=True)
class Infer(Message):
    KIND = Kind.INFER
    sample: U16


@dataclass(frozen=True)
class LabelRequest(Message):
    KIND = Kind.LABEL
    label: U16  # of the last window of the board's own sensor, which is recorded; the answer is an Inferred


@dataclass(frozen=True)
class Inferred(Message):
    KIND = Kind.INFER | ANSWER
    label: U16  # what the network says
    truth: U16  # what the shelf says


@dataclass(frozen=True)
class Stats(Message):
    KIND = Kind.STATS | ANSWER
    stack: U32  # bytes at its deepest
    fixed: U32  # .data and .bss, the arena among them
    dropped: U32  # frames with a wrong checksum, length or version
    answered: U32
    stores: U32  # of weights, since the flash was new
    slots: U32  # that take the stores in turn; stores / slots is how often each page was erased


@dataclass(frozen=True)
class Progress(Message):
    """Sent during TRAIN, so that a slow board is not taken for a dead one."""

    KIND = Kind.PROGRESS
    task: U32
    step: U32
    steps: U32


@dataclass(frozen=True)
class Error(Message):
    KIND = Kind.ERROR
    trouble: U8


INSTALL: tuple[type[Message], ...] = (Hello, Greet, Setup, Ready, Write, Read, Shelve)  # what a board needs to start
MESSAGES: tuple[type[Message], ...] = (
    *INSTALL,
    *(Train, Trained, Fit, Fitted, Shift, Tell, Told),
    *(Keep, Kept, Infer, LabelRequest, Inferred, Stats, Progress, Error),
)
