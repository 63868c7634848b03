"""The numbers of the protocol's requests, regions and refusals."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """The first byte after the version. An answer has its request's kind with the highest bit set."""

    HELLO = 1
    SETUP = 2
    WRITE = 3
    READ = 4
    SHELVE = 5
    TRAIN = 6
    KEEP = 7
    INFER = 8
    STATS = 9
    ABORT = 10
    FIT = 11
    LABEL = 12
    SHIFT = 13
    TELL = 14
    PROGRESS = 0xFE  # sent without a request, while a board trains
    ERROR = 0xFF


ANSWER = 0x80


class Region(IntEnum):
    WEIGHTS = 0  # as they are stored: float32 or int8
    SCALES = 1  # float32, one per tensor of int8 weights
    CUD = 2  # write only, in the wire's format
    LUD = 3  # read only, in the wire's format, once a task is done
    SCALER = 5  # float32: mean of each channel, then 1 / deviation; for readings of the board's own sensor
    PULL = 6  # float32: what FIT adds to the gradient, beside mu w (write only)
    SHELF = 4  # the samples, in flash
    CHANGE = 7  # of the common weights: a float32 scale for each tensor, then the numbers, without a gap


class Trouble(IntEnum):
    """Why a board refuses a request."""

    UNKNOWN_KIND = 1
    BAD_LENGTH = 2
    BAD_SHAPE = 3
    NO_ROOM = 4
    NOT_READY = 5
    BAD_REGION = 6
    BAD_SHELF = 7
    STALE_TASK = 8
    OTHER_CUD = 9
    BAD_VALUE = 10
    FLASH_FAILED = 11
    OTHER_VERSION = 12
    STOPPED = 13
    BUSY = 14
    OTHER_WEIGHTS = 15
    OTHER_PULL = 16
    NO_TAG = 17
    OTHER_CHANGE = 18
