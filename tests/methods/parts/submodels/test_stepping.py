"""Steps of kernels by compiled kernels are those of automatic differentiation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from helpers.submodels import kernels_of, model_of, rows_of

from potluck import compiled, keys
from potluck.methods.parts.submodels import mixing, stepping, tuning
from potluck.methods.parts.submodels.kernels import Lattice
from potluck.methods.parts.submodels.making import Compression, Dilation, Step
from potluck.methods.parts.submodels.quick import Planes
from potluck.methods.parts.submodels.widths import cut, leading, masks_of, plan_of
from potluck.models import build

pytestmark = pytest.mark.skipif(not compiled.ready(), reason="needs the extra fast")

SMALL = build("cnn", (1, 9, 10), 10, {"channels": [6, 8]})
FORMS: dict[str, tuple[Any, float, dict[str, Any]]] = {
    "a small cnn": (SMALL, 0.5, {}),
    "a narrow one": (SMALL, 0.2, {}),
    "random kernels and the leaky ReLU": (SMALL, 0.75, {"start": "random", "activation": "mlr"}),
    "random kernels without a direction": (SMALL, 0.5, {"start": "random", "normed": False}),
    "noise": (SMALL, 0.5, {"noise": 0.1}),
    "batch norms": (model_of("depth"), 0.5, {}),
    "dense": (model_of("mlp"), 0.5, {}),
    "series": (build("cnn1d", (21, 3), 10, {}), 0.5, {}),
}


def tuned(model: Any, make: Any, members: Any, fixed: Any, **how: Any) -> list[tuning.Tuned]:
    rows = tuning.divided(rows_of(model), keys.key(0))
    given = {"rates": [0.003] * 2, "batch": 5, "key": keys.key(0), "take": "last", **how}
    return tuning.tune(model, make, members, fixed, rows, **given)


def compare(model: Any, make: Any, members: Any, fixed: Any) -> None:
    rows = tuning.divided(rows_of(model), keys.key(0))
    assert isinstance(stepping.stepper(model, make, members, fixed, rows.tune, 5), Planes)
    quick = tuned(model, make, members, fixed)
    same(quick, differentiated(model, make, members, fixed), members)


def differentiated(model: Any, make: Any, members: Any, fixed: Any) -> list[tuning.Tuned]:
    with compiled.off():
        return tuned(model, make, members, fixed)


def same(quick: list[tuning.Tuned], slow: list[tuning.Tuned], members: Any) -> None:
    for one, other, begun in zip(quick, slow, members * len(quick), strict=False):
        assert any(not torch.equal(one.free[name], begun[name]) for name in begun)
        # A bias before a batch norm has no slope: Adam makes steps of its rounding noise.
        # So has what shifts the scores of all classes alike: the constants before the last layer's kernel.
        norms = ("conv1.bias", "conv2.bias", "norm1.running_mean", "norm2.running_mean") if one.buffers else ()
        blind = (*norms, "fc.weight/b", "fc.bias/b")
        # Filled with zeros, channels before a norm have no variance: it multiplies rounding by 300. A step is 0.003.
        near = 5e-4 if one.buffers else 2e-5
        found, wanted = one.free | one.buffers, other.free | other.buffers
        assert found.keys() == wanted.keys()
        for name in (name for name in found if not name.startswith(blind)):
            torch.testing.assert_close(
                found[name], wanted[name], atol=near, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.mark.parametrize("form", FORMS)
def test_compression_steps_as_by_automatic_differentiation(form: str) -> None:
    model, width, start = FORMS[form]
    weights = model.init(0)
    own = kernels_of(model, weights, width, **start)
    compare(model, Compression(weights, plan_of(model), width, start.get("activation", "identity")), [own], [])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fill", ["global", "zero"])
def test_dilation_steps_as_by_automatic_differentiation(form: str, fill: Any) -> None:
    model, width, start = FORMS[form]
    if "activation" in start:
        start = {"start": "random"}
    weights, plan = model.init(0), plan_of(model)
    subs = [cut(model.init(seed), plan, leading(plan, width)) for seed in (1, 2)]
    own = [kernels_of(model, weights, width, **start)]
    compare(model, Dilation(weights, fill), own * 2, subs)
    compare(model, Dilation(weights, fill), own, subs)  # they take turns


@pytest.mark.parametrize("form", ["a small cnn", "random kernels and the leaky ReLU", "series"])
def test_kernels_answer_for_the_models_they_make(form: str) -> None:
    model, width, start = FORMS[form]
    weights, plan, data = model.init(0), plan_of(model), rows_of(model)
    own = kernels_of(model, weights, width, **start)
    subs = [cut(model.init(seed), plan, leading(plan, width)) for seed in (1, 2)]
    many = torch.cat([data.x] * 5)  # more than kernels take at once
    narrow = Compression(weights, plan, width, start.get("activation", "identity"))
    for make, fixed in ((narrow, []), (Dilation(weights), subs)):
        stepper = stepping.stepper(model, make, [own], fixed, data, 5)
        assert isinstance(stepper, Planes)
        stepper.steps(data, [Step(torch.arange(5), torch.ones(5), slice(0, 1), 0.01, lambda: keys.key(0))])
        now = stepping.row(stepper.current(), 0)
        wanted = [model.logits(make(now, sub), many) for sub in fixed or [{}]]
        said = stepper.said(many)
        assert said is not None
        torch.testing.assert_close(said, torch.stack(wanted), atol=1e-5, rtol=1e-4)


def test_members_do_not_depend_on_threads_or_on_how_many_steps_a_call_takes() -> None:
    weights, plan = SMALL.init(0), plan_of(SMALL)
    members = [kernels_of(SMALL, weights, 0.5, noise=0.01 * k) for k in range(3)]
    subs = [cut(SMALL.init(seed), plan, leading(plan, 0.5)) for seed in (1, 2, 3)]
    given = SMALL, Dilation(weights), members, subs
    alone = tuned(*given, rates=[0.003] * 4, look=1)
    together = tuned(*given, rates=[0.003] * 4, look=4)
    with ThreadPoolExecutor(2) as pool, compiled.threads(pool, 2):
        divided = tuned(*given, rates=[0.003] * 4, look=4)
    for one, other, third in zip(alone, together, divided, strict=True):
        for name in one.free:
            assert torch.equal(one.free[name], other.free[name])
            assert torch.equal(one.free[name], third.free[name])


MAKES: dict[str, Any] = {
    "two convolutions before the kernel": {"pre": "stack16"},
    "a stride": {"lattice": Lattice(stride=2)},
    "a plane of all entries": {"lattice": Lattice(flatten="entries")},
}


@pytest.mark.parametrize("form", MAKES)
def test_other_kernels_step_as_by_automatic_differentiation(form: str) -> None:
    weights, plan, given = SMALL.init(0), plan_of(SMALL), MAKES[form]
    own = [kernels_of(SMALL, weights, 0.5, **given)]
    subs = [cut(SMALL.init(seed), plan, leading(plan, 0.5)) for seed in (1, 2)]
    how = {"lattice": given.get("lattice", Lattice())}
    for make, fixed in ((Compression(weights, plan, 0.5, **how), []), (Dilation(weights, **how), subs)):
        same(tuned(SMALL, make, own, fixed), differentiated(SMALL, make, own, fixed), own)


@pytest.mark.parametrize("agg", ["scalar", "element"])
def test_weights_of_the_mean_step_as_by_automatic_differentiation(agg: str) -> None:
    weights, plan = SMALL.init(0), plan_of(SMALL)
    stack = mixing.stacked([SMALL.init(seed) for seed in (1, 2, 3)])
    masks = [masks_of(plan, stack, width, 1) for width in (0.5, 1.0)]
    given = mixing.changes(weights, stack, masks, torch.tensor([0, 1, 1]), torch.tensor([3.0, 4.0, 5.0]))
    v = mixing.ones(stack, SMALL.trainable, plan.layers, agg)

    def make(free: Any, _: Any = None) -> Any:
        return mixing.stepped(given, free, plan.layers)

    same(tuned(SMALL, make, [v], []), differentiated(SMALL, make, [v], []), [v])


def test_other_forms_go_by_automatic_differentiation() -> None:
    weights, plan = SMALL.init(0), plan_of(SMALL)
    rows = tuning.divided(rows_of(SMALL), keys.key(0))
    for make, own in (
        (Compression(weights, plan, 0.5, lattice=Lattice(flatten="entries")), kernels_of(SMALL, weights, 0.5)),
        (Compression(weights, plan, 0.5), kernels_of(SMALL, weights, 0.5, pre="stack16")),
    ):
        assert isinstance(stepping.stepper(SMALL, make, [own], [], rows.tune, 5), stepping.Graph)
    with compiled.off():
        own = kernels_of(SMALL, weights, 0.5)
        found = stepping.stepper(SMALL, Compression(weights, plan, 0.5), [own], [], rows.tune, 5)
    assert isinstance(found, stepping.Graph)
