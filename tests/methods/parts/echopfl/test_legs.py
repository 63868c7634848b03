"""The samples of each leg, and what a client at work does with a newer model."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from potluck import compiled, keys
from potluck.fleet import Params
from potluck.methods.parts.echopfl.legs import portion, rebased


def test_the_portions_of_an_epoch_are_all_samples_once() -> None:
    weight = (torch.arange(12) < 9).float()
    for key in (None, keys.key("p")):
        seen: list[int] = []
        for k in range(4):
            part = portion(weight, torch.tensor(k), 4, key)
            seen += part.places[part.weight > 0].tolist()
        assert sorted(seen) == list(range(9))
        assert (seen == sorted(seen)) == (key is None)
        for counts in (weight, torch.ones(12)):  # nothing beyond them
            assert float(portion(counts, torch.tensor(4), 4, key).weight.sum()) == 0.0


@dataclass(frozen=True)
class Held:
    weights: Params
    version: Tensor
    base: Params
    last_layer: bool = False


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_a_stack_is_rebased_as_its_clients_are(restart: bool, shared: bool) -> None:
    """Client 1 has a newer model already; with `shared` all read the same note."""
    shapes, versions = {"w": (7, 9), "b": (3,)}, torch.tensor([[1, 0], [9, 0], [2, 0]])
    new, now, base = (
        {name: keys.normal(keys.key("rebase", n, name), (3, *shape)) for name, shape in shapes.items()}
        for n in range(3)
    )
    if shared:
        new = {name: value[0] for name, value in new.items()}

    def of(new: Params, now: Params, base: Params, version: Tensor) -> tuple[Params, Params, Tensor]:
        after = rebased(Held(now, version, base), Held(new, torch.tensor([5, 0]), {}), restart=restart)
        return after.weights, after.base, after.version

    with torch.no_grad():
        for given in (contextlib.nullcontext(), compiled.off()):
            with given:
                found = torch.func.vmap(of, in_dims=(None if shared else 0, 0, 0, 0))(new, now, base, versions)
            for k in range(3):
                mine = new if shared else {name: value[k] for name, value in new.items()}
                alone = of(mine, *({name: value[k] for name, value in one.items()} for one in (now, base)), versions[k])
                assert torch.equal(found[2][k], alone[2])
                for stack, one in zip(found[:2], alone[:2], strict=True):
                    assert all(torch.equal(stack[name][k], value) for name, value in one.items())
