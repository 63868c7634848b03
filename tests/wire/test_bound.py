"""Bounded influence: what counts as a change, how large it may be, and that nothing else is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from potluck.engines.chunks import Job
from potluck.engines.execute import Executor
from potluck.fleet import Arrival, Data, Done, Local, Lost, Params
from potluck.models import build
from potluck.wire.bound import FEW, ROUNDS, WINDOW, Bound, Changed, Place, sizes_of, stacked_sizes, usual


@dataclass(frozen=True)
class Task:
    weights: Params
    control: Params


@dataclass(frozen=True)
class Update:
    weights: Params
    examples: Tensor
    version: Tensor
    steps: Tensor


@dataclass(frozen=True)
class Steps:
    BOUNDED: ClassVar[dict[str, str]] = {"control": "", "vector": "weights"}
    control: Params
    vector: Params
    weights: Params


BASE = {"w": torch.full((4,), 2.0), "b": torch.full((2, 1), -1.0)}
TASK = Task(BASE, BASE)


def update(size: float, sign: float = 1.0) -> Update:
    """An update whose change has this root mean square."""
    weights = {name: value + sign * size for name, value in BASE.items()}
    return Update(weights, torch.tensor(7.0), torch.tensor([3.0, 900.0]), torch.arange(3))


def held(bound: Bound, given: Update, client: str = "liar") -> tuple[Update, str | None]:
    """A single update that was received, and what was said of it."""
    said: list[str] = []
    bound.said = lambda arrival, what: said.append(what)
    bound.expect(1, TASK, None, given)
    return bound.one(Arrival(client, given, 1, 0.0, 1.0)).update, said[0] if said else None


def gathered(bound: Bound, *updates: Update) -> list[float]:
    """The sizes of the changes of updates that came together."""
    for number, one in enumerate(updates):
        bound.expect(number, TASK, None, one)
    arrivals = [Arrival(f"s{number}", one, number, 0.0, 1.0) for number, one in enumerate(updates)]
    return [sizes_of(arrival.update, TASK)[0] for arrival in bound.all(arrivals)]


def test_a_change_is_the_difference_to_what_was_sent() -> None:
    assert sizes_of(update(0.5), TASK) == pytest.approx((0.5,))
    other = Steps({"w": torch.full((4,), 3.0)}, {"w": torch.full((4,), 2.5)}, BASE)
    assert sizes_of(other, TASK) == pytest.approx((3.0, 0.5))  # control is a change itself; weights are not bounded


def test_a_change_far_above_the_usual_size_is_scaled_down_and_nothing_else_is_touched() -> None:
    bound = Bound(3.0)
    for number in range(FEW):
        assert held(bound, update(0.1), f"s{number}")[1] is None
    liar, said = held(bound, update(5.0, sign=-1.0))
    assert said == "the change of weights is 16.7 times as large as allowed"
    for name, value in BASE.items():
        assert torch.allclose(liar.weights[name], value - 0.3)
    assert (liar.examples, liar.version.tolist(), liar.steps.tolist()) == (7.0, [3.0, 900.0], [0, 1, 2])
    assert held(bound, update(0.29))[1] is None


def test_with_few_updates_a_change_counts_at_most_as_much_as_the_weights_it_changes() -> None:
    first, said = held(Bound(3.0), update(100.0))
    assert said is not None
    assert sizes_of(first, TASK) == pytest.approx(((4 * 2.0**2 + 2) ** 0.5 / 6**0.5,))


def test_the_largest_numbers_leave_finite_ones() -> None:
    bound = Bound(3.0)
    for number in range(FEW):
        held(bound, update(0.1), f"s{number}")
    huge = update(3e38, sign=-1.0)
    kept, _ = held(bound, huge)
    for name, value in BASE.items():
        assert torch.isfinite(kept.weights[name]).all()
        assert (kept.weights[name] - value).abs().max() <= 0.31


def test_no_bound_changes_nothing() -> None:
    given = update(1e6)
    assert held(Bound(0.0), given)[0] is given


def test_updates_that_are_gathered_are_compared_with_each_other() -> None:
    bound = Bound(3.0)
    sizes = [50.0, 1.0, 1.1, 0.9, 1.2]
    for _ in range(3):  # in the first round as in any other, and in any order
        assert gathered(bound, *map(update, sizes)) == pytest.approx([3.6, 1.0, 1.1, 0.9, 1.2], rel=1e-4)
        assert gathered(bound, *map(update, reversed(sizes))) == pytest.approx([1.2, 0.9, 1.1, 1.0, 3.6], rel=1e-4)


@given(
    rounds=st.lists(st.lists(st.floats(0.01, 4.0), min_size=3, max_size=9), min_size=1, max_size=4),
    times=st.sampled_from([0.0, 1.2, 3.0]),
)
def test_a_round_within_the_bound_is_noted_as_if_its_updates_were_looked_at_one_by_one(
    rounds: list[list[float]], times: float
) -> None:
    whole, apart = Bound(times), Bound(times)
    for sizes in rounds:
        updates = [update(size) for size in sizes]
        measured = [sizes_of(one, TASK) for one in updates]
        before = whole.snapshot()
        if whole.within(updates[0], TASK, measured):
            assert gathered(apart, *updates) == pytest.approx(sizes, rel=1e-4)
        else:
            assert whole.snapshot() == before  # nothing is noted
            gathered(apart, *updates)
            gathered(whole, *updates)
        assert whole.snapshot() == apart.snapshot()


def test_those_who_still_learn_when_others_have_settled_keep_their_share() -> None:
    """Late in training most changes are small. A tenth of the people, whom the model does not fit, change much more."""
    bound = Bound(1.5)
    for _ in range(3):
        gathered(bound, *[update(1.0)] * 20)
    late = [0.1] * 18 + [0.8, 0.8]
    for _ in range(ROUNDS - 2):
        assert gathered(bound, *map(update, late)) == pytest.approx(late, rel=1e-4)
    for _ in range(ROUNDS):  # in the end it is the last ten rounds that say what is usual
        held_back = gathered(bound, *map(update, late))
    assert held_back == pytest.approx([0.1] * 18 + [0.15, 0.15], rel=1e-3)


@pytest.mark.parametrize("liars", [1, 4])
def test_up_to_a_fifth_of_the_clients_cannot_raise_the_bound(liars: int) -> None:
    bound = Bound(1.5)
    for size in (10.0, 100.0, 1000.0, 10.0):
        assert max(gathered(bound, *map(update, [size] * liars + [1.0] * (20 - liars)))) <= 1.51


def test_a_client_that_sends_often_has_one_vote() -> None:
    bound = Bound(1.5)
    for number in range(FEW):
        held(bound, update(0.1), f"s{number}")
    for _ in range(3 * WINDOW):
        assert sizes_of(held(bound, update(50.0))[0], TASK)[0] <= 0.151


def test_losses_and_waiting_pass() -> None:
    bound, lost = Bound(3.0), Lost("s00", 1, 2.0, "went away")
    assert bound.one(lost) is lost
    assert bound.one(None) is None


@given(st.lists(st.floats(1e-3, 1e3), min_size=FEW, max_size=30), st.floats(1.0, 10.0))
def test_no_accepted_change_is_above_the_bound(given_sizes: list[float], times: float) -> None:
    bound, accepted = Bound(times), []
    for number, size in enumerate(given_sizes):
        kept, said = held(bound, update(size), f"s{number}")
        (now,) = sizes_of(kept, TASK)
        if number >= FEW:
            assert now <= times * usual(accepted) * 1.001
            assert (said is None) == (now == pytest.approx(size, rel=1e-3))
        accepted.append(now)


def test_a_saved_bound_goes_on_where_it_was() -> None:
    one, other = Bound(2.0), Bound(2.0)
    for number in range(3 * WINDOW):
        held(one, update(0.1 + number % 7 / 10), f"s{number % 9}")
    other.restore(one.snapshot())
    assert torch.equal(held(one, update(9.0))[0].weights["w"], held(other, update(9.0))[0].weights["w"])


def test_sizes_of_a_stack_are_those_of_its_updates() -> None:
    @dataclass(frozen=True)
    class Ask:
        weights: Params

    @dataclass(frozen=True)
    class Answer:
        weights: Params
        count: Tensor

    def work(task: Ask, local: Local) -> Done:
        drawn = local.data.x.sum()
        return Done(Answer({name: value + drawn for name, value in task.weights.items()}, torch.tensor(1.0)))

    model = build("softmax", (3,), 2, {})
    weights = {name: value.detach() for name, value in model.module.state_dict().items()}

    def data(places: object, capacity: int) -> Data:
        x = torch.arange(3.0)[:, None, None].expand(3, capacity, 3)
        return Data(x.clone(), torch.zeros(3, capacity, dtype=torch.long), torch.ones(3, capacity))

    executor = Executor(model, {Ask: work}, {"Ask": Ask, "Answer": Answer}, data)
    jobs = [Job(i, i, 1, Ask(weights), 5) for i in range(3)]
    for i, result in executor.run(jobs).items():
        assert result.seen.sizes == pytest.approx((3.0 * i,), abs=1e-6)
        assert result.seen.sizes == pytest.approx(sizes_of(result.done.update, jobs[i].task), abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(0.0, 3.0)), max_size=80), st.booleans())
def test_single_updates_are_bounded_like_a_group_of_one(came: list[tuple[int, float]], declared: bool) -> None:
    quick, slow = Bound(3.0), Bound(3.0)
    for number, (client, size) in enumerate(came):
        one = update(size)
        given = Steps({}, one.weights, BASE) if declared and number % 3 else one  # two kinds, a field without tensors
        for bound in (quick, slow):
            bound.expect(number, TASK, None, given)
        arrival = Arrival(f"s{client}", given, number, 0.0, 1.0)
        found, wanted = quick.one(arrival), slow.all([arrival])[0]
        assert (found is arrival) == (wanted is arrival)
        assert all(torch.equal(a, b) for a, b in zip(_values(found.update), _values(wanted.update), strict=True))
        assert quick.snapshot() == slow.snapshot()


def _values(given: Update | Steps) -> list[Tensor]:
    return [*given.weights.values(), *(given.vector.values() if isinstance(given, Steps) else ())]


@pytest.mark.parametrize("shape", [(1, 40), (2, 7), (3, 5, 11), (17, 1), (31, 33, 9), (100, 257)])
@pytest.mark.parametrize("shared", [True, False])
def test_sizes_are_the_same_a_few_rows_at_a_time(
    shape: tuple[int, ...], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(1)
    values = [torch.randn(shape, generator=draw), torch.randn(shape[0], 3, generator=draw), torch.ones(shape[0])]
    began = [torch.randn(shape[1:] if shared else shape, generator=draw)]
    fields = [Changed("weights", ((Place(0), Place(0)), (Place(1), None), (Place(2), None)))]
    wanted = stacked_sizes(fields, values, began, [shared])
    for room in (1, 50, 1000):
        monkeypatch.setattr("potluck.wire.bound.AT_ONCE", room)
        assert stacked_sizes(fields, values, began, [shared]) == wanted
    rows = [torch.linalg.vector_norm(part.flatten(1), dim=1).square() for part in (values[0] - began[0], values[1])]
    mean = torch.stack(rows).sum(0) / (values[0][0].numel() + 3)
    assert [size for (size,) in wanted] == mean.sqrt().tolist()
