"""The executor: what is stacked with what, that stacking changes nothing, and what happens where it cannot be done."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import made, stacker
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from potluck import _first_layer, compiled, keys
from potluck.compiled import kept, stack
from potluck.engines import chunks, execute, samples
from potluck.engines.chunks import Job
from potluck.engines.execute import Executor
from potluck.errors import BadInput, Code
from potluck.fleet import Data, Done, Local
from potluck.learn import sgd
from potluck.models import build
from potluck.wire.codec import flatten


@dataclass(frozen=True)
class Task:
    weights: Any = None
    number: float = 0.0


@dataclass(frozen=True)
class Other:
    weights: Any = None


@dataclass(frozen=True)
class Update:
    value: Any


CLASSES = {kind.__name__: kind for kind in (Task, Other, Update)}
MODEL = build("mlp", (4,), 3, {"hidden": [5]})
WEIGHTS = MODEL.init(0)


def train(task: Task, local: Local) -> Done:
    weights = sgd(local.model, task.weights, local.data, key=local.key, lr=0.1, epochs=2, batch=4)
    return Done(Update(weights))


class Desk:
    """An executor over small made clients that notes what data was asked for."""

    def __init__(
        self, program: Callable[[Any, Local], Done], sizes: Sequence[int], other: Any = None, **options: Any
    ) -> None:
        self.sizes = sizes
        self.asked: list[tuple[tuple[int, ...], int]] = []
        give = stacker(made(sizes))

        def materialise(places: Sequence[int], capacity: int) -> Data:
            self.asked.append((tuple(places), capacity))
            return give(places, capacity)

        self.executor = Executor(MODEL, {Task: program, Other: other or program}, CLASSES, materialise, **options)

    def job(self, client: int, task: Any, **parts: Any) -> Job:
        return Job(client, client, self.sizes[client], task, keys.number("job", client), **parts)

    def run(self, jobs: Sequence[Job]) -> dict[int, Any]:
        return {number: result.done.update.value for number, result in self.executor.run(jobs).items()}

    def all(self, task: Any) -> dict[int, Any]:
        return self.run([self.job(i, task) for i in range(len(self.sizes))])


def assert_alike(a: Any, b: Any, tolerance: float = 0.0) -> None:
    (skeleton, tensors), (other, others) = flatten(a), flatten(b)
    assert skeleton == other
    for one, two in zip(tensors, others, strict=True):
        if tolerance:
            torch.testing.assert_close(one, two, atol=tolerance, rtol=tolerance)
        else:
            assert torch.equal(one, two)


SIZES = (3, 11, 7, 7, 2, 20, 5)


def test_a_stack_gives_what_each_gives_alone() -> None:
    together, alone = Desk(train, SIZES), Desk(train, SIZES, stacking="never")
    assert_alike(together.all(Task(WEIGHTS)), alone.all(Task(WEIGHTS)), tolerance=1e-5)
    assert (together.executor.stacks, together.executor.stacked) == (1, 7)
    assert (alone.executor.stacks, alone.executor.stacked) == (7, 7)
    assert alone.executor.notes == ["execution: one client after another (model kind dense, stacking never)"]
    assert together.executor.notes == []


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("later", [False, True])
def test_a_client_whose_training_went_wrong_is_found(kernels: bool, later: bool) -> None:
    """Also what a program does to the trained weights: kernels note how large they were, and no more."""

    def wild(task: Task, local: Local) -> Done:
        weights = sgd(local.model, task.weights, local.data, key=local.key, lr=0.1, epochs=2, batch=4)
        few = local.data.weight.sum() < 4  # two of the clients
        name = next(iter(weights))
        if later:
            return Done(Update({**weights, name: weights[name] + torch.where(few, torch.nan, 0.0)}))
        start = {**task.weights, name: task.weights[name] + torch.where(few, torch.inf, 0.0)}
        return Done(Update(sgd(local.model, start, local.data, key=local.key, lr=0.1, epochs=2, batch=4)))

    desk = Desk(wild, SIZES)
    with nullcontext() if kernels else compiled.off():
        found = desk.executor.run([desk.job(i, Task(WEIGHTS)) for i in range(len(SIZES))])
    assert {i for i, result in found.items() if not result.seen.finite} == {0, 4}


def test_results_go_to_the_jobs_they_belong_to() -> None:
    """Sorting by size inside must not mix anybody up."""

    def tell(task: Task, local: Local) -> Done:
        return Done(Update([local.data.weight.sum(), local.key, task.weights]))

    desk = Desk(tell, SIZES)
    found = desk.run([desk.job(i, Task(torch.tensor(float(i)))) for i in (5, 0, 3, 6, 1)])
    assert {i: float(value[0]) for i, value in found.items()} == {i: float(SIZES[i]) for i in (5, 0, 3, 6, 1)}
    assert {i: int(value[1]) for i, value in found.items()} == {i: keys.number("job", i) for i in found}
    assert {i: float(value[2]) for i, value in found.items()} == {i: float(i) for i in found}


def test_padding_is_sorted_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large with large, small with small: chunks of alike sizes, each padded to its own largest."""
    for most in ("LARGEST", "MANY"):  # with tensors, and with kernels
        monkeypatch.setattr(chunks, most, 4)
    desk = Desk(train, (50, 2, 49, 1, 48, 3, 51, 4))
    desk.all(Task(WEIGHTS))
    assert desk.asked == [((3, 1, 5, 7), 4), ((4, 2, 0, 6), 51)]


@pytest.mark.parametrize(("count", "largest", "expected"), [(100, 30, [25] * 4), (10, 4, [3, 3, 4]), (9, 9, [9])])
def test_chunks_are_even(monkeypatch: pytest.MonkeyPatch, count: int, largest: int, expected: list[int]) -> None:
    for most in ("LARGEST", "MANY"):
        monkeypatch.setattr(chunks, most, largest)
    desk = Desk(train, (3,) * count)
    desk.all(Task(WEIGHTS))
    assert [len(places) for places, _ in desk.asked] == expected


def test_wide_models_make_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    nbytes = sum(value.numel() * 4 for value in WEIGHTS.values())
    for room in ("CACHE", "ROOMY"):  # with tensors, and with kernels
        monkeypatch.setattr(execute, room, 5 * nbytes)
    desk = Desk(train, (3,) * 10)
    desk.all(Task(WEIGHTS))
    assert [len(places) for places, _ in desk.asked] == [5, 5]
    for room in ("CACHE", "ROOMY"):
        monkeypatch.setattr(execute, room, 1)  # however wide, a few at once
    desk = Desk(train, (3,) * 10)
    desk.all(Task(WEIGHTS))
    assert [len(places) for places, _ in desk.asked] == [3, 3, 4]


def test_unlike_widths_are_stacked_by_shape() -> None:
    """Sub-models of one model: each width is a stack of its own."""

    def forward(task: Task, local: Local) -> Done:
        hidden = torch.relu(local.data.x @ task.weights["first"].T)
        return Done(Update({"first": task.weights["first"], "out": (hidden @ task.weights["last"].T).mean(0)}))

    def sliced(width: int) -> Task:
        return Task({"first": WEIGHTS["fc1.weight"][:width], "last": WEIGHTS["fc2.weight"][:, :width]})

    desk = Desk(forward, (6,) * 9)
    widths = (2, 5, 3, 2, 5, 3, 2, 5, 3)
    found = desk.run([desk.job(i, sliced(width)) for i, width in enumerate(widths)])
    assert desk.executor.stacks == 3
    assert [found[i]["first"].shape[0] for i in range(9)] == list(widths)
    alone = Desk(forward, (6,) * 9, stacking="never")
    assert_alike(found, alone.run([alone.job(i, sliced(width)) for i, width in enumerate(widths)]), tolerance=1e-6)


@pytest.mark.parametrize(
    "tasks",
    [
        [Task(torch.ones(2)), Task(torch.ones(3))],
        [Task(torch.ones(2)), Task(torch.ones(2).double())],
        [Task(torch.ones(2)), Task(torch.ones(2), number=1.0)],
        [Task(torch.ones(2)), Task({"a": torch.ones(2)})],
        [Task(torch.ones(2)), Other(torch.ones(2))],
    ],
)
def test_what_differs_in_more_than_numbers_is_not_stacked_together(tasks: list[Any]) -> None:
    desk = Desk(lambda task, local: Done(Update(task.weights)), (3, 3))
    found = desk.run([desk.job(i, task) for i, task in enumerate(tasks)])
    assert desk.executor.stacks == 2
    assert_alike([found[0], found[1]], [task.weights for task in tasks])


@pytest.mark.parametrize("part", ["mine", "carry", "mail", "parcel"])
def test_other_parts_split_the_stack_too_and_arrive_where_they_belong(part: str) -> None:
    def tell(task: Task, local: Local) -> Done:
        found = getattr(local, part)
        return Done(Update(torch.zeros(1) if found is None else found * 1.0))

    desk = Desk(tell, (3, 3, 3, 3))
    given = {0: None, 1: torch.tensor([1.0]), 2: torch.tensor([2.0]), 3: torch.tensor([3.0, 4.0])}
    found = desk.run([desk.job(i, Task(), **{part: value}) for i, value in given.items()])
    assert {i: value.tolist() for i, value in found.items()} == {0: [0.0], 1: [1.0], 2: [2.0], 3: [3.0, 4.0]}
    assert desk.executor.stacks == 3


def test_everything_a_program_leaves_comes_back() -> None:
    def leave(task: Task, local: Local) -> Done:
        n = local.data.weight.sum()
        return Done(Update(n), mine={"m": n + 1, "fixed": torch.ones(2)}, carry=(n + 2, "text"), handoff=[n + 3, None])

    desk = Desk(leave, (3, 5))
    for i, result in desk.executor.run([desk.job(i, Task()) for i in (0, 1)]).items():
        n = float(desk.sizes[i])
        assert_alike(result.done.update, Update(torch.tensor(n)))
        assert_alike(result.done.mine, {"m": torch.tensor(n + 1), "fixed": torch.ones(2)})
        assert_alike(result.done.carry, (torch.tensor(n + 2), "text"))
        assert_alike(result.done.handoff, [torch.tensor(n + 3), None])


def test_a_task_without_tensors_and_an_update_without_any() -> None:
    desk = Desk(lambda task, local: Done(Update(task.number)), (3, 4))
    assert desk.all(Task(number=2.5)) == {0: 2.5, 1: 2.5}
    assert [r.seen.finite for r in desk.executor.run([desk.job(0, Task(number=1.0))]).values()] == [True]


def test_shared_weights_equal_each_ones_own() -> None:
    """One tensor for all, or an equal copy for each: the same to rounding."""
    desk = Desk(train, SIZES)
    shared = desk.all(Task(WEIGHTS))
    own = desk.run(
        [desk.job(i, Task({name: value.clone() for name, value in WEIGHTS.items()})) for i in range(len(SIZES))]
    )
    assert_alike(shared, own, tolerance=1e-6)


def test_memory_layout_does_not_change_the_bits() -> None:
    """A run goes on from a checkpoint with contiguous tensors, whatever views its state was made of."""

    def product(task: Task, local: Local) -> Done:
        return Done(Update((local.data.x @ task.weights).T @ local.data.x))

    wide = keys.normal(keys.key("layout"), (64, 4)).T
    assert not wide.is_contiguous()
    for own in (False, True):
        views, copies = Desk(product, (9, 9, 9)), Desk(product, (9, 9, 9))
        given = [Task(wide.clone(memory_format=torch.preserve_format) if own else wide) for _ in range(3)]
        fresh = wide.contiguous()
        saved = [Task(fresh.clone() if own else fresh) for _ in range(3)]
        assert_alike(
            views.run([views.job(i, task) for i, task in enumerate(given)]),
            copies.run([copies.job(i, task) for i, task in enumerate(saved)]),
        )


@pytest.mark.parametrize("stacking", ["auto", "never"])
def test_what_comes_back_is_contiguous(stacking: str) -> None:
    def turned(task: Task, local: Local) -> Done:
        return Done(Update([local.data.x.T, task.weights.T, local.data.x[:1].expand(5, -1)]))

    desk = Desk(turned, (6, 6, 6), stacking=stacking)
    for value in desk.all(Task(torch.ones(2, 3))).values():
        assert all(tensor.is_contiguous() for tensor in value)
        assert [tuple(tensor.shape) for tensor in value] == [(4, 6), (3, 2), (5, 4)]


@settings(max_examples=15)
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=9), workers=st.sampled_from([2, 3]))
def test_workers_do_not_change_the_bits(sizes: list[int], workers: int) -> None:
    largest = chunks.LARGEST, chunks.MANY
    try:
        chunks.LARGEST = chunks.MANY = 4  # several chunks
        one, many = Desk(train, sizes), Desk(train, sizes, workers=workers)
        assert_alike(one.all(Task(WEIGHTS)), many.all(Task(WEIGHTS)))
        many.executor.close()
    finally:
        chunks.LARGEST, chunks.MANY = largest


def test_the_same_jobs_give_the_same_bits() -> None:
    desk = Desk(train, SIZES)
    first = desk.all(Task(WEIGHTS))
    assert_alike(first, desk.all(Task(WEIGHTS)))
    assert_alike(first, Desk(train, SIZES).all(Task(WEIGHTS)))


# -- what cannot be stacked ------------------------------------------------------------------------------------------


def branching(task: Task, local: Local) -> Done:
    weights = train(task, local).update.value
    if weights["fc2.bias"][0] > 0:  # a tensor decides what Python does
        weights = {name: 2 * value for name, value in weights.items()}
    return Done(Update(weights))


def reading(task: Task, local: Local) -> Done:
    return Done(Update({"n": int(local.data.weight.sum()), "x": local.data.x.sum().item()}))


def choosing(task: Task, local: Local) -> Done:
    return Done(Update(local.data.x[local.data.y == 1].sum(0)))


def listing(task: Task, local: Local) -> Done:
    return Done(Update([float(max(local.data.x[:, 0].tolist()))]))


def numpying(task: Task, local: Local) -> Done:
    return Done(Update(torch.from_numpy(np.sort(local.data.x.numpy(), axis=0)[-1])))


@pytest.mark.parametrize("program", [branching, reading, choosing, listing, numpying])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_program_that_cannot_be_stacked_runs_one_by_one_and_says_so_once(
    program: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in ("LARGEST", "MANY"):  # with tensors, and with kernels
        monkeypatch.setattr(chunks, most, 4)
    desk, alone = Desk(program, SIZES, workers=workers), Desk(program, SIZES, stacking="never")
    expected = alone.all(Task(WEIGHTS))
    for _ in range(3):
        assert_alike(desk.all(Task(WEIGHTS)), expected)
    desk.executor.close()
    (note,) = desk.executor.notes
    assert note.startswith(f"execution: {program.__name__} cannot be stacked, one client after another (")


def test_only_that_program_is_slow() -> None:
    desk = Desk(branching, SIZES, other=train)
    desk.all(Task(WEIGHTS))
    desk.asked.clear()
    desk.all(Other(WEIGHTS))
    assert desk.asked == []  # the whole stack's data was at hand from the first try of the other program
    assert desk.executor.stacks == 2
    assert len(desk.executor.notes) == 1


@pytest.mark.parametrize(
    "error", [ValueError("wrong"), RuntimeError("wrong"), NotImplementedError("wrong"), KeyError(1)]
)
@pytest.mark.parametrize("stacking", ["auto", "never"])
def test_a_program_that_really_fails_fails(error: Exception, stacking: str) -> None:
    def fail(task: Task, local: Local) -> Done:
        raise error

    desk = Desk(fail, (3, 4), stacking=stacking)
    with pytest.raises(type(error)):
        desk.all(Task(WEIGHTS))
    assert not any("cannot be stacked" in note for note in desk.executor.notes)


def test_a_mistake_of_shapes_is_told_as_it_is() -> None:
    desk = Desk(lambda task, local: Done(Update(local.data.x @ torch.ones(7, 2))), (3, 4))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        desk.all(Task())


# -- what the gate must know -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stacking", ["auto", "never"])
def test_what_the_gate_sees_is_what_there_is(stacking: str) -> None:
    def odd(task: Task, local: Local) -> Done:
        return Done(Update({"w": task.weights.reshape(2, 2), "n": local.data.y.sum(), "none": task.weights[:0]}))

    desk = Desk(odd, (3, 3, 3), stacking=stacking)
    values = [torch.ones(4), torch.tensor([1.0, torch.nan, 0.0, 0.0]), torch.tensor([torch.inf, -torch.inf, 0.0, 0.0])]
    found = desk.executor.run([desk.job(i, Task(value)) for i, value in enumerate(values)])
    assert [found[i].seen.finite for i in range(3)] == [True, False, False]
    for result in found.values():
        assert result.seen.nbytes == 4 * 4 + 8
        assert result.seen.kinds == (((2, 2), "torch.float32"), ((), "torch.int64"), ((0,), "torch.float32"))
        assert result.seen.skeleton == flatten(result.done.update)[0]


# -- data ------------------------------------------------------------------------------------------------------------


def series(t: bool, length: bool) -> Callable[[Sequence[int], int], Data]:
    give = stacker(made((5, 3)))

    def materialise(places: Sequence[int], capacity: int) -> Data:
        plain = give(places, capacity)
        shape = (len(places), capacity)
        return Data(
            plain.x,
            plain.y,
            plain.weight,
            torch.full((*shape, 2), 7.0) if t else None,
            torch.full(shape, 4) if length else None,
        )

    return materialise


@pytest.mark.parametrize("stacking", ["auto", "never"])
@pytest.mark.parametrize("t", [False, True])
@pytest.mark.parametrize("length", [False, True])
def test_time_stamps_and_lengths_are_there_or_not(stacking: str, t: bool, length: bool) -> None:
    def tell(task: Task, local: Local) -> Done:
        data = local.data
        return Done(
            Update(
                [
                    torch.zeros(()) if data.t is None else data.t.sum(),
                    torch.zeros(()) if data.length is None else data.length.sum(),
                ]
            )
        )

    executor = Executor(MODEL, {Task: tell}, CLASSES, series(t, length), stacking=stacking)
    jobs = [Job(i, i, n, Task(), i) for i, n in enumerate((5, 3))]
    padded = {0: 5, 1: 3 if stacking == "never" else 5}
    for i, result in executor.run(jobs).items():
        stamps, lengths = (float(value) for value in result.done.update.value)
        assert stamps == (7.0 * 2 * padded[i] if t else 0.0)
        assert lengths == (4.0 * padded[i] if length else 0.0)


@pytest.mark.parametrize("stacking", ["auto", "never"])
def test_validation_rows_are_there_where_they_are_kept(stacking: str) -> None:
    def tell(task: Task, local: Local) -> Done:
        assert local.valid is not None
        return Done(Update([local.data.weight.sum(), local.valid.weight.sum()]))

    valid = (2, 0, 4)
    executor = Executor(
        MODEL, {Task: tell}, CLASSES, stacker(made((5, 3, 6))), 1, stacking, stacker(made(valid)), valid
    )
    found = executor.run([Job(i, i, n, Task(), i) for i, n in enumerate((5, 3, 6))])
    assert [[int(v) for v in found[i].done.update.value] for i in range(3)] == [[5, 2], [3, 0], [6, 4]]


@pytest.mark.parametrize("stacking", ["auto", "never"])
def test_a_client_without_samples_learns_nothing_and_breaks_nothing(stacking: str) -> None:
    desk = Desk(train, (0, 0, 5), stacking=stacking)
    assert_alike(desk.run([desk.job(0, Task(WEIGHTS))])[0], WEIGHTS)  # alone
    found = desk.all(Task(WEIGHTS))
    assert_alike(found[0], WEIGHTS)
    assert not torch.equal(found[2]["fc1.weight"], WEIGHTS["fc1.weight"])


def test_data_is_made_once_for_the_same_stack() -> None:
    desk = Desk(train, SIZES)
    for _ in range(3):
        desk.all(Task(WEIGHTS))
    assert len(desk.asked) == 1


def test_data_that_outgrows_its_room_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = 4 * 4 * 4  # bytes of a client's x
    monkeypatch.setattr(samples, "KEPT", 5 * one)
    desk = Desk(train, (4,) * 8)
    for _ in range(2):
        for i in range(8):
            desk.run([desk.job(i, Task(WEIGHTS))])
    assert len(desk.asked) == 16  # only five fit, and the one needed next was always dropped last
    desk.run([desk.job(7, Task(WEIGHTS))])
    assert len(desk.asked) == 16
    monkeypatch.setattr(samples, "KEPT", one)  # larger than a quarter of the room: not kept at all
    for _ in range(2):
        desk.all(Task(WEIGHTS))
    assert len(desk.asked) == 18


def test_samples_of_a_fleet_that_has_too_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "KEPT", 8 * 4 * 4 * 4)  # bytes of x of eight clients
    for clients, made_times in ((8, 1), (9, 3)):
        desk = Desk(train, (4, 4), clients=clients)
        for _ in range(3):
            desk.all(Task(WEIGHTS))
        assert len(desk.asked) == made_times


@pytest.mark.skipif(not compiled.ready(), reason="needs the extra `fast`")
def test_products_of_samples_are_kept_as_long_as_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first layer in dual form: the second round reads what the first one computed, with the same bits."""
    model, sizes = build("mlp", (40,), 3, {"hidden": [5]}), (7, 3)
    monkeypatch.setattr(_first_layer, "DUAL", True)
    monkeypatch.setattr(stack, "FORMS", {"auto": 1})
    x = keys.normal(keys.key("x"), (2, 7, 40))
    data = Data(x, torch.arange(14).view(2, 7) % 3, (torch.arange(7) < torch.tensor(sizes)[:, None]).float())
    executor = Executor(model, {Task: train}, CLASSES, lambda places, capacity: data)
    jobs = [Job(i, i, sizes[i], Task(model.init(0)), 5 + i) for i in range(2)]
    first = {number: one.done.update.value for number, one in executor.run(jobs).items()}
    known = kept._KEPT[x.data_ptr()]
    assert known.known.tolist() == [7, 3]
    assert known.grams is not None
    torch.testing.assert_close(known.grams[0], x[0] @ x[0].T)
    again = {number: one.done.update.value for number, one in executor.run(jobs).items()}
    assert_alike(first, again)
    known.grams.zero_()  # they are read, not computed again
    other = {number: one.done.update.value for number, one in executor.run(jobs).items()}
    assert not torch.equal(other[0]["fc1.weight"], first[0]["fc1.weight"])


def test_what_is_known_of_samples_goes_when_they_change_or_go() -> None:
    x = keys.normal(keys.key("x"), (2, 7, 40))
    kept.keep(x)
    at = x.data_ptr()
    assert kept.grams_of(x, True)[0]
    assert kept.grams_of(x[:1], True)[0] == 0  # other samples at the same address
    assert kept.grams_of(x.view(2, 40, 7), True)[0] == 0  # products would take more memory than the samples
    x.mul_(2.0)
    assert kept.grams_of(x, True)[0] == 0
    del x
    gc.collect()
    assert at not in kept._KEPT


def test_what_no_worker_dropped_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers may count one stack twice: an empty cache ends the search for something to drop."""
    monkeypatch.setattr(samples, "KEPT", 1000)
    desk = Desk(train, (3,))
    desk.executor._train._bytes = 5000
    desk.run([desk.job(0, Task(WEIGHTS))])
    assert desk.asked


def test_threads_are_left_to_the_workers() -> None:
    Desk(train, (3,))
    assert torch.get_num_threads() == 1
    assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} <= {1}


@pytest.mark.parametrize("stacking", ["auto", "never"])
def test_a_program_that_returns_no_done_is_named(stacking: str) -> None:
    def careless(task: Task, local: Local) -> Any:
        return Update(local.data.weight.sum())

    with pytest.raises(BadInput, match=r"^test_execute\.careless must return Done, got Update\.") as caught:
        Desk(careless, (3, 4), stacking=stacking).all(Task())
    assert caught.value.code is Code.METHOD_OWN
