"""What goes into a stack: the tensors of many tasks, one stack for each place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from potluck.rows import Row, gathered
from potluck.wire.apart import Packed, unpacked


def nbytes(packed: Packed) -> int:
    """Bytes of the tensors of one task."""
    return sum(
        value.stack.form.nbytes if type(value) is Row and value.stack is not None else _plain(value) for value in packed
    )


def _plain(value: Tensor | Row) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in unpacked([value]))


def joined(rows: Sequence[Packed]) -> tuple[list[Tensor], list[bool]]:
    """For each place of a task a stack of all tasks' tensors, or the one that they share; and whether they share it."""
    first = rows[0]
    if all(packed is first for packed in rows):
        whole = unpacked(first)
        return whole, [True] * len(whole)
    if not _alike(rows):  # here a model is a row of a stack, there it is not
        rows = [cast(Packed, unpacked(packed)) for packed in rows]
    inputs: list[Tensor] = []
    shared: list[bool] = []
    for column in zip(*rows, strict=True):
        if type(column[0]) is not Row:
            same = len(set(map(id, column))) == 1
            inputs.append(cast(Tensor, column[0]) if same else torch.stack(cast(tuple[Tensor, ...], column)))
            shared.append(same)
            continue
        models = cast(tuple[Row, ...], column)
        same = all(row is models[0] or (row.stack is models[0].stack and row.at == models[0].at) for row in models)
        found = list(models[0].values()) if same else gathered(models)
        inputs += found
        shared += [same] * len(found)
    return inputs, shared


def _alike(rows: Sequence[Packed]) -> bool:
    """Whether all have rows of stacks in the same places."""
    if len(set(map(len, rows))) > 1:
        return False
    for column in zip(*rows, strict=True):
        kinds = set(map(type, column))
        if Row in kinds and (len(kinds) > 1 or not all(cast(Row, row).stack for row in column)):
            return False
    return True
