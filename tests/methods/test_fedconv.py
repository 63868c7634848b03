"""FedConv: the acceptance tests of its specification, numbered as there, and what its baselines share with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import LINK, PC, fleet_of, made, run

from potluck import keys, methods
from potluck.data.federation import Federation
from potluck.errors import BadInput
from potluck.fleet import Data, Params
from potluck.methods import fedconv
from potluck.methods.parts.submodels import fitting, kernels, mixing, tuning
from potluck.methods.parts.submodels.train import ADAM
from potluck.methods.parts.submodels.widths import (
    channel_squares,
    cut,
    dealt,
    kept,
    leading,
    merged,
    plan_of,
    rolled,
    sorted_channels,
)
from potluck.models import Model, build, catalogue
from potluck.runs.build import build as build_run
from potluck.runs.experiment import Experiment
from potluck.tensors import mean

RATIOS = (1.0, 0.75, 0.5625, 0.5, 0.25, 0.05)
MODELS = {
    "mnist": ("cnn", (1, 28, 28), {}),
    "depth": ("cnn", (1, 12, 12), {"norm": "batch", "hidden": [12]}),
    "resnet": ("resnet18", (3, 8, 8), {"width": 8}),
    "convnet": ("convnet", (64, 6), {"width": 8, "features": 12}),
    "mlp": ("mlp", (6,), {"hidden": [16, 8]}),
}


def model_of(name: str) -> Model:
    kind, shape, settings = MODELS[name]
    return build(kind, shape, 10, settings)


def kernels_of(model: Model, weights: Params, ratio: float, **settings: Any) -> Params:
    names = [name for name in weights if name in model.trainable]
    return kernels.made(weights, names, plan_of(model), ratio, keys.key(3), **settings)


def rows_of(model: Model, count: int = 30) -> Data:
    y = torch.arange(count) % model.classes
    return Data(
        keys.normal(keys.key(1), (count, *model.shape)) + y.reshape(-1, *(1,) * len(model.shape)), y, torch.ones(count)
    )


# 1


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ratio", RATIOS)
def test_1_an_untuned_delta_gives_the_leading_slice(name: str, ratio: float) -> None:
    model = model_of(name)
    weights, plan = model.init(0), plan_of(model)
    made_of = kernels.compress(weights, kernels_of(model, weights, ratio), plan, ratio)
    for tensor, value in cut(weights, plan, leading(plan, ratio)).items():
        assert torch.equal(made_of[tensor], value), tensor


def test_1_an_untuned_delta_dilates_to_the_global_model_with_the_block_inserted() -> None:
    model = model_of("mlp")
    weights, plan = model.init(0), plan_of(model)
    sub = {name: value + 1.0 for name, value in cut(weights, plan, leading(plan, 0.5)).items()}
    own = kernels_of(model, weights, 0.5)
    big = kernels.dilate(sub, own, weights, plan)
    assert torch.allclose(big["fc2.weight"][:4, :8], sub["fc2.weight"])
    assert torch.equal(big["fc2.weight"][4:], weights["fc2.weight"][4:])
    bare = kernels.dilate(sub, own, weights, plan, fill="zero")
    assert float(bare["fc2.weight"][4:].abs().sum()) == 0.0


# 2


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("start", ["delta", "random"])
def test_2_shapes_are_those_of_the_target_network(name: str, ratio: float, start: Any) -> None:
    model = model_of(name)
    weights, plan = model.init(0), plan_of(model)
    own = kernels_of(model, weights, ratio, start=start)
    sub = kernels.compress(weights, own, plan, ratio)
    assert {n: tuple(v.shape) for n, v in sub.items()} == plan.shapes(weights, ratio)
    assert model.logits(sub, torch.zeros(2, *model.shape)).shape == (2, 10)
    big = kernels.dilate(sub, own, weights, plan)
    assert {n: v.shape for n, v in big.items()} == {n: v.shape for n, v in weights.items()}


def test_2_parameters_of_the_mnist_network_are_the_published_ones() -> None:
    model = model_of("mnist")
    weights, plan = model.init(0), plan_of(model)
    counts = [sum(v.numel() for v in cut(weights, plan, leading(plan, r)).values()) for r in RATIOS[:-1]]
    assert counts == [20490, 14506, 10396, 9098, 4266]


def test_2_the_first_inputs_and_the_last_outputs_keep_their_size() -> None:
    plan = plan_of(model_of("mnist"))
    assert plan.axes["conv1.weight"][1].group is None
    assert plan.axes["fc.weight"][0].group is None
    assert plan.axes["fc.weight"][1].per == 49  # channel-major after the flatten
    assert plan.axes["fc.bias"][0].group is None


def test_2_layers_that_add_up_share_their_channels() -> None:
    plan = plan_of(model_of("resnet"))
    stem, block = plan.axes["conv.weight"][0].group, plan.axes["block1.conv2.weight"][0].group
    assert stem == block != plan.axes["block1.conv1.weight"][0].group


# 3


@pytest.mark.parametrize("name", ["mlp", "depth"])
def test_3_tuning_moves_kernels_only(name: str) -> None:
    model = model_of(name)
    weights, plan = model.init(0), plan_of(model)
    before = {n: v.clone() for n, v in weights.items()}
    rows = tuning.divided(rows_of(model), keys.key(0))
    own = kernels_of(model, weights, 0.5)
    tuned = tuning.tune(
        model, lambda free, _: kernels.compress(weights, free, plan, 0.5),
        {n: v[None] for n, v in own.items()}, {}, rows,
        rates=[0.01] * 2, batch=8, key=keys.key(0), choose=False,
    )  # fmt: skip
    assert any(not torch.equal(tuned.free[n][0], own[n]) for n in own)
    client = cut(weights, plan, leading(plan, 0.5))
    kept_client = {n: v.clone() for n, v in client.items()}
    tuning.tune(
        model, lambda free, sub: kernels.dilate(sub, free, weights, plan),
        mixing.stacked([own, own]), mixing.stacked([client, client]), rows, rates=[0.01], batch=8, key=keys.key(0),
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
        return tuning.tune(
            model, lambda free, sub: kernels.dilate(sub, free, weights, plan),
            mixing.stacked([own] * len(chosen)), mixing.stacked(chosen), rows,
            rates=[0.01] * 2, batch=8, key=keys.key(0), choose=False,
        ).free  # fmt: skip

    both, alone = tuned(subs), tuned(subs[1:])
    for name in own:
        torch.testing.assert_close(both[name][1], alone[name][0], atol=1e-4, rtol=1e-3)


def test_3_no_kernel_is_without_a_gradient() -> None:
    """A number that cannot change the loss would be moved by rounding noise alone: Adam's steps have one size."""
    model = model_of("mlp")
    weights, plan = model.init(0), plan_of(model)
    data = rows_of(model)
    for activation in ("identity", "mlr"):
        own = kernels_of(model, weights, 0.5, activation=activation)
        free = {name: value.requires_grad_() for name, value in own.items()}
        sub = kernels.compress(weights, free, plan, 0.5, activation)  # type: ignore[arg-type]
        loss = torch.nn.functional.cross_entropy(model.logits(sub, data.x), data.y)
        for name, gradient in zip(free, torch.autograd.grad(loss, list(free.values())), strict=True):
            assert float(gradient.abs().max()) > 1e-6, (activation, name)


def test_3_the_kept_epoch_is_never_worse_on_validate() -> None:
    model = model_of("mlp")
    weights, plan = model.init(0), plan_of(model)
    rows = tuning.divided(rows_of(model), keys.key(0))
    own = {n: v[None] for n, v in kernels_of(model, weights, 0.5).items()}
    tuned = tuning.tune(
        model, lambda free, _: kernels.compress(weights, free, plan, 0.5), own, {}, rows,
        rates=[5.0] * 2, batch=8, key=keys.key(0),
    )  # fmt: skip
    assert tuned.best[0] >= tuned.start[0]


def test_eq_2_the_rate_follows_the_cosine() -> None:
    assert tuning.cosine(5, 1e-3) == pytest.approx([1e-3, 8.55e-4, 5.05e-4, 1.55e-4, 1e-5], rel=1e-2)


# 4


def test_4_the_stack_and_the_affine_form_are_one_function() -> None:
    model = model_of("mnist")
    weights, plan = model.init(0), plan_of(model)
    stack = kernels_of(model, weights, 0.5, start="random", pre="stack16")
    plain = {}
    for name in weights:
        w, c = kernels.collapsed(stack, name)
        plain |= {f"{name}/v": w, f"{name}/g": w.flatten(1).norm(dim=1), f"{name}/c": c}
    for activation in ("identity", "mlr"):
        one = kernels.compress(weights, stack, plan, 0.5, activation)  # type: ignore[arg-type]
        other = kernels.compress(weights, plain, plan, 0.5, activation)  # type: ignore[arg-type]
        for name in weights:
            torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-4)


def test_long_kernels_by_fourier_transform_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, sub = (keys.normal(keys.key(i), size) for i, size in enumerate([(3, 12, 9), (3, 5, 4), (3, 8, 6)]))
    direct = kernels.correlate(x, w), kernels.spread(sub, w)
    monkeypatch.setattr(kernels, "_DIRECT", 0)
    torch.testing.assert_close(kernels.correlate(x, w), direct[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(kernels.spread(sub, w), direct[1], atol=1e-5, rtol=1e-4)


def test_mlr_has_the_published_slopes() -> None:
    assert kernels.mlr(torch.tensor([2.0, -2.0])).tolist() == pytest.approx([1.7, -0.002])


# 5


def test_5_weights_of_one_give_fedavg() -> None:
    model = model_of("mlp")
    plan = plan_of(model)
    models, counts = [model.init(seed) for seed in range(3)], torch.tensor([5.0, 1.0, 2.0])
    stack = mixing.stacked(models)
    for by in ("scalar", "element"):
        ones = mixing.ones(stack, model.trainable, plan.layers, by)
        mixture = mixing.mixed(stack, counts / counts.sum(), ones, plan.layers)
        for name, value in mean(models, list(counts)).items():
            torch.testing.assert_close(mixture[name], value, atol=1e-6, rtol=0)


def test_5_full_width_for_all_and_the_plain_mean_is_fedavg() -> None:
    """The whole method against FedAvg, client training by SGD on both sides."""
    settings = {"recipe.epochs": 1, "recipe.batch": 5, "recipe.lr": 0.1}
    model = build("mlp", (4,), 3, {"hidden": [6]})
    ours = methods.load("fedconv")
    config = ours.configure(
        {**settings, "recipe.optimiser": "sgd", "widths": [1.0], "shares": [1], "agg": "mean", "e_p": 0}
    )
    fleet, state = fleet_of(ours, config, made((12, 7, 9)), model=model)
    found = run(ours, config, fleet, state, 2).weights
    plain = methods.load("fedavg")
    config = plain.configure(settings)
    fleet, state = fleet_of(plain, config, made((12, 7, 9)), model=model)
    wanted = run(plain, config, fleet, state, 2).weights
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], atol=1e-6, rtol=0)


def test_the_divergence_start_favours_the_nearer_model() -> None:
    model = model_of("mlp")
    plan = plan_of(model)
    weights = model.init(0)
    stack = mixing.stacked([weights, model.init(1)])
    v = mixing.divergence_start(
        mixing.ones(stack, model.trainable, plan.layers, "scalar"), stack, weights, plan.layers, 50.0
    )
    assert float(v["fc1"][0]) > float(v["fc1"][1])
    assert float(v["fc1"].sum()) == pytest.approx(2.0, abs=1e-5)


def test_scale_match_gives_the_global_spread() -> None:
    model = model_of("mlp")
    weights = model.init(0)
    big = {name: 3.0 * value for name, value in weights.items()}
    matched = mixing.matched(big, weights, model.trainable)
    torch.testing.assert_close(matched["fc1.weight"].std(), weights["fc1.weight"].std())


# 6


EXPERIMENT = {
    "data": {"source": "made"},
    "partition": {"kind": "dirichlet", "alpha": 0.5, "clients": 4},
    "server": {"share": 0.2},
    "model": {"name": "mlp", "hidden": [8]},
    "fleet": {"devices": "fedconv"},
    "stop": {"rounds": 2},
}


@pytest.mark.parametrize("name", ["fedconv", "serveralone"])
def test_6_no_choice_reads_the_test_split(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method: dict[str, Any] = {"name": name, "recipe.epochs": 1}
    if name == "fedconv":
        method |= {"kernel_init": "random", "e_c": 2, "e_t": 1, "e_a": 2}
    parts = build_run(Experiment.of({**EXPERIMENT, "method": method}))
    read: list[str] = []
    real = Federation.materialise_many

    def spy(self: Federation, places: Any, part: Any, *rest: Any, **more: Any) -> Any:
        read.append(part)
        return real(self, places, part, *rest, **more)

    monkeypatch.setattr(Federation, "materialise_many", spy)
    state = parts.method.start(parts.weights, parts.config)
    program = parts.method.server(parts.fleet, state, parts.config)
    for _ in range(2):
        state = next(program)
    assert "test" not in read
    parts.evaluate(state)
    assert "test" in read  # for reporting only


# 7


def test_7_every_client_is_in_every_tensor_of_the_global_model() -> None:
    """Each client's update shifted alone changes every tensor, the classifier included."""
    model = build("mlp", (4,), 3, {"hidden": [8]})
    plan, weights = plan_of(model), model.init(0)
    clients = {"a": 1.0, "b": 0.5, "c": 0.25}
    subs = {c: cut(model.init(k + 1), plan, leading(plan, r)) for k, (c, r) in enumerate(clients.items())}

    def merged_of(models: dict[str, Params]) -> Params:
        dilated = [
            m if clients[c] == 1.0 else kernels.dilate(m, kernels_of(model, weights, clients[c]), weights, plan)
            for c, m in models.items()
        ]
        stack = mixing.stacked(dilated)
        ones = mixing.ones(stack, model.trainable, plan.layers, "scalar")
        return mixing.mixed(stack, torch.full((3,), 1 / 3), ones, plan.layers)

    before = merged_of(subs)
    for client in clients:
        moved = {**subs, client: {n: v + 1.0 for n, v in subs[client].items()}}
        after = merged_of(moved)
        assert all(not torch.equal(after[n], before[n]) for n in before), client


# the method as a whole


def test_published_forms_run() -> None:
    method = methods.load("fedconv")
    config = method.configure(
        {
            "recipe.epochs": 1, "recipe.batch": 5, "e_c": 1, "e_t": 1, "e_a": 1, "kernel_init": "random",
            "activation": "mlr",
            "pre": "stack16", "fill": "zero", "agg": "element", "kld_init": True, "scale_match": True,
            "server_refresh": True, "refresh_epochs": 1, "schedule": "constant", "sort_channels": True,
        }
    )  # fmt: skip
    fleet, state = fleet_of(method, config, made((12, 9, 9, 9, 9)), model=build("mlp", (4,), 3, {"hidden": [8]}))
    state = run(method, config, fleet, state, 2)
    assert all(bool(torch.isfinite(value).all()) for value in state.weights.values())


def test_bytes_per_round_are_those_of_the_parameters() -> None:
    method = methods.load("fedconv")
    model = build("mlp", (4,), 3, {"hidden": [64]})
    config = method.configure(
        {"recipe.epochs": 1, "e_c": 0, "e_t": 0, "e_a": 0, "e_p": 0, "widths": [1.0, 0.5], "shares": [1, 1]}
    )
    fleet, state = fleet_of(method, config, made((12, 9)), model=model)
    state = run(method, config, fleet, state, 1)
    tasks, _ = fleet.log.drain()
    plan = plan_of(model)
    for task in tasks:
        sub = cut(state.weights, plan, leading(plan, state.known[task.client]))
        payload = 4 * sum(value.numel() for value in sub.values())
        for counted in (task.bytes_down, task.bytes_up):
            assert payload <= counted <= payload + 1024  # a header with names and shapes around it


def test_layers_of_its_own_never_leave_the_client() -> None:
    method = methods.load("fedconv")
    model = build("mlp", (4,), 3, {"hidden": [8]})
    config = method.configure({"recipe.epochs": 1, "keep": ["fc2"], "e_c": 1, "e_t": 1, "e_a": 1})
    fleet, state = fleet_of(method, config, made((12, 9, 9)), model=model)
    sent: list[Any] = []
    send = fleet.send

    def spy(task: Any, to: str, legs: int = 1) -> None:
        sent.append(task)
        send(task, to, legs)

    fleet.send = spy  # type: ignore[method-assign]
    state = run(method, config, fleet, state, 2)
    assert "fc2.weight" in sent[0].weights  # the first time it is given
    assert "fc2.weight" not in sent[-1].weights
    own = [fleet.mine(place).weights["fc2.bias"] for place in range(3)]
    assert not torch.equal(own[0], own[1])


def test_only_the_named_layers_move_on_the_client() -> None:
    method = methods.load("fedconv")
    model = build("mlp", (4,), 3, {"hidden": [8]})
    config = method.configure(
        {"recipe.epochs": 1, "moving": ["fc2"], "widths": [1.0], "shares": [1], "agg": "mean", "e_p": 0}
    )
    fleet, state = fleet_of(method, config, made((12, 9)), model=model)
    first = state.weights
    state = run(method, config, fleet, state, 1)
    mine = fleet.mine(0).weights
    assert torch.equal(mine["fc1.weight"], first["fc1.weight"])
    assert not torch.equal(mine["fc2.weight"], first["fc2.weight"])


def test_server_work_is_charged_and_told() -> None:
    method = methods.load("fedconv")
    config = method.configure({"recipe.epochs": 1, "e_c": 1, "e_t": 1, "e_a": 1})
    fleet, state = fleet_of(method, config, made((12, 9, 9, 9, 9)), model=build("mlp", (4,), 3, {"hidden": [8]}))
    told: list[str] = []
    fleet.doing = told.append
    state = run(method, config, fleet, state, 1)
    assert any("compression" in what for what in told)
    assert any("dilation" in what for what in told)
    assert state.figures["seconds"]["compression"] > 0
    _, events = fleet.log.drain()
    assert [event for event in events if event.kind == "server"]


@pytest.mark.parametrize(
    "asked",
    [{}, {"kernel_init": "random", "pre": "stack16", "agg": "element"}, {"kernel_noise": 0.1, "activation": "mlr"}],
)
def test_without_server_rows_it_slices_and_averages(asked: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Kernels nobody can tune would be noise: whatever is asked for, they stay deltas, and it says so."""
    parts = build_run(
        Experiment.of(
            {**EXPERIMENT, "server": {"share": 0.0}, "method": {"name": "fedconv", "recipe.epochs": 1, **asked}}
        )
    )
    sent: list[Any] = []
    gather = parts.fleet.gather
    parts.fleet.gather = lambda tasks, **more: sent.append(tasks) or gather(tasks, **more)  # type: ignore[method-assign, func-returns-value]
    program = parts.method.server(parts.fleet, parts.method.start(parts.weights, parts.config), parts.config)
    with caplog.at_level("WARNING"):
        state = next(program)
    assert "no rows" in caplog.text
    plan = plan_of(parts.model)
    for client, task in sent[0].items():
        for name, value in cut(parts.weights, plan, leading(plan, state.known[client])).items():
            torch.testing.assert_close(task.weights[name], value)


def test_classes_the_server_does_not_have_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = tuning.divided(rows_of(build("mlp", (4,), 2, {})), keys.key(0))
    with caplog.at_level("WARNING"):
        assert fedconv._tunable(fedconv.Config(), rows, 2) == fedconv.Config()
        assert not caplog.text
        fedconv._tunable(fedconv.Config(), rows, 4)
    assert "no sample of class 2, 3" in caplog.text


def test_one_client_alone_and_the_plain_mean_is_its_dilated_model() -> None:
    method = methods.load("fedconv")
    model = build("mlp", (4,), 3, {"hidden": [8]})
    settings = {"recipe.epochs": 1, "widths": [0.5], "shares": [1], "e_p": 0, "e_c": 0, "e_t": 0, "agg": "mean"}
    config = method.configure(settings)
    fleet, state = fleet_of(method, config, made((12,)), model=model)
    first = state.weights
    state = run(method, config, fleet, state, 1)
    mine = fleet.mine(0).weights
    torch.testing.assert_close(state.weights["fc1.weight"][:4], mine["fc1.weight"])
    torch.testing.assert_close(state.weights["fc1.weight"][4:], first["fc1.weight"][4:])


def test_who_drops_out_keeps_kernels_and_weights() -> None:
    method = methods.load("fedconv")
    model = build("mlp", (4,), 3, {"hidden": [8]})
    settings = {"recipe.epochs": 1, "e_p": 0, "e_c": 1, "e_t": 3, "e_a": 1, "kernel_lr": 0.05}
    config = method.configure({**settings, "widths": [0.5], "shares": [1]})
    fleet, state = fleet_of(method, config, made((12, 9, 9)), model=model)
    gather, lost = fleet.gather, [False]

    def one_missing(tasks: Any, **more: Any) -> Any:
        return [a for a in gather(tasks, **more) if not (lost[0] and a.client == "c1")]

    fleet.gather = one_missing  # type: ignore[method-assign]
    program = method.server(fleet, state, config)
    before = next(program)
    lost[0] = True
    after = next(program)
    assert all(torch.equal(after.dilation["c1"][n], v) for n, v in before.dilation["c1"].items())
    assert all(torch.equal(after.v["c1"][n], v) for n, v in before.v["c1"].items())
    assert any(not torch.equal(after.dilation["c0"][n], v) for n, v in before.dilation["c0"].items())


def test_nobody_returned_leaves_the_global_model() -> None:
    method = methods.load("fedconv")
    config = method.configure({"recipe.epochs": 1, "e_p": 0, "e_c": 1})
    fleet, state = fleet_of(method, config, made((12, 9)), model=build("mlp", (4,), 3, {"hidden": [8]}))
    fleet.gather = lambda tasks, **more: []  # type: ignore[method-assign]
    after = next(method.server(fleet, state, config))
    assert after.round == 1
    assert all(torch.equal(after.weights[n], v) for n, v in state.weights.items())


def test_random_kernels_are_drawn_again_when_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = kernels.made

    def spy(*args: Any, **more: Any) -> Params:
        drawn.append(1)
        return real(*args, **more)

    monkeypatch.setattr(kernels, "made", spy)
    model = build("mlp", (4,), 3, {"hidden": [8]})
    config = fedconv.Config(kernel_init="random", e_c=0)
    rows = tuning.divided(rows_of(model), keys.key(0))
    method = methods.load("fedconv")
    fleet, _ = fleet_of(method, config, made((12, 9)), model=model)
    own = fedconv.Server(fleet, config, model, plan_of(model), rows)
    tune = tuning.tune
    monkeypatch.setattr(tuning, "tune", lambda *args, **more: replace(tune(*args, **more), best=[0.0]))
    fedconv._compressed(own, model.init(0), 0.5, None, 0)
    assert len(drawn) == 1 + 5  # at most five times again


# widths and budgets


def test_shares_of_widths_are_met() -> None:
    widths = dealt([f"c{i}" for i in range(20)], (1.0, 0.75, 0.5, 0.25), (4, 8, 4, 4), seed=1)
    assert [list(widths.values()).count(w) for w in (1.0, 0.75, 0.5, 0.25)] == [4, 8, 4, 4]


def test_auto_takes_the_widest_that_fits() -> None:
    model = model_of("mnist")
    lines = fitting.costs(model, model.init(0), (1.0, 0.5, 0.25), replace(ADAM, batch=4))
    assert [line.parameters for line in lines] == [20490, 9098, 4266]
    assert lines[0].memory > lines[1].memory > lines[2].memory
    assert lines[0].macs > lines[1].macs > lines[2].macs
    assert fitting.affordable(lines, lines[1].memory, None) == 0.5
    assert fitting.affordable(lines, None, lines[2].macs) == 0.25
    assert fitting.affordable(lines, 1.0, None) == 0.25
    assert fitting.affordable(lines, None, None) == 1.0


def test_auto_gives_a_small_device_a_small_model() -> None:
    model = build("mlp", (4,), 3, {"hidden": [64]})
    lines = fitting.costs(model, model.init(0), (1.0, 0.25), replace(ADAM, batch=5))
    small = replace(PC, name="small", memory=(lines[0].memory + lines[1].memory) // 2)
    method = methods.load("fedconv")
    config = method.configure(
        {
            "recipe.epochs": 1,
            "recipe.batch": 5,
            "assign": "auto",
            "widths": [1.0, 0.25],
            "shares": [1, 1],
            "e_c": 1,
            "e_t": 1,
            "e_a": 1,
        }
    )
    fleet, state = fleet_of(method, config, made((12, 9)), model=model, equipment=[(PC, LINK), (small, LINK)])
    assert run(method, config, fleet, state, 1).known == {"c0": 1.0, "c1": 0.25}


WHOLE = {"softmax": (6,), "svm": (6,), "mlp": (6,), "cnn": (1, 12, 12), "cnn5": (1, 20, 20)}
WHOLE |= {"convnet": (64, 6), "resnet18": (3, 8, 8)}
REFUSED = {"gru": "gru1", "lstm": "lstm1", "rnn": "rnn1", "bilstm": "ahead", "cfc": "backbone", "ltc": "rate"}
REFUSED |= {"compact": "block1.depth"}


@pytest.mark.parametrize("name", list(catalogue()))
def test_every_model_of_ours_is_compressed_or_refused_by_a_layers_name(name: str) -> None:
    if name in REFUSED:
        shape = (1, 16, 16) if name == "compact" else (10, 3)
        with pytest.raises(BadInput, match=f"the layer '{REFUSED[name]}'"):
            plan_of(build(name, shape, 4, {}))
        return
    model = build(name, WHOLE[name], 4, {})
    weights, plan = model.init(0), plan_of(model)
    sub = kernels.compress(weights, kernels_of(model, weights, 0.5), plan, 0.5)
    assert model.logits(sub, torch.zeros(2, *model.shape)).shape == (2, 4)


def test_sorting_channels_keeps_the_function() -> None:
    model = model_of("depth")
    weights, plan = model.init(0), plan_of(model)
    ordered = sorted_channels(weights, plan)
    x = keys.normal(keys.key(0), (3, *model.shape))
    torch.testing.assert_close(model.logits(ordered, x), model.logits(weights, x), atol=1e-5, rtol=1e-4)
    squares = channel_squares(ordered, plan)["conv1"]
    assert torch.equal(squares, squares.sort(descending=True).values)
    with pytest.raises(BadInput, match="group norm"):
        sorted_channels(model_of("resnet").init(0), plan_of(model_of("resnet")))


def test_at_least_one_channel_is_kept() -> None:
    assert (kept(16, 0.05), kept(16, 0.5625), kept(10, 0.3)) == (1, 9, 3)


# slices (HeteroFL, FedRolex)


def test_slices_are_averaged_over_their_holders() -> None:
    model = build("mlp", (2,), 2, {"hidden": [4]})
    plan = plan_of(model)
    weights = {name: torch.zeros_like(value) for name, value in model.init(0).items()}
    half, full = leading(plan, 0.5), leading(plan, 1.0)
    narrow = {n: v + 1.0 for n, v in cut(weights, plan, half).items()}
    wide = {n: v + 3.0 for n, v in weights.items()}
    both = merged(weights, plan, [(narrow, half, 1.0), (wide, full, 1.0)])
    assert both["fc1.bias"].tolist() == [2.0, 2.0, 3.0, 3.0]
    alone = merged(weights, plan, [(narrow, half, 1.0)])
    assert alone["fc1.bias"].tolist() == [1.0, 1.0, 0.0, 0.0]  # as it was where nobody holds it


def test_the_rolling_window_goes_round() -> None:
    plan = plan_of(build("mlp", (2,), 2, {"hidden": [4]}))
    assert rolled(plan, 0.5, 3)["fc1"].tolist() == [3, 0]


@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "hermes", "tailorfl", "standalone", "fedmd", "fedconv"])
def test_everybody_trains_a_model_of_its_own_width(name: str) -> None:
    method = methods.load(name)
    settings: dict[str, Any] = {"recipe.epochs": 1, "recipe.batch": 5}
    config = method.configure(settings)
    model = build("mlp", (4,), 3, {"hidden": [8]})
    fleet, state = fleet_of(method, config, made((12, 9, 9, 9, 9)), model=model)
    state = run(method, config, fleet, state, 2)
    sizes = sorted(len(fleet.mine(place).weights["fc1.bias"]) for place in range(5))
    assert sizes == [2, 4, 6, 6, 8]
    for place, client in enumerate(fleet.clients):
        logits = model.logits(method.personal(state, client, fleet.mine(place)), torch.zeros(2, 4))
        assert bool(torch.isfinite(logits).all())


def test_unlike_widths_are_evaluated_together() -> None:
    parts = build_run(Experiment.of({**EXPERIMENT, "method": {"name": "heterofl", "recipe.epochs": 1}}))
    state = next(parts.method.server(parts.fleet, parts.method.start(parts.weights, parts.config), parts.config))
    found = parts.evaluate(state)
    assert np.isfinite(found.accuracy).all()
