"""Checkpoints: all that a run needs to go on with the same bits, in one file that is whole or not there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.files import write_bytes
from potluck.fleet import Data, Done
from potluck.wire.codec import decode, encode
from potluck.wire.gate import Expected, Seen

NAME = "state.safetensors"


def registry(classes: Mapping[str, type]) -> dict[str, type]:
    """The classes a checkpoint of a method may hold."""
    return {**classes, **{kind.__name__: kind for kind in (Data, Done, Expected, Seen)}}


def save(folder: Path, value: Mapping[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    write_bytes(folder / NAME, encode(dict(value)))


def load(folder: Path, classes: Mapping[str, type]) -> dict[str, Any] | None:
    """The newest checkpoint, or None where the run never wrote one."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        value: dict[str, Any] = decode(path.read_bytes(), registry(classes))
    except BadInput as error:
        raise BadInput(Code.RUN_DAMAGED, f"checkpoint: {str(path)!r} cannot be read: {error}") from None
    return value
