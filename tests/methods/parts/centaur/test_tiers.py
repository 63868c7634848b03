"""FedProx and SCAFFOLD for either tier of Centaur, by hand and against autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from potluck import keys
from potluck.fleet import Data, Local, Params
from potluck.learn import Recipe
from potluck.methods import centaur
from potluck.methods.centaur import Config, Mine
from potluck.methods.parts.centaur import tiers
from potluck.methods.parts.centaur.handover import Handover
from potluck.methods.parts.centaur.partial import Fitted
from potluck.methods.parts.centaur.tiers import Merge, Term
from potluck.methods.parts.selection import EVERYTHING, everything
from potluck.models import build

MODEL = build("softmax", (3,), 2, {})
DATA = Data(keys.normal(keys.key("x"), (6, 3)), torch.tensor([0, 1, 0, 1, 1, 0]), torch.ones(6))
WEIGHTS = MODEL.init(1)


def gradient(weights: Params) -> Params:
    free = {name: value.clone().requires_grad_() for name, value in weights.items()}
    loss = F.cross_entropy(DATA.x @ free["fc.weight"].T + free["fc.bias"], DATA.y)
    return dict(zip(free, torch.autograd.grad(loss, list(free.values())), strict=True))


def some(seed: str) -> Params:
    return {name: keys.normal(keys.key(seed, name), value.shape) for name, value in WEIGHTS.items()}


def close(a: Params, b: Params) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-6, rtol=1e-5)


def trained(tier: str, cfg: Config, controls: tiers.Controls, mine: Mine | None) -> tuple[Params, Params, Mine]:
    """Two full-batch steps of a device or of an access point: the weights, the change of c_i, what it keeps."""
    state = centaur.State(WEIGHTS, controls)
    local = Local(MODEL, DATA, mine, keys.key(5), parcel=DATA)
    if tier == "device":
        how = Handover.of(0, here=True, again=False, storage=1e6)
        task = centaur.Collect.of(state, cfg, frozenset(WEIGHTS), 0, how)
        done = centaur.collect(replace(task, share=1.0, offline=-1, rule=EVERYTHING), local)
        return done.update.classifier, done.update.control, done.mine
    done = centaur.retrain(centaur.Retrain.of(state, cfg, -1), local)
    return done.update.weights, done.update.control, done.mine


@pytest.mark.parametrize("tier", ["device", "ap"])
def test_fedprox_steps(tier: str) -> None:
    """The gradient of mu/2 |w - w_received|^2 is added to every step."""
    lr, mu = 0.1, 0.7
    cfg = Config(recipe=Recipe(3, 6, lr), merge=Merge(mu=mu, **{tier: "fedprox"}))  # type: ignore[arg-type]
    w = WEIGHTS
    for _ in range(2):
        g = gradient(w)
        w = {name: w[name] - lr * (g[name] + mu * (w[name] - WEIGHTS[name])) for name in w}
    close(trained(tier, cfg, tiers.Controls(), None)[0], w)


@pytest.mark.parametrize("tier", ["device", "ap"])
def test_scaffold_steps_and_variates(tier: str) -> None:
    """Steps along g - c_i + c; c_i becomes c_i - c + (w_received - w) / (steps lr), option II."""
    lr, c, own = 0.1, some("c"), some("own")
    cfg = Config(recipe=Recipe(3, 6, lr, momentum=0.9), merge=Merge(**{tier: "scaffold"}))  # type: ignore[arg-type]
    w = WEIGHTS
    for _ in range(2):
        g = gradient(w)
        w = {name: w[name] - lr * (g[name] - own[name] + c[name]) for name in w}  # no momentum here
    controls = tiers.Controls(**{tier: c})
    weights, change, mine = trained(tier, cfg, controls, Mine(own, torch.zeros(6)))
    close(weights, w)
    new = {name: own[name] - c[name] + (WEIGHTS[name] - w[name]) / (2 * lr) for name in w}
    close(mine.control, new)
    close(change, {name: new[name] - own[name] for name in w})


def test_a_client_that_took_no_step_keeps_its_variate() -> None:
    own, c, none = some("own"), some("c"), torch.zeros(())
    idle = Fitted(WEIGHTS, tuple(WEIGHTS), torch.zeros(6), everything(DATA.weight), none, none, none, none)
    close(Term(0.0, c).new_own(WEIGHTS, own, idle, 0.1), own)


def test_the_servers_variate_moves_by_the_share_of_clients_that_came() -> None:
    before = tiers.begin(WEIGHTS, Merge(device="scaffold"))
    assert before.ap == {}
    a, b = some("a"), some("b")
    after = tiers.moved(before, "device", [a, b], clients=8)
    close(after.device, {name: 2 / 8 * (a[name] + b[name]) / 2 for name in a})
    assert tiers.moved(before, "device", [], clients=8) == before
