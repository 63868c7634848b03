"""Checkpoints: all that a run needs to continue with the same bits, in one file that is written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.files import make_folder, write_bytes
from potluck.wire.codec import decode, encode, plain_entry

NAME = "state.safetensors"
MANIFEST = "manifest"


def save(folder: Path, value: Mapping[str, Any]) -> None:
    make_folder(folder)
    write_bytes(folder / NAME, encode(dict(value)))


def load(folder: Path, classes: Mapping[str, type]) -> dict[str, Any] | None:
    """Read the checkpoint, or return None if there is none."""
    data = _read(folder)
    if data is None:
        return None
    try:
        value: dict[str, Any] = decode(data, classes)
    except BadInput as error:
        raise _unreadable(folder, error) from None
    if not isinstance(value, dict) or not {"state", "fleet", "progress"} <= value.keys():
        raise _unreadable(folder, "it holds something else")
    return value


def manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the checkpoint, without the rest; None if there is no checkpoint, or one of an older version."""
    data = _read(folder)
    if data is None:
        return None
    try:
        found = plain_entry(data, MANIFEST)
    except BadInput as error:
        raise _unreadable(folder, error) from None
    return found if isinstance(found, dict) else None


def _read(folder: Path) -> bytes | None:
    try:
        return (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(folder, error.strerror or error) from None


def _unreadable(folder: Path, why: object) -> BadInput:
    return BadInput(Code.RUN_DAMAGED, f"checkpoint: {str(folder / NAME)!r} cannot be read: {str(why).rstrip('.')}.")
