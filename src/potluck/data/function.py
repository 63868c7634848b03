"""Datasets that a function returns: `package.module:function`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from potluck.data.dataset import Dataset
from potluck.data.intake.arrays import from_arrays
from potluck.data.intake.spec import Intake
from potluck.errors import BadInput, Code, must_be, unknown


def call(source: str, intake: Intake | None = None) -> Dataset:
    """Call `package.module:function`, which returns a Dataset, a mapping of arrays, or (x, y[, subject])."""
    module_name, _, attribute = source.partition(":")
    if not module_name or not attribute.isidentifier():
        raise must_be(Code.DATA_FUNCTION, "data", "of the form package.module:function", source)
    function = getattr(_imported(module_name, source), attribute, None)
    if function is None:
        public = [name for name in dir(sys.modules[module_name]) if not name.startswith("_")]
        raise unknown(Code.DATA_FUNCTION, f"data: function in {module_name}", attribute, public)
    if not callable(function):
        raise must_be(Code.DATA_FUNCTION, f"data: {source}", "a function", shown=f"a {type(function).__name__}")
    try:
        returned = function()
    except BadInput:
        raise
    except (Exception, SystemExit) as fault:
        raise BadInput(Code.DATA_FUNCTION, f"data: {source} failed with {type(fault).__name__}: {fault}") from fault
    return _returned(source, returned, intake or Intake())


def _imported(module_name: str, source: str) -> Any:
    here = str(Path.cwd())  # find a module in the working folder, as `python -m` does
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as fault:
        raise BadInput(
            Code.DATA_FUNCTION, f"data: {source}: there is no module {fault.name!r} here or among the installed ones."
        ) from fault
    except (Exception, SystemExit) as fault:
        raise BadInput(
            Code.DATA_FUNCTION, f"data: {source}: importing it failed with {type(fault).__name__}: {fault}"
        ) from fault
    finally:
        if added:
            sys.path.remove(here)


def _returned(source: str, value: object, intake: Intake) -> Dataset:
    if isinstance(value, Dataset):
        intake.refuse_for(f"the Dataset of {source}")
        return value
    if isinstance(value, tuple) and len(value) in (2, 3):
        value = dict(zip(("x", "y", "subject"), value, strict=False))
    if not isinstance(value, Mapping):
        raise BadInput(
            Code.DATA_FUNCTION,
            f"data: {source} must return a Dataset, a dict of arrays or (x, y[, subject]), "
            f"got a {type(value).__name__}.",
        )
    try:
        arrays = {str(field): np.asanyarray(array) for field, array in value.items() if array is not None}
    except ValueError as fault:
        raise BadInput(
            Code.DATA_FUNCTION, f"data: {source} returned something that is not an array ({fault})."
        ) from fault
    return from_arrays(source, arrays, source.rpartition(":")[2], intake)
