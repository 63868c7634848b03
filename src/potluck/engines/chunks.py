"""Jobs, and how they are cut into stacks: by program and shapes, into even chunks of clients with like many samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor

from potluck.engines.inputs import nbytes
from potluck.fleet import ClientProgram
from potluck.rows import Row
from potluck.wire.apart import Apart, Packed, Pattern

LARGEST = 256  # clients in one chunk
MANY = 1024  # the same where kernels train
_NOTHING: Any = object()  # no input of any job


class Job(NamedTuple):
    """One leg of one task, ready to run."""

    number: int
    client: int  # index of the client whose samples it trains on
    samples: int
    task: Any
    key: int
    mine: Any = None
    carry: Any = None
    mail: Any = None
    parcel: Any = None
    labels: tuple[int, ...] | None = None  # new numbers of the labels, after a drift
    own: bool = True  # whether the model as training left it is wanted (`Done.own`)
    apart: Apart | None = None  # the task taken apart, where that is known


@dataclass(frozen=True)
class Group:
    """What the jobs of one stack have in common."""

    program: ClientProgram
    task: str  # its skeleton
    side: str  # the skeleton of mine, carry, mail and parcel
    cut: int  # how many tensors the task has; those of the side follow


Packs = list[tuple[Job, Packed]]
Chunk = tuple[Group, Packs]


def chunked(jobs: Sequence[Job], programs: Mapping[type, ClientProgram], room: int, largest: int) -> list[Chunk]:
    """Even chunks of jobs that can run as one stack: of at most so many bytes and clients."""
    groups: dict[tuple[Any, ...], tuple[Group, Packs]] = {}
    sides: dict[tuple[int, ...], Apart] = {}  # by identity: the first private state is one object for all
    tasks: dict[int, Apart] = {}
    dense: dict[int, Tensor] = {}  # tensors from a checkpoint are contiguous: kernels must see no difference
    alike: dict[tuple[int, ...], tuple[Packs, Packed]] = {}
    task: Any = _NOTHING  # of the last job, with the rest of its inputs
    mine = carry = mail = parcel = _NOTHING
    pattern: Pattern | None = None  # of the last task, if it has one
    beside: Packed = []
    rows: Packs = []
    tensors: Packed = []
    for job in jobs:
        if job.mine is mine and job.carry is carry and job.mail is mail and job.parcel is parcel:
            if job.task is task:  # the same objects: in a round of FedAvg, all of them
                rows.append((job, tensors))
                continue
            if pattern is not None and job.apart is not None and job.apart.pattern is pattern:
                rows.append((job, job.apart.packed + beside if beside else job.apart.packed))
                continue
        task, mine, carry, mail, parcel = job.task, job.mine, job.carry, job.mail, job.parcel
        pattern = job.apart.pattern if job.apart is not None else None
        others = (mine, carry, mail, parcel)
        ids = tuple(map(id, (task, *others)))
        if ids in alike:
            rows, tensors = alike[ids]
            beside = tensors[len(tensors) - len(sides[ids[1:]].tensors) :]
            rows.append((job, tensors))
            continue
        one = job.apart or tasks.get(ids[0]) or tasks.setdefault(ids[0], Apart(task))
        side = sides.get(ids[1:]) or sides.setdefault(ids[1:], Apart(others))
        found, beside = (_in_one_piece(part, dense) for part in (one.packed, side.packed))
        tensors = found + beside
        program = programs[type(task)]
        key = (program, one.shape, side.shape)
        if key not in groups:
            cut = sum(len(t) if isinstance(t, Row) else 1 for t in one.packed)
            groups[key] = (Group(program, one.skeleton, side.skeleton, cut), [])
        rows = groups[key][1]
        rows.append((job, tensors))
        alike[ids] = rows, tensors
    chunks = []
    for group, rows in groups.values():
        rows.sort(key=lambda row: row[0].samples)
        weight = nbytes(rows[0][1])
        size = 1 if largest == 1 else max(4, min(largest, room // max(1, weight)))
        # Even chunks: 100 jobs in chunks of at most 30 are four of 25, not three of 30 and one of 10.
        count = -(-len(rows) // size)
        cuts = [len(rows) * i // count for i in range(count + 1)]
        chunks += [(group, rows[a:b]) for a, b in pairwise(cuts)]
    return chunks


def _in_one_piece(packed: Packed, known: dict[int, Tensor]) -> Packed:
    return [t if isinstance(t, Row) or t.is_contiguous() else known.setdefault(id(t), t.contiguous()) for t in packed]
