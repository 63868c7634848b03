"""Tuning on the server rows. Tests numbered 3 are an acceptance test of FedConv's specification."""

from __future__ import annotations

import pytest
import torch
from helpers.submodels import kernels_of, model_of, rows_of

from potluck import keys
from potluck.fleet import Params
from potluck.methods.parts.submodels import kernels, tuning
from potluck.methods.parts.submodels.making import Compression
from potluck.methods.parts.submodels.widths import cut, leading, plan_of
from potluck.models import build
from potluck.tasks import Classification


@pytest.mark.parametrize("name", ["mlp", "depth"])
def test_3_tuning_moves_kernels_only(name: str) -> None:
    model = model_of(name)
    weights, plan = model.init(0), plan_of(model)
    before = {n: v.clone() for n, v in weights.items()}
    rows = tuning.divided(rows_of(model), keys.key(0))
    own = kernels_of(model, weights, 0.5)
    (tuned,) = tuning.tune(
        model, lambda free, _: kernels.compress(weights, free, plan, 0.5), [own], [], rows,
        rates=[0.01] * 2, batch=8, key=keys.key(0), take="last",
    )  # fmt: skip
    assert any(not torch.equal(tuned.free[n], own[n]) for n in own)
    client = cut(weights, plan, leading(plan, 0.5))
    kept_client = {n: v.clone() for n, v in client.items()}
    tuning.tune(
        model, lambda free, sub: kernels.dilate(sub, free, weights), [own, own], [client, client], rows,
        rates=[0.01], batch=8, key=keys.key(0),
    )  # fmt: skip
    assert all(torch.equal(weights[n], before[n]) for n in weights)
    assert all(torch.equal(client[n], kept_client[n]) for n in client)


def test_3_members_tuned_together_are_as_tuned_alone() -> None:
    model = model_of("mlp")
    weights, plan = model.init(0), plan_of(model)
    rows = tuning.divided(rows_of(model), keys.key(0))
    subs = [cut(model.init(seed), plan, leading(plan, 0.5)) for seed in (1, 2)]
    own = kernels_of(model, weights, 0.5)

    def tuned(chosen: list[Params]) -> Params:
        """The kernels of the last member."""
        return tuning.tune(
            model, lambda free, sub: kernels.dilate(sub, free, weights), [own] * len(chosen), chosen, rows,
            rates=[0.01] * 2, batch=8, key=keys.key(0), take="last",
        )[-1].free  # fmt: skip

    both, alone = tuned(subs), tuned(subs[1:])
    for name in own:
        torch.testing.assert_close(both[name], alone[name], atol=1e-4, rtol=1e-3)


def test_3_the_kept_epoch_is_never_worse_on_validate() -> None:
    model = model_of("mlp")
    weights, plan = model.init(0), plan_of(model)
    rows = tuning.divided(rows_of(model), keys.key(0))
    own = kernels_of(model, weights, 0.5)
    (tuned,) = tuning.tune(
        model, lambda free, _: kernels.compress(weights, free, plan, 0.5), [own], [], rows,
        rates=[5.0] * 2, batch=8, key=keys.key(0),
    )  # fmt: skip
    assert tuned.best >= tuned.start


def test_classes_without_a_server_row_are_named() -> None:
    rows = tuning.divided(rows_of(build("mlp", (4,), 2, {})), keys.key(0))
    assert tuning.lacking(rows, Classification(classes=2)) == ()
    (notice,) = tuning.lacking(rows, Classification(classes=4))
    assert "class 2, 3" in notice


def test_clients_of_a_width_take_turns_on_one_set_of_kernels() -> None:
    """With two equal clients a turn each is as many steps of one client alone."""
    model = model_of("mlp")
    weights, plan = model.init(0), plan_of(model)
    own = kernels_of(model, weights, 0.5, noise=0.01)
    client = cut(model.init(1), plan, leading(plan, 0.5))
    rows = tuning.divided(rows_of(model), keys.key(0))
    found = [
        tuning.tune(
            model, lambda free, sub: kernels.dilate(sub, free, weights), [own], [client] * count, rows,
            rates=[0.01] * 2, batch=8, key=keys.key(0), take="last",
        )
        for count in (1, 2)
    ]  # fmt: skip
    assert [len(one) for one in found] == [1, 2]
    for name, value in found[0][0].free.items():
        for other in found[1]:
            torch.testing.assert_close(other.free[name], value)


def test_an_epoch_is_chosen_by_loss_or_by_accuracy() -> None:
    found, best = torch.tensor([[0.5, -1.0], [0.6, -3.0]]), torch.tensor([[0.6, -2.0], [0.5, -2.0]])
    assert tuning._better(found, best, "loss").tolist() == [True, False]
    assert tuning._better(found, best, "accuracy").tolist() == [False, True]
    assert tuning._better(found, best, "last").tolist() == [True, True]


def test_epochs_between_two_looks_are_not_chosen_from() -> None:
    """With a look every second epoch of three, the second and the last are looked at, and the steps are the same."""
    model = model_of("mlp")
    weights, plan = model.init(0), plan_of(model)
    rows, own = tuning.divided(rows_of(model), keys.key(0)), kernels_of(model, weights, 0.5)
    seen: list[int] = []
    real = tuning._better

    def spy(found: torch.Tensor, best: torch.Tensor, take: str) -> torch.Tensor:
        seen.append(len(found))
        return real(found, best, take)

    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "_better", spy)
        for look in (1, 2):
            seen.clear()
            how = {"rates": [0.01] * 3, "batch": 8, "key": keys.key(0), "take": "last", "look": look}
            found += tuning.tune(model, Compression(weights, plan, 0.5), [own], [], rows, **how)  # type: ignore[arg-type]
            assert len(seen) == (3 if look == 1 else 2)
    assert all(torch.equal(found[0].free[name], found[1].free[name]) for name in own)
