"""FedConv as a whole; tests numbered 5 to 7 are acceptance tests of its specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from helpers.fleets import fleet_of, made, run
from helpers.submodels import EXPERIMENT, kernels_of, rows_of

from potluck import keys, methods
from potluck.data.federation import Federation
from potluck.errors import BadInput
from potluck.fleet import Params
from potluck.methods import fedconv
from potluck.methods.parts.submodels import kernels, mixing
from potluck.methods.parts.submodels.kernels import Kernels
from potluck.methods.parts.submodels.tuning import Tuned, Tuner, divided
from potluck.methods.parts.submodels.widths import cut, leading, plan_of
from potluck.models import build
from potluck.runs.build import build as build_run
from potluck.runs.experiment import Experiment

BRIEF = {"recipe.epochs": 1, "kernels.compress_epochs": 1, "kernels.dilate_epochs": 1, "mix.epochs": 1}
FULL = {"sizes.widths": [1.0], "sizes.shares": [1]}  # all clients at full width
UNTUNED = {"mix.agg": "mean", "server.pretrain_epochs": 0}
UNMOVED = {"kernels": {"compress_epochs": 0, "dilate_epochs": 0}}


def test_5_full_width_for_all_and_the_plain_mean_is_fedavg() -> None:
    """The whole method against FedAvg, client training by SGD on both sides."""
    settings = {"recipe.epochs": 1, "recipe.batch": 5, "recipe.lr": 0.1}
    model = build("mlp", (4,), 3, {"hidden": [6]})
    ours = methods.load("fedconv")
    config = ours.configure({**settings, **FULL, **UNTUNED, "recipe.optimiser": "sgd"})
    fleet, state = fleet_of(ours, config, made((12, 7, 9)), model=model)
    found = run(ours, config, fleet, state, 2).weights
    plain = methods.load("fedavg")
    config = plain.configure(settings)
    fleet, state = fleet_of(plain, config, made((12, 7, 9)), model=model)
    wanted = run(plain, config, fleet, state, 2).weights
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["fedconv", "serveralone"])
def test_6_no_choice_reads_the_test_split(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method: dict[str, Any] = {"name": name, "recipe.epochs": 1}
    if name == "fedconv":
        method |= {"kernels.init": "random", "kernels.compress_epochs": 2, "kernels.dilate_epochs": 1, "mix.epochs": 2}
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


def test_7_every_client_is_in_every_tensor_of_the_global_model() -> None:
    """Each client's update shifted alone changes every tensor, the classifier included."""
    model = build("mlp", (4,), 3, {"hidden": [8]})
    plan, weights = plan_of(model), model.init(0)
    clients = {"a": 1.0, "b": 0.5, "c": 0.25}
    subs = {c: cut(model.init(k + 1), plan, leading(plan, r)) for k, (c, r) in enumerate(clients.items())}

    def merged_of(models: dict[str, Params]) -> Params:
        dilated = [
            m if clients[c] == 1.0 else kernels.dilate(m, kernels_of(model, weights, clients[c]), weights)
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


def test_published_forms_run() -> None:
    method = methods.load("fedconv")
    config = method.configure(
        {
            **BRIEF,
            "recipe.batch": 5,
            "kernels": {"init": "random", "activation": "mlr", "pre": "stack16", "fill": "zero", "flatten": "entries"},
            "kernels.compress_epochs": 1,
            "kernels.schedule": "constant",
            "kernels.sort_channels": True,
            "mix": {
                "agg": "element",
                "on": "models",
                "init": "normal",
                "kld_init": True,
                "scale_match": True,
                "epochs": 1,
            },
            "server.choose": "accuracy",
            "released": {"server_refresh": True, "refresh_epochs": 1, "restarts": True},
        }
    )
    fleet, state = fleet_of(method, config, made((12, 9, 9, 9, 9)), model=build("mlp", (4,), 3, {"hidden": [8]}))
    state = run(method, config, fleet, state, 2)
    assert all(bool(torch.isfinite(value).all()) for value in state.weights.values())


def test_bytes_per_round_are_those_of_the_parameters() -> None:
    method = methods.load("fedconv")
    model = build("mlp", (4,), 3, {"hidden": [64]})
    config = method.configure(
        {**UNTUNED, **UNMOVED, "recipe.epochs": 1, "sizes": {"widths": [1.0, 0.5], "shares": [1, 1]}}
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
    config = method.configure({**BRIEF, "keep": ["fc2"]})
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
    config = method.configure({**FULL, **UNTUNED, "recipe.epochs": 1, "moving": ["fc2"]})
    fleet, state = fleet_of(method, config, made((12, 9)), model=model)
    first = state.weights
    state = run(method, config, fleet, state, 1)
    mine = fleet.mine(0).weights
    assert torch.equal(mine["fc1.weight"], first["fc1.weight"])
    assert not torch.equal(mine["fc2.weight"], first["fc2.weight"])


def test_server_work_is_charged_and_shown() -> None:
    method = methods.load("fedconv")
    config = method.configure(BRIEF)
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
    [
        {},
        {"kernels": {"init": "random", "pre": "stack16"}, "mix.agg": "element"},
        {"kernels": {"noise": 0.1, "activation": "mlr"}},
    ],
)
def test_without_server_rows_it_slices_and_averages(asked: dict[str, Any]) -> None:
    """Kernels that no row can tune would be noise: whatever is asked for, they stay deltas, and the log says so."""
    parts = build_run(
        Experiment.of(
            {**EXPERIMENT, "server": {"share": 0.0}, "method": {"name": "fedconv", "recipe.epochs": 1, **asked}}
        )
    )
    sent: list[Any] = []
    gather = parts.fleet.gather
    parts.fleet.gather = lambda tasks, **more: sent.append(tasks) or gather(tasks, **more)  # type: ignore[method-assign, func-returns-value]
    program = parts.method.server(parts.fleet, parts.method.start(parts.weights, parts.config), parts.config)
    state = next(program)
    assert [kind for kind, _, _ in parts.method.events(state)] == ["server"]
    assert "no server rows" in state.notices[0]
    plan = plan_of(parts.model)
    for client, task in sent[0].items():
        for name, value in cut(parts.weights, plan, leading(plan, state.known[client])).items():
            torch.testing.assert_close(task.weights[name], value)


def test_one_client_alone_and_the_plain_mean_is_its_dilated_model() -> None:
    method = methods.load("fedconv")
    model = build("mlp", (4,), 3, {"hidden": [8]})
    settings = {**UNTUNED, **UNMOVED, "recipe.epochs": 1, "sizes": {"widths": [0.5], "shares": [1]}}
    config = method.configure(settings)
    fleet, state = fleet_of(method, config, made((12,)), model=model)
    first = state.weights
    state = run(method, config, fleet, state, 1)
    mine = fleet.mine(0).weights
    torch.testing.assert_close(state.weights["fc1.weight"][:4], mine["fc1.weight"])
    torch.testing.assert_close(state.weights["fc1.weight"][4:], first["fc1.weight"][4:])


def test_a_client_that_drops_out_keeps_kernels_and_weights() -> None:
    method = methods.load("fedconv")
    model = build("mlp", (4,), 3, {"hidden": [8]})
    settings = {**BRIEF, "server.pretrain_epochs": 0, "kernels.dilate_epochs": 3, "kernels.lr": 0.05}
    config = method.configure({**settings, "sizes.widths": [0.5], "sizes.shares": [1]})
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


def test_no_answer_leaves_the_global_model() -> None:
    method = methods.load("fedconv")
    config = method.configure({"recipe.epochs": 1, "server.pretrain_epochs": 0, "kernels.compress_epochs": 1})
    fleet, state = fleet_of(method, config, made((12, 9)), model=build("mlp", (4,), 3, {"hidden": [8]}))
    fleet.gather = lambda tasks, **more: []  # type: ignore[method-assign]
    after = next(method.server(fleet, state, config))
    assert after.round == 1
    assert all(torch.equal(after.weights[n], v) for n, v in state.weights.items())


class Hopeless(Tuner):
    """A server whose kernels stay at chance, however they begin."""

    def tuned(self, phase: Any, width: Any, make: Any, members: Sequence[Params], *rest: Any, **more: Any) -> Any:
        self.figures.setdefault("begun", []).extend(members)
        return [Tuned(free, {}, 0.0, 0.0) for free in members]


def test_random_kernels_are_drawn_again_when_hopeless() -> None:
    model = build("mlp", (4,), 3, {"hidden": [8]})
    config = fedconv.Config(kernels=Kernels(init="random"))
    fleet, state = fleet_of(methods.load("fedconv"), config, made((12, 9)), model=model)
    tuner = Hopeless(fleet, divided(rows_of(model), keys.key(0)), batch=8, seed=0, macs_per_second=1e9)
    tuner.figures["compressed"] = {}
    fedconv.compressed(fedconv.Server(config, plan_of(model), tuner), state.weights, 0.5, None)
    begun = [kernel["fc1.weight/v"] for kernel in tuner.figures["begun"]]
    assert len(begun) == 1 + 5  # at most five times again
    assert all(not torch.equal(begun[0], other) for other in begun[1:])


@pytest.mark.parametrize(
    ("old", "new"),
    [("e_c", "kernels.compress_epochs"), ("e_a", "mix.epochs"), ("v_lr", "mix.lr"), ("assign", "sizes.assign")],
)
def test_settings_that_moved_are_refused_with_their_new_names(old: str, new: str) -> None:
    with pytest.raises(BadInput, match=f"method.{old}: is now called method.{new}"):
        methods.load("fedconv").configure({old: 1})


def test_restarts_as_released_draw_again_in_every_phase() -> None:
    """Below 40, 80 and 50 % on validation rows, five times at most; the best draw is kept."""
    method = methods.load("fedconv")
    settings = {**BRIEF, "recipe.batch": 5, "kernels.init": "random", "mix": {"on": "models", "init": "normal"}}
    config = method.configure({**settings, "mix.epochs": 1, "kernels.lr": 1e-6, "released.restarts": True})
    fleet, state = fleet_of(method, config, made((12, 9)), model=build("mlp", (4,), 3, {"hidden": [8]}))
    told: list[str] = []
    fleet.doing = told.append
    state = run(method, config, fleet, state, 1)
    phases = ("compression", "dilation", "mixture")
    count = {phase: sum(f"tuning the {phase}" in line for line in told) for phase in phases}
    assert count["dilation"] > 1
    assert max(count.values()) <= 12  # six draws of at most two widths


def test_kernels_of_a_width_are_shared_where_asked() -> None:
    method = methods.load("fedconv")
    sizes = {"widths": [0.5], "shares": [1]}
    config = method.configure({**BRIEF, "kernels.per": "width", "kernels.lr": 0.05, "sizes": sizes})
    fleet, state = fleet_of(method, config, made((12, 9, 9)), model=build("mlp", (4,), 3, {"hidden": [8]}))
    state = run(method, config, fleet, state, 2)
    first, *others = state.dilation.values()
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)
    assert state.figures["steps"]["dilation"] < state.figures["steps"]["compression"] * 3
