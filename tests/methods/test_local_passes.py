"""Local passes as the engine counts them, against the samples in the gradient steps that really ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from potluck import _batches, _descent, learn, methods
from potluck.fleet import Data
from potluck.methods import apfl, fedala, fedcfc, perfedavg, pfedme
from potluck.methods.parts.centaur import partial
from potluck.testing import Trial
from potluck.testing.trial import Ended

QUICK = ("fedavg", "echopfl", "clusterfl", "fedcfc", "fedconv", "centaur")
# These train on the server, or select the samples to train on while they run.
ELSEWHERE = {"centralised", "centralised_clusters", "serveralone"}
SETTINGS: dict[str, dict[str, Any]] = {
    name: {"pretrain": {"epochs": 0}} for name in ("fedcfc", "lotteryfl", "balancefl", "fedbits")
}
SETTINGS["fedala"] = {"share": 1.0}  # a share of a few samples is rounded
SELECT = {"centaur", "ucd"}
EVERY = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.quick] if name in QUICK else [])
        for name in methods.METHODS
        if name not in ELSEWHERE | SELECT
    ],
)


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The samples in every gradient step, by the batch that the step got. Pricing does not count."""
    found: list[float] = []

    def noted(batch: Data) -> None:
        if _batches._VISITS.get() is None:
            found.append(float((batch.weight > 0).sum()))

    def counted(slope_of: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(objective: Any, moving: Any, values: Any, fixed: Any, batch: Data, key: Any) -> Any:
            noted(batch)
            return slope_of(objective, moving, values, fixed, batch, key)

        return wrapped

    for module in (_descent, learn, partial, apfl, fedala, perfedavg, pfedme):
        monkeypatch.setattr(module, "slope_of", counted(module.slope_of))

    def taken(*given: Any) -> Data:
        batch = learn.take(*given)
        noted(batch)
        return batch

    monkeypatch.setattr(fedcfc, "take", taken)
    return found


def visited(ended: Ended) -> float:
    """What the records say: passes of all tasks times the samples that the clients hold."""
    clients = ended.session.fleet.clients

    def rows(client: str) -> int:
        profile = clients[client]
        return profile.samples or clients[str(profile.partner)].samples

    return sum(task.passes * rows(task.client) for task in ended.tasks if task.outcome == "accepted")


def run_of(name: str, rounds: int = 2, server: float = 0.0, **method: Any) -> Ended:
    """A run of one client after another, by the textbook loop: the batches are then what a client really has."""
    with learn.plain():
        return Trial(name).run(rounds, method=method, run={"stacking": "never"}, server={"share": server})


@EVERY
def test_passes_are_the_samples_that_gradient_steps_visited(name: str, stepped: list[float]) -> None:
    ended = run_of(name, server=0.2 if name == "fedmd" else 0.0, **SETTINGS.get(name, {}))
    # What runs next to the others may be computed before it arrives.
    early = sum(flight.visits * flight.leg / flight.legs for flight in ended.session.fleet._flights.values())
    assert stepped
    assert visited(ended) + early == pytest.approx(sum(stepped))


def test_two_epochs_of_fedavg_are_two_passes() -> None:
    tasks = run_of("fedavg", recipe={"epochs": 2}).tasks
    assert {task.passes for task in tasks} == {2.0}


@pytest.mark.parametrize("legs", [1, 2, 3])
def test_an_epoch_in_legs_is_one_pass(legs: int) -> None:
    ended = run_of("echopfl", rounds=1, recipe={"epochs": 3, "batch": 4}, legs=legs)
    assert [task.passes for task in ended.tasks if task.outcome == "accepted"] == pytest.approx(
        [3.0] * sum(task.outcome == "accepted" for task in ended.tasks), rel=1e-4
    )


def test_what_is_chosen_on_the_way_counts_by_its_expected_share(stepped: list[float]) -> None:
    everything = run_of(
        "centaur", recipe={"epochs": 2}, selection={"alpha": 0.0, "beta": 0.0}, connection={"base": 1.0}
    )
    assert visited(everything) == pytest.approx(sum(stepped))
    stepped.clear()
    some = run_of("centaur", rounds=6, recipe={"epochs": 4})
    assert visited(some) == pytest.approx(sum(stepped), rel=0.25)
    assert visited(some) < visited(run_of("centaur", rounds=6, recipe={"epochs": 4}, selection={"alpha": 0.0}))


def test_a_batch_that_is_left_out_was_not_visited() -> None:
    data = Data(torch.zeros(5, 1), torch.zeros(5, dtype=torch.int64), torch.ones(5))
    with learn.visits() as seen:
        _, counts = learn.batches(data, 2, 3, torch.tensor(1))
        assert sum(seen) == 15
        learn.at_least(counts, 2)
    assert sum(seen) == 12


def test_the_hessian_free_form_takes_two_gradients_more() -> None:
    passes = [{task.passes for task in run_of("perfedavg", form=form).tasks} for form in ("first", "hessian-free")]
    assert passes == [{1.0 + 2 * 2}, {1.0 + 4 * 2}]  # one for the personal step, and two epochs
