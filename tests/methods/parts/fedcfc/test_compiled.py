"""FedCFC's round by compiled kernels: the numbers of the loop, for each term, head, variant and depth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.func import vmap

from potluck import compiled, keys, methods
from potluck.fleet import Data, Local
from potluck.learn import plain
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import depths
from potluck.methods.parts.fedcfc.quantised import packed
from potluck.models import build
from potluck.tasks import Regression
from potluck.wire.codec import flatten

METHOD = methods.load("fedcfc")
SIZES: dict[str, Any] = {"hidden": 4, "backbone": 6, "head": 6}
PLAIN = {"terms.lambda_d": 0.0, "terms.lambda_m": 0.0, "terms.lambda_a": 0.0}
# λa 1 and v 9: the hinge is in force. CUM 0.01: R_m is in force.
CASES: dict[str, dict[str, Any]] = {
    "first order": PLAIN,
    "direction": {**PLAIN, "terms.lambda_d": 0.6},
    "magnitude": {**PLAIN, "terms.lambda_m": 0.6},
    "activity": {**PLAIN, "terms.lambda_a": 1.0, "terms.v": 9.0},
    "activity reached": {**PLAIN, "terms.lambda_a": 1.0, "terms.v": -9.0},
    "as printed": {"terms.ra_form": "printed"},
    "all": {"terms.v": 9.0},
    "of the loss": {"lud": "task"},
    "not clipped": {"recipe.clip": 0.0},
    "momentum": {"recipe.momentum": 0.9, "recipe.lr": 0.01, "terms.v": 9.0},
    "g": {"federate": "g"},
    "h": {"federate": "h", "terms.v": 9.0},
    "fgh": {"variant": "fgh", "terms.v": 9.0},
    "favg": {"variant": "favg"},
    "fprox": {"variant": "fprox", "mu": 0.5, "recipe.clip": 0.3},
    "fscaf": {"variant": "fscaf"},
}
NETS: dict[str, dict[str, Any]] = {
    "no gate": {},
    "gated": {"gate": "gated"},
    "one layer each": {"layers": (1, 1, 1)},
    "g of one layer": {"layers": (2, 1, 2), "gate": "gated"},
}


def task_and_local(settings: dict[str, Any], sizes: dict[str, Any], depth: str = "", timed: bool = True) -> Any:
    cfg = METHOD.configure({"recipe.batch": 4, "recipe.lr": 0.05, "recipe.epochs": 2, **settings})
    draw = torch.Generator().manual_seed(5)
    model = build("cfc", (8, 3), 4, {**SIZES, **sizes})
    x, y = torch.randn(10, 8, 3, generator=draw), torch.randint(0, 4, (10,), generator=draw)
    t = torch.rand(10, 8, generator=draw).add(0.3).cumsum(1) if timed else None
    length = torch.randint(1, 9, (10,), generator=draw) if timed else None
    weights = depths.shallower(model.init(2), depth)
    state = fedcfc.start(weights, cfg)
    task = fedcfc.task_of(state, cfg, 0, 0)
    if task.cum.numel() and state.aims[0].cud.numel():
        aim = torch.randn(state.aims[0].cud.shape, generator=draw)
        task = replace(task, cud=packed(aim, cfg.wire), cum=torch.tensor(0.01))
    if task.control:
        task = replace(task, control={name: torch.full_like(w, 0.02) for name, w in task.control.items()})
    data = Data(x, y, (torch.arange(10) < 9).float(), t, length)
    return task, Local(model, data, fedcfc.private(weights, cfg), keys.key(3))


def needs_kernels() -> None:
    if not compiled.ready():
        pytest.skip("needs the extra fast")


def both(task: Any, local: Local) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    needs_kernels()
    with torch.no_grad():
        fast = fedcfc.train(task, local)
        with compiled.off():
            slow = fedcfc.train(task, local)
        with plain():
            textbook = fedcfc.train(task, local)
    for one, other in zip(flatten(slow.update)[1], flatten(textbook.update)[1], strict=True):
        assert torch.equal(one, other)  # pricing runs the loop
    return flatten((fast.update, fast.mine.weights))[1], flatten((slow.update, slow.mine.weights))[1]


@pytest.mark.parametrize(
    ("case", "net"),
    [(case, "no gate") for case in CASES]
    + [(case, net) for case in ("direction", "all", "g") for net in list(NETS)[1:]],
)
def test_kernels_do_what_the_loop_does(case: str, net: str) -> None:
    fast, slow = both(*task_and_local(CASES[case], NETS[net]))
    differ = False
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, atol=3e-5, rtol=3e-4)
        differ = differ or not torch.equal(one, other)
    assert differ, "the kernels were not used"


@pytest.mark.parametrize("depth", ["1-1-1", "2-1-1", "1-2-2"])
def test_kernels_know_heads_without_a_hidden_layer(depth: str) -> None:
    fast, slow = both(*task_and_local({"terms.v": 9.0}, {}, depth, timed=False))
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, atol=3e-5, rtol=3e-4)


def test_kernels_leave_what_binds_a_leaky_cell_to_the_loop_and_train_it_alone() -> None:
    fast, slow = both(*task_and_local({}, {"gate": "leaky"}))
    assert all(torch.equal(one, other) for one, other in zip(fast, slow, strict=True))
    fast, slow = both(*task_and_local({"variant": "favg"}, {"gate": "leaky"}))
    assert not all(torch.equal(one, other) for one, other in zip(fast, slow, strict=True))
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, atol=3e-5, rtol=3e-4)


def test_the_first_round_has_nothing_to_follow() -> None:
    task, local = task_and_local({}, {})
    fast, slow = both(replace(task, cud=packed(torch.zeros(24), "float32"), cum=torch.tensor(-1.0)), local)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, atol=3e-5, rtol=3e-4)


def test_kernels_know_the_curvature_of_hubers_loss() -> None:
    task, local = task_and_local({"terms.v": 9.0}, {}, timed=False)
    model = build("cfc", (8, 3), 2, SIZES, Regression(centre=(0.0, 0.0), spread=(1.0, 1.0)))
    cfg, weights = local.mine.cfg, model.init(2)
    y = torch.randn(10, 2, generator=torch.Generator().manual_seed(1))
    mine = fedcfc.private(weights, cfg)
    fast, slow = both(task, replace(local, model=model, mine=mine, data=replace(local.data, y=y)))
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, atol=3e-5, rtol=3e-4)


@pytest.mark.parametrize("settings", [{"terms.second": "difference"}, {"precisions": ["float16"]}])
def test_other_forms_take_the_loop(settings: dict[str, Any]) -> None:
    task, local = task_and_local(settings, {}, timed=False)
    if "precisions" in settings:
        half = {name: w.half() for name, w in local.mine.weights.items()}
        local = replace(local, mine=replace(local.mine, weights=half))
    fast, slow = both(task, local)
    assert all(torch.equal(one, other) for one, other in zip(fast, slow, strict=True))


def test_a_stack_gives_the_same_bits_as_each_client() -> None:
    needs_kernels()
    task, local = task_and_local({"terms.v": 9.0}, {}, timed=False)
    data, number = local.data, torch.tensor([keys.number(i) for i in range(3)])
    x = torch.stack([data.x, 2.0 * data.x, data.x.flip(0)])

    def one(x: torch.Tensor, key: torch.Tensor) -> Any:
        done = fedcfc.train(task, replace(local, data=replace(data, x=x), key=key))
        return tuple(flatten((done.update, done.mine.weights))[1])

    with torch.no_grad():
        together = vmap(one)(x, number)
        for i in range(3):
            for stacked, alone in zip(together, one(x[i], number[i]), strict=True):
                assert torch.equal(stacked[i], alone)
