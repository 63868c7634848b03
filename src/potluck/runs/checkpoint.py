"""Checkpoints: everything a run needs to continue with the same bits, in one file that is written atomically."""

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
    """Read the checkpoint, or return None if there is none."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        value: dict[str, Any] = decode(path.read_bytes(), classes)
    except BadInput as error:
        raise BadInput(Code.RUN_DAMAGED, f"checkpoint: {str(path)!r} cannot be read: {error}") from None
    return value
