"""Checkpoints: all that a run needs to go on with the same bits, in one file that is whole or not there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.files import write_bytes
from potluck.wire.codec import decode, encode

NAME = "state.safetensors"


def save(folder: Path, value: Mapping[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    write_bytes(folder / NAME, encode(dict(value)))


def load(folder: Path, classes: Mapping[str, type]) -> dict[str, Any] | None:
    """The newest checkpoint, or None where the run never wrote one."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        value: dict[str, Any] = decode(path.read_bytes(), classes)
    except BadInput as error:
        raise BadInput(Code.RUN_DAMAGED, f"checkpoint: {str(path)!r} cannot be read: {error}") from None
    return value
