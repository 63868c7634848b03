"""Jobs, and how they are cut into stacks: by program and shapes, into even chunks of clients with like many samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor

from potluck.fleet import ClientProgram
from potluck.wire.apart import Apart

LARGEST = 256  # clients in one chunk


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


Chunk = tuple[Group, list[tuple[Job, list[Tensor]]]]


def chunked(jobs: Sequence[Job], programs: Mapping[type, ClientProgram], room: int) -> list[Chunk]:
    """Even chunks of jobs that can run as one stack, whose tensors take at most `room` bytes; 0: one job each."""
    groups: dict[tuple[Any, ...], tuple[Group, list[tuple[Job, list[Tensor]]]]] = {}
    sides: dict[tuple[int, ...], Apart] = {}  # by identity: the first private state is one object for all
    tasks: dict[int, Apart] = {}
    dense: dict[int, Tensor] = {}  # tensors from a checkpoint are contiguous: kernels must see no difference
    alike: dict[tuple[int, ...], tuple[list[tuple[Job, list[Tensor]]], list[Tensor]]] = {}
    last: Job | None = None
    rows: list[tuple[Job, list[Tensor]]] = []
    tensors: list[Tensor] = []
    for job in jobs:
        if last is not None and _same(job, last):  # the same objects: in a round of FedAvg, all of them
            rows.append((job, tensors))
            continue
        last = job
        beside = (job.mine, job.carry, job.mail, job.parcel)
        ids = tuple(map(id, (job.task, *beside)))
        if ids in alike:
            rows, tensors = alike[ids]
            rows.append((job, tensors))
            continue
        task = job.apart or tasks.get(ids[0]) or tasks.setdefault(ids[0], Apart(job.task))
        side = sides.get(ids[1:]) or sides.setdefault(ids[1:], Apart(beside))
        found = task.tensors + side.tensors
        tensors = [t if t.is_contiguous() else dense.setdefault(id(t), t.contiguous()) for t in found]
        program = programs[type(job.task)]
        key = (program, task.shape, side.shape)
        if key not in groups:
            groups[key] = (Group(program, task.skeleton, side.skeleton, len(task.tensors)), [])
        rows = groups[key][1]
        rows.append((job, tensors))
        alike[ids] = rows, tensors
    chunks = []
    for group, rows in groups.values():
        rows.sort(key=lambda row: row[0].samples)
        weight = sum(t.numel() * t.element_size() for t in rows[0][1])
        size = max(4, min(LARGEST, room // max(1, weight))) if room else 1
        # Even chunks: 100 jobs in chunks of at most 30 are four of 25, not three of 30 and one of 10.
        count = -(-len(rows) // size)
        cuts = [len(rows) * i // count for i in range(count + 1)]
        chunks += [(group, rows[a:b]) for a, b in pairwise(cuts)]
    return chunks


def _same(a: Job, b: Job) -> bool:
    """Whether two jobs have the same inputs, beside samples and key."""
    same = a.task is b.task and a.mine is b.mine and a.carry is b.carry
    return same and a.mail is b.mail and a.parcel is b.parcel
