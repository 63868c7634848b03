"""Calling a client program, with a clear error where it does not keep its contract."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.fleet import ClientProgram, Done, Local


def call(program: ClientProgram, task: Any, local: Local) -> Done:
    """Run a client program. A result that is not a `Done` raises BadInput with the program's name."""
    done: Any = program(task, local)
    if not isinstance(done, Done):
        raise BadInput(Code.METHOD_OWN, f"{_name(program)} must return Done, got {type(done).__name__}.")
    if done.own is not None and not isinstance(done.own, Mapping):
        wanted = "a dict of weights by name, the model as training left it"
        raise BadInput(Code.METHOD_OWN, f"{_name(program)}: own must be {wanted}, got {type(done.own).__name__}.")
    return done


def _name(program: ClientProgram) -> str:
    """`fedper.train`: the file without its ending, and the function."""
    code = getattr(program, "__code__", None)
    file = "" if code is None else f"{Path(code.co_filename).stem}."
    return f"{file}{getattr(program, '__name__', type(program).__name__)}"
