"""Runs client programs: many at once as a stack where that is possible and faster, one after another where not.

A program is written for one client. `torch.func.vmap` runs it for many, if the inputs of all have the same shapes and
the program does not branch on values. So a job's inputs (task, private state, carry, mail, parcel) are flattened into
tensors and a skeleton, the JSON text that says where they belong. Jobs with the same program, skeletons and shapes
form a group. Inside `vmap` the skeleton turns the tensors of one client back into the values that the program expects,
and its result is flattened again.

A group is sorted by the number of samples, so that padding stays small, and cut into chunks whose weights stay in the
processor's cache. The cut never depends on the number of workers, so neither do the results. A program that cannot be
stacked runs one client after another, and the run's log says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from threading import Lock
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from potluck import compiled
from potluck._whole import stacked
from potluck.engines import chunks, freed
from potluck.engines.chunks import Chunk, Group, Job, Packs, chunked
from potluck.engines.inputs import joined
from potluck.engines.programs import call
from potluck.engines.results import Block, Part, Rebuilder, Result, Together, flattened
from potluck.engines.samples import Materialise, SampleCache, renamed
from potluck.fleet import ClientProgram, Data, Done, Local
from potluck.learn import StepNoise, noised
from potluck.models import Model
from potluck.rows import Row
from potluck.wire.apart import unpacked
from potluck.wire.bound import Place, changed, sizes_of, stacked_sizes
from potluck.wire.codec import flatten, kinds_of, rebuild, walk
from potluck.wire.gate import HUGE, Seen, finite, inspect

CACHE = 12 << 20  # bytes of stacked weights that still stay near the processor (measured, see docs/performance.md)
ROOMY = 64 << 20  # the same where compiled kernels train: theirs do at any number

_DATA = {"Data": Data}


class Workers(Protocol):
    """Processes that run chunks of jobs instead of this one's threads."""

    def run(self, chunks: Sequence[Sequence[Job]]) -> list[list[Result]]:
        """Each chunk's results, in the order of the chunks."""

    def news(self) -> list[str]:
        """Notes for the run's log since the last call."""

    def close(self) -> None: ...


class Executor:
    """Runs jobs on one model, in this process's threads or in `workers`."""

    def __init__(
        self,
        model: Model,
        programs: Mapping[type, ClientProgram],
        classes: Mapping[str, type],
        materialise: Materialise,
        workers: int = 1,
        stacking: str = "auto",
        valid: Materialise | None = None,
        valid_sizes: Sequence[int] | NDArray[np.int64] = (),
        step: StepNoise | None = None,
        clients: int = 0,  # of the fleet, where that is known
    ) -> None:
        self.model = model
        self._programs = programs
        self._classes = classes
        self._train = SampleCache(materialise, clients)
        self._valid = None if valid is None else SampleCache(valid, clients)
        self._valid_sizes = valid_sizes
        self._threads = workers
        self._step = step  # noise on each step of training, where samples are protected
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None
        self.workers: Workers | None = None  # other processes that run the chunks, where the run has some
        # Grouped convolutions are slow on a CPU: such models run faster one client at a time (docs/performance.md).
        self._alone = stacking == "never" or (stacking == "auto" and model.kind == "conv")
        self._unstackable: set[ClientProgram] = set()
        self._rebuilder = Rebuilder(classes)
        self._noting = Lock()
        self.notes: list[str] = []  # for the run's event log
        self._said: set[str] = set()
        self.heard: Callable[[str], None] = lambda what: None  # called with what goes on, and how many jobs are done
        self.bounds = True  # whether anybody asks how much an update changes
        self.stacks = 0
        self.stacked = 0
        # Stacks are divided among workers, so each operation uses one thread (docs/performance.md). NumPy's threads
        # would wait for each other in small products, and take thirty times as long on a busy machine.
        torch.set_num_threads(1)
        threadpool_limits(1, user_api="blas")
        freed.give_back()
        freed.keep()
        if self._alone:
            self.notes.append(f"execution: one client after another (model kind {model.kind}, stacking {stacking})")

    def run(self, jobs: Sequence[Job]) -> dict[int, Result]:
        """Run the jobs. Return the results by job number."""
        results: dict[int, Result] = {}
        for block in self.blocks(jobs):
            results |= block.results
        return results

    def blocks(self, jobs: Sequence[Job]) -> list[Block]:
        """Run the jobs. Return the results as they were computed, stack by stack."""
        with compiled.telling(lambda what: self.heard(what)):
            return self._run(jobs)

    def _run(self, jobs: Sequence[Job]) -> list[Block]:
        chunks = self._chunks(jobs)
        self.stacks += len(chunks)
        self.stacked += len(jobs)
        parts: Iterable[Block] = map(self._chunk, chunks)
        if self.workers is not None:
            found = self.workers.run([[job for job, _ in rows] for _, rows in chunks])
            parts = [_block(rows, results) for (_, rows), results in zip(chunks, found, strict=True)]
            self.notes += [note for note in self.workers.news() if note not in self._said]
            self._said.update(self.notes)
        elif self._pool and len(chunks) > 1:
            # Each thread goes on with what this one was told to do (`compiled.telling`).
            ways = [copy_context() for _ in chunks]
            parts = self._pool.map(lambda way, chunk: way.run(self._chunk, chunk), ways, chunks)
        elif self._pool:
            parts = self._divided(self._pool, chunks)
        blocks, count = [], 0
        for block in parts:
            blocks.append(block)
            count += len(block.numbers)
            if len(chunks) > 1:
                self.heard(f"training: {count} of {len(jobs)} clients")
        return blocks

    def _divided(self, pool: ThreadPoolExecutor, chunks: Sequence[Chunk]) -> Iterator[Block]:
        """A single chunk: compiled kernels divide its clients among the threads, and nothing else is divided."""
        for chunk in chunks:
            with compiled.threads(pool, self._threads):
                results = self._chunk(chunk)
            yield results

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """What runs one client after another in this block, runs them in all worker threads: `compiled.spread`."""
        if self._pool is None:
            yield
            return
        with compiled.threads(self._pool, self._threads):
            yield

    def close(self) -> None:
        if self.workers is not None:
            self.workers.close()
        if self._pool is not None:
            self._pool.shutdown()

    def _chunks(self, jobs: Sequence[Job]) -> list[Chunk]:
        return chunked(jobs, self._programs, *((0, 1) if self._alone else self._room()))

    def _room(self) -> tuple[int, int]:
        """Bytes of weights and clients in one chunk; more for kernels: each chunk costs a millisecond around them."""
        known = self.model.chain() is not None or self.model.scanned() is not None
        return (ROOMY, chunks.MANY) if known and compiled.ready() else (CACHE, chunks.LARGEST)

    def _chunk(self, chunk: Chunk) -> Block:
        group, rows = chunk
        if self._alone or group.program in self._unstackable:
            return _block(rows, [self._one(group, job, unpacked(tensors)) for job, tensors in rows])
        try:
            return self._stack(group, rows)
        except (RuntimeError, NotImplementedError) as error:
            results = [self._one(group, job, unpacked(tensors)) for job, tensors in rows]  # a real mistake fails again
            with self._noting:  # several threads may find out at the same time; one note is enough
                if group.program not in self._unstackable:
                    self._unstackable.add(group.program)
                    name, reason = group.program.__name__, str(error).strip().splitlines()[0]
                    self.notes.append(f"execution: {name} cannot be stacked, one client after another ({reason})")
            return _block(rows, results)

    @torch.no_grad()
    def _stack(self, group: Group, rows: Packs) -> Block:
        capacity = max(1, *(job.samples for job, _ in rows))  # a client without samples has a row of padding
        data, samples = flatten(self._data([job for job, _ in rows], capacity))
        models = any(isinstance(value, Row) for value in rows[0][1])  # then results are rows of models as well
        inputs, shared = joined([tensors for _, tensors in rows])
        parts: list[Part] = []
        owners = [job.own for job, _ in rows]
        wanted = any(owners)

        def one(given: Sequence[Tensor]) -> list[Tensor]:
            tensors, (key, *own) = given[: len(inputs)], given[len(inputs) :]
            done = self._call(group, tensors, key, rebuild(data, own, _DATA))
            parts[:], out = flattened(done if wanted else replace(done, own=None))
            return out

        key, each = torch.tensor([job.key for job, _ in rows]), [False] * (1 + len(samples))
        with compiled.noting() as noted:
            out = stacked(one, [*inputs, key, *samples], shared + each, len(rows))
        values = [value.detach().contiguous() for value in out]
        update = [values[place] for place in parts[0].places]
        kinds = kinds_of(update, drop=1)
        nbytes = sum(value[0].numel() * value.element_size() for value in update)
        healthy = _healthy(update, noted) if update else [True] * len(rows)
        sizes: Sequence[tuple[float, ...] | None] = [() if self.bounds else None] * len(rows)
        if update and self.bounds:
            sizes = self._sizes(group, parts[0], update, inputs, shared)
        # Most updates of a stack look alike, so one object says it of all.
        alike = list(zip(healthy, sizes, strict=True))
        seen = {kind: Seen(parts[0].skeleton, kinds, nbytes, *kind) for kind in set(alike)}
        whole = Together(parts, values, owners, self._rebuilder, models)
        return Block([job.number for job, _ in rows], [seen[kind] for kind in alike], whole)

    def _sizes(
        self, group: Group, part: Part, update: list[Tensor], inputs: list[Tensor], shared: list[bool]
    ) -> list[tuple[float, ...]]:
        """How much each update of a stack changes what its task brought."""
        task = rebuild(group.task, [Place(i) for i in range(group.cut)], self._classes)
        like = rebuild(part.skeleton, [Place(i) for i in range(len(update))], self._classes)
        return stacked_sizes(changed(like, task), update, inputs, shared)

    @torch.no_grad()
    def _one(self, group: Group, job: Job, tensors: list[Tensor]) -> Result:
        data = walk(self._data([job], max(1, job.samples)), lambda stack: stack[0])
        fast = [t.clone(memory_format=torch.channels_last) if t.dim() == 4 else t for t in tensors]
        parts, out = flattened(self._call(group, fast, torch.tensor(job.key), data))
        done = self._rebuilder(parts, [value.detach().contiguous()[None] for value in out], [job.own])[0]
        return Result(done, replace(inspect(done.update), sizes=sizes_of(done.update, job.task)))

    def _data(self, jobs: Sequence[Job], capacity: int) -> tuple[Data, Data | None]:
        """The clients' training samples, and their validation rows where the partition keeps some."""
        clients, labels = [job.client for job in jobs], [job.labels for job in jobs]
        train = renamed(self._train(clients, capacity), labels)
        if self._valid is None:
            return train, None
        most = max(1, max(int(self._valid_sizes[client]) for client in clients))
        return train, renamed(self._valid(clients, most), labels)

    def _call(self, group: Group, tensors: Sequence[Tensor], key: Tensor, data: tuple[Data, Data | None]) -> Done:
        task = rebuild(group.task, tensors[: group.cut], self._classes)
        mine, carry, mail, parcel = rebuild(group.side, tensors[group.cut :], self._classes)
        with noised(self._step):
            return call(group.program, task, Local(self.model, data[0], mine, key, carry, mail, parcel, data[1]))


def _block(rows: Packs, results: Sequence[Result]) -> Block:
    numbers = [job.number for job, _ in rows]
    return Block(numbers, [one.seen for one in results], given=[one.done for one in results])


def _healthy(update: Sequence[Tensor], noted: Mapping[int, compiled.Noted]) -> list[bool]:
    """Whether all numbers of each update of a stack are finite, and not enormous."""
    squares = [_squares(value, noted) for value in update]
    known = [one.numpy() for one in squares if one is not None]
    fine = [finite(value).numpy() for value, one in zip(update, squares, strict=True) if one is None]
    if known:
        fine.append(np.maximum.reduce(known) < HUGE * HUGE)  # the largest; it keeps NaN
    return np.logical_and.reduce(fine).tolist()  # type: ignore[no-any-return]


def _squares(value: Tensor, noted: Mapping[int, compiled.Noted]) -> Tensor | None:
    """The squared norms of the rows, if a kernel noted them for this tensor and nothing has changed it since."""
    made, squares = noted.get(value.data_ptr(), (None, None))
    same = made is not None and made.shape == value.shape and made.dtype == value.dtype and made._version == 0
    return squares if same and value.is_contiguous() else None
