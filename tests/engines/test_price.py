"""Prices: MACs, bytes and memory of a task, by hand for small models, before anybody has run it."""

from __future__ import annotations

import gc
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import stacker
from torch import Tensor

from potluck import keys
from potluck.engines.price import Line, Prices, batch_of, blank, count, nbytes_of
from potluck.errors import BadInput
from potluck.fleet import Data, Done, Local
from potluck.learn import Recipe
from potluck.methods import centralised, fedavg, scaffold
from potluck.models import Model, build
from potluck.testing import Trial
from potluck.wire.codec import encode
from potluck.wire.gate import inspect, refusal


def home_of(model: Model, **parts: Any) -> Local:
    nothing = Data(torch.zeros(0, *model.shape), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    return Local(model, nothing, None, keys.key(0), **parts)


def train_task(model: Model, epochs: int = 1, batch: int = 8) -> fedavg.Train:
    return fedavg.Train(model.init(0), Recipe(epochs, batch, 0.1))


def data_of(model: Model, n: int) -> Data:
    draw = keys.rng("price", n)
    x = draw.normal(size=(n, *model.shape)).astype(np.float32)
    stacked = stacker([(x, draw.integers(0, model.classes, n))])([0], n)
    return Data(stacked.x[0], stacked.y[0], stacked.weight[0])


# Forward, gradient of the weights, and gradient of the inputs for every layer but the first.
DENSE = 2 * (20 * 5 + 5 * 3) + 5 * 3
CONV1, CONV2, HEAD = 8 * 8 * 9 * 1 * 2, 4 * 4 * 9 * 2 * 3, 3 * 2 * 2 * 3
SEPARABLE = 2 * 8 * 8 * 9 * 2 + 3 * (
    4 * 4 * 9 * 2 + 4 * 4 * 2 * 4 + 4 * 3
)  # the second convolution has a group per channel
BY_HAND = {
    "softmax": (build("softmax", (20,), 3, {}), 2 * 20 * 3),
    "mlp": (build("mlp", (20,), 3, {"hidden": [5]}), DENSE),
    "cnn": (build("cnn", (1, 8, 8), 3, {"channels": [2, 3]}), 2 * CONV1 + 3 * CONV2 + 3 * HEAD),
    "compact": (build("compact", (1, 8, 8), 3, {"width": 2, "blocks": 1, "norm": "none", "dropout": 0.0}), SEPARABLE),
}


@pytest.mark.parametrize("name", list(BY_HAND))
@pytest.mark.parametrize("epochs", [1, 3])
def test_training_macs_by_hand(name: str, epochs: int) -> None:
    """Per sample and epoch, also for fewer samples than a batch and for a last batch that is not full."""
    model, per_sample = BY_HAND[name]
    price = count(fedavg.train, train_task(model, epochs), home_of(model))
    for n in (1, 3, 8, 9, 16, 20, 1000):
        assert price.macs.of(n) == epochs * n * per_sample


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
def test_the_batch_does_not_change_the_work_of_a_sample(batch: int) -> None:
    model, per_sample = BY_HAND["mlp"]
    price = count(fedavg.train, train_task(model, batch=batch), home_of(model))
    assert [price.macs.of(n) for n in (1, 7, 100)] == [per_sample * n for n in (1, 7, 100)]


def test_no_samples_no_work() -> None:
    model, _ = BY_HAND["mlp"]
    assert count(fedavg.train, train_task(model), home_of(model)).macs.of(0) == 0
    assert Line(10.0, 5.0, 4).of(0) == 0.0  # never below nothing


@pytest.mark.parametrize("name", list(BY_HAND))
def test_bytes_up_are_those_of_the_encoded_update(name: str) -> None:
    model, _ = BY_HAND[name]
    task, home = train_task(model), home_of(model)
    price = count(fedavg.train, task, home)
    for n in (3, 8, 21):
        update = fedavg.train(task, replace(home, data=data_of(model, n))).update
        assert price.up.of(n) == len(encode(update))
        assert price.handoff.of(n) == 0
        assert refusal(update, inspect(update), price.expected, n, 1 << 20) is None


def test_an_update_that_grows_with_the_data() -> None:
    model, _ = BY_HAND["softmax"]
    home = home_of(model)
    price = count(centralised.hand, centralised.Hand(), home)
    for n in (1, 2, 9, 100, 1234):
        update = centralised.hand(centralised.Hand(), replace(home, data=data_of(model, n))).update
        assert abs(price.up.of(n) - len(encode(update))) < 64  # a header's digits and padding
        assert refusal(update, inspect(update), price.expected, n, 1 << 20) is None
        assert refusal(update, inspect(update), price.expected, n - 1, 1 << 20) is not None
    assert price.macs.of(100) == 0


@dataclass(frozen=True)
class Send:
    value: Tensor
    times: int = 1


@dataclass(frozen=True)
class Back:
    value: Any
    examples: Any = None


def test_a_hand_off_is_counted_apart() -> None:
    model, _ = BY_HAND["softmax"]

    def give(task: Send, local: Local) -> Done:
        return Done(Back(task.value), handoff=local.data.x.repeat(task.times, 1))

    price = count(give, Send(torch.zeros(2), 3), home_of(model))
    assert price.up.of(10) == len(encode(Back(torch.zeros(2))))
    assert abs(price.handoff.of(10) - len(encode(torch.zeros(30, 20)))) < 64


def test_an_update_may_hold_plain_numbers_that_differ() -> None:
    model, _ = BY_HAND["softmax"]

    def tell(task: Send, local: Local) -> Done:
        return Done(Back(float(local.data.x.sum()), examples=int(local.data.weight.sum())))

    home = home_of(model)
    price = count(tell, Send(torch.zeros(2)), home)
    update = tell(Send(torch.zeros(2)), replace(home, data=data_of(model, 123))).update
    assert refusal(update, inspect(update), price.expected, 123, 1000) is None
    assert (
        str(refusal(update, inspect(update), price.expected, 122, 1000)) == "123 examples declared, the client has 122"
    )


@pytest.mark.parametrize("name", list(BY_HAND))
def test_memory_holds_weights_gradients_and_the_batch(name: str) -> None:
    model, _ = BY_HAND[name]
    weights = nbytes_of(model.init(0))
    last = 0
    for batch in (1, 4, 16, 64):
        memory = count(fedavg.train, train_task(model, batch=batch), home_of(model)).memory
        batch_bytes = batch * 4 * int(np.prod(model.shape))
        assert memory > 2 * weights + batch_bytes
        assert memory > last
        last = memory


def test_memory_of_softmax_regression_is_near_the_hand_count() -> None:
    """Weights three times (as sent, trained, their gradient), the batch twice (at rest, gathered), and little more."""
    model = build("softmax", (1000,), 2, {})
    weights, batch = nbytes_of(model.init(0)), 4 * 4 * 1000
    memory = count(fedavg.train, train_task(model, batch=4), home_of(model)).memory
    assert 3 * weights + 2 * batch <= memory < 3.1 * weights + 2.1 * batch


def test_memory_counts_what_was_sent_once() -> None:
    """A view of the task's tensors is no second copy."""
    model, _ = BY_HAND["softmax"]

    def look_only(task: Send, local: Local) -> Done:
        return Done(Back((local.data.x @ task.value.t()).sum()))

    value = torch.zeros(1000, 20)
    memory = count(look_only, Send(value), home_of(model)).memory
    product, sample = 4 * 1000, 4 * 20
    assert nbytes_of(value) + product + sample <= memory < 1.2 * nbytes_of(value)


def test_memory_includes_private_state_and_what_the_partner_gave() -> None:
    model, _ = BY_HAND["mlp"]

    def keep(task: Send, local: Local) -> Done:
        return Done(Back(task.value))

    bare = count(keep, Send(torch.zeros(2)), home_of(model)).memory
    with_mine = count(keep, Send(torch.zeros(2)), replace(home_of(model), mine={"c": torch.zeros(500)})).memory
    with_parcel = count(keep, Send(torch.zeros(2)), home_of(model, parcel=torch.zeros(300))).memory
    assert with_mine - bare == 4 * 500
    assert with_parcel - bare == 4 * 300


def test_temporary_tensors_count_only_while_they_live() -> None:
    model, _ = BY_HAND["softmax"]

    def one_after_another(task: Send, local: Local) -> Done:
        total = torch.zeros(())
        for _ in range(10):
            total = total + torch.ones(1000).sum()
        return Done(Back(total))

    def at_once(task: Send, local: Local) -> Done:
        return Done(Back(sum(value.sum() for value in [torch.ones(1000) for _ in range(10)])))

    slim, wide = (count(p, Send(torch.zeros(1)), home_of(model)).memory for p in (one_after_another, at_once))
    assert 4_000 < slim < 9_000
    assert wide > 40_000


def test_counting_leaves_no_trace() -> None:
    model, _ = BY_HAND["mlp"]
    task = train_task(model)
    before = {name: value.clone() for name, value in task.weights.items()}
    state = torch.get_rng_state()
    count(fedavg.train, task, home_of(model))
    assert all(torch.equal(task.weights[name], before[name]) for name in before)
    assert torch.equal(state, torch.get_rng_state())


class Counted:
    """Prices whose programs note how often they are run."""

    def __init__(self) -> None:
        self.runs = 0
        self.prices = Prices({Send: self.program})

    def program(self, task: Send, local: Local) -> Done:
        self.runs += 1
        carried = torch.zeros(1) if local.parcel is None else local.parcel
        return Done(Back((task.value, carried)))


def test_alike_tasks_are_counted_once() -> None:
    model, _ = BY_HAND["softmax"]
    counted, home = Counted(), home_of(model)
    same = Send(torch.zeros(3))
    first = counted.prices.of(same, home)
    assert counted.prices.of(same, home) is first
    assert counted.prices.of(Send(torch.ones(3)), home) is first
    assert counted.runs == 2  # one batch and two


@pytest.mark.parametrize(
    "task", [Send(torch.zeros(4)), Send(torch.zeros(3), 2), Send(torch.zeros(3, dtype=torch.float64))]
)
def test_unlike_tasks_are_counted_anew(task: Send) -> None:
    model, _ = BY_HAND["softmax"]
    counted, home = Counted(), home_of(model)
    counted.prices.of(Send(torch.zeros(3)), home)
    counted.prices.of(task, home)
    assert counted.runs == 4


def test_one_task_for_clients_with_unlike_parcels_and_private_state() -> None:
    model, _ = BY_HAND["softmax"]
    counted, home = Counted(), home_of(model)
    task = Send(torch.zeros(3))
    prices = [
        counted.prices.of(task, replace(home, parcel=parcel)).up.of(5)
        for parcel in (None, torch.zeros(10), torch.zeros(1000), None)
    ]
    assert prices[0] == prices[3] < prices[1] < prices[2]
    counted.prices.of(task, replace(home, mine=torch.zeros(2)))
    assert counted.runs == 8


def test_private_state_of_a_real_method_is_priced() -> None:
    model, per_sample = BY_HAND["mlp"]
    config = scaffold.Config(Recipe(1, 4))
    weights = model.init(0)
    state = scaffold.start(weights, config)
    task = scaffold.Train(state.weights, state.control, Recipe(1, 4, 0.1))
    price = count(scaffold.train, task, replace(home_of(model), mine=scaffold.private(weights, config)))
    assert price.macs.of(12) == 12 * per_sample
    assert price.memory > 5 * nbytes_of(weights)  # x, c, c_i, y and the gradient


def test_blank_data_has_the_shapes_asked_for() -> None:
    like = Data(
        torch.ones(3, 7, 2), torch.ones(3, dtype=torch.int64), torch.ones(3), torch.ones(3, 7), torch.ones(3).long()
    )
    made = blank(like, 5)
    assert (made.x.shape, made.y.shape, made.weight.tolist()) == ((5, 7, 2), (5,), [1.0] * 5)
    assert made.t is not None
    assert made.length is not None
    assert (made.t.shape, made.length.tolist()) == ((5, 7), [7] * 5)  # the longest series: the most it can cost
    assert float(made.x.sum()) == 0.0


def test_counting_does_not_load_a_compiler() -> None:
    """It would take longer than many a run (in a process of its own: here some other test may have loaded it)."""
    told = (
        "import sys, torch; from torch.utils.flop_counter import FlopCounterMode; from potluck._peak import Peak\n"
        "with FlopCounterMode(display=False) as flops, Peak() as peak: torch.ones(2, 3) @ torch.ones(3, 4)\n"
        "print(flops.get_total_flops(), peak.peak, 'torch._dynamo' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    flops, peak, loaded = found.stdout.split()
    assert (flops, loaded) == ("48", "False")
    assert int(peak) == 4 * (6 + 12 + 8)


@dataclass(frozen=True)
class _Recipe:
    batch: int = 7


@dataclass(frozen=True)
class _Nested:
    recipe: _Recipe
    batch: int = 3


@dataclass(frozen=True)
class _Flat:
    batch: int = 3


def test_the_batch_of_a_task_is_that_of_its_recipe_before_its_own_and_otherwise_1() -> None:
    assert batch_of(_Nested(_Recipe())) == 7
    assert batch_of(_Flat()) == 3
    assert batch_of(_Flat(0)) == 1
    assert batch_of(object()) == 1


def test_a_program_that_returns_no_done_is_named_before_it_is_run() -> None:
    def careless(task: _Flat, local: Local) -> Any:
        return None

    with pytest.raises(BadInput, match=r"^test_price\.careless must return Done, got NoneType\."):
        count(careless, _Flat(), home_of(build("softmax", (4,), 3)))


def test_memory_does_not_depend_on_when_cycles_are_collected() -> None:
    """A gradient of a gradient has cycles: whether they are gone yet must not decide the peak."""
    trial, threshold = Trial("perfedavg"), gc.get_threshold()
    try:
        found = set()
        for seldom in (1, 50, 100, 200, 300, 700, 10_000):
            gc.set_threshold(seldom)
            found |= {task.memory for task in trial.run(rounds=1).tasks}
    finally:
        gc.set_threshold(*threshold)
    assert len(found) == 1


def test_effort_counts_what_the_client_carries_out_and_grows_with_the_samples():
    """By hand: a product of (n, 3) and (3, 2) per batch, and the sum of its elements."""
    from potluck._peak import Effort

    with Effort() as found:
        x = torch.ones(4, 3)
        (x.t().t() @ torch.ones(3, 2)).sum()  # the two views are free
    assert found.ops == 4  # two ones, a product, a sum
    assert found.recorded == 0
    assert found.moved == 4 * (12 + 6 + (12 + 6 + 8) + (8 + 1))
    weight = torch.ones(3, 2, requires_grad=True)
    with Effort() as found:
        (torch.ones(4, 3) @ weight).sum().backward()
    assert found.recorded == 3  # the product, the sum and the one that the way back begins with
    assert found.ops >= 2


def test_effort_counts_large_new_results_only():
    from potluck._peak import LARGE, Effort

    small, large = LARGE // 4 - 1, LARGE // 4
    with Effort() as found:
        torch.zeros(small)
        assert found.fresh == 0
        x = torch.zeros(large)
        assert found.fresh == LARGE
        x.add_(1.0)  # in place
        torch.add(x, x, out=x)
        x.view(2, -1)
        assert found.fresh == LARGE
        x * 2
    assert found.fresh == 2 * LARGE
