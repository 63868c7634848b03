"""Sub-models by convolution at any pace: what comes back as it went changes nothing, and nothing drifts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from helpers.submodels import model_of, rows_of

from potluck import keys
from potluck.errors import BadInput
from potluck.fleet import Local, Params
from potluck.learn import Recipe
from potluck.methods import load
from potluck.methods.parts.compose import clusters
from potluck.methods.parts.compose.convolved import convolved, server_side
from potluck.methods.parts.compose.messages import Change, Trained
from potluck.methods.parts.compose.settings import Tuning
from potluck.methods.parts.compose.shapes import Learned, Shape, Upload
from potluck.methods.parts.submodels.fitting import FittedSizes
from potluck.methods.parts.submodels.kernels import Kernels
from potluck.methods.parts.submodels.mixing import Mix
from potluck.methods.parts.submodels.tuning import ServerRows
from potluck.tensors import each

WIDTHS = (0.75, 0.5, 0.25)
NONE: Any = None


def fleet_of(name: str, rows: int = 60) -> Any:
    model = model_of(name)
    home = Local(model, rows_of(model, rows), None, keys.key(0, "server"))
    return SimpleNamespace(home=home, clients={}, spend=lambda seconds, why="": None)


def shape_of(
    fleet: Any,
    of: Literal["models", "changes"],
    epochs: int = 2,
    alone: bool = False,
    pretrain: int = 5,
    **kernels: Any,
) -> tuple[Shape, Params]:
    how = Tuning(every=1, of=of, labels="model")
    made = Kernels(compress_epochs=epochs, dilate_epochs=epochs, lr=1e-2, **kernels)
    sizes, recipe = FittedSizes(widths=(1.0, *WIDTHS), shares=(1.0,) * 4), Recipe(batch=16, lr=0.1)
    first = server_side(fleet, sizes, made, Mix(), ServerRows(), recipe, 5e10, 0).tuner
    first.begin(0)
    weights = first.trained(fleet.home.model.init(0), "pre-training", pretrain, recipe)
    shape = convolved(fleet, weights, how, sizes, made, Mix(), ServerRows(), recipe, 5e10, 0, alone=alone)
    return shape, weights


def upload(sub: Params, before: Params | None = None, client: str = "a") -> Upload:
    """What a client of one group sends: its model, or what it changed."""
    kind = Trained if before is None else Change
    weights = sub if before is None else each(torch.sub, sub, before)
    update = kind(weights, torch.zeros(2), torch.tensor(5.0))
    return Upload(client, weights, 5.0, 0, 0, update)


def trip(shape: Shape, learned: Learned, model: Params, width: float, round: int, by: float = 0.0) -> Any:
    """To a client and back; it moves every weight by so much."""
    learned, sub = shape.down(learned, 0, model, width, round, round)
    moved = {name: value + by if value.is_floating_point() else value for name, value in sub.items()}
    learned, (one,) = shape.up(learned, [(upload(moved, sub, f"of {width}"), width, sub)], model, round, round)
    return learned, one.weights


def apart(a: Params, b: Params) -> float:
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in b)


@pytest.mark.parametrize("name", ["mlp", "depth"])
@pytest.mark.parametrize("init", ["delta", "random"])
def test_what_comes_back_as_it_went_leaves_the_model_as_it_was(name: str, init: str) -> None:
    """Whatever the kernels are, in ten rounds of tuning, norms' statistics included."""
    fleet = fleet_of(name)
    shape, model = shape_of(fleet, "changes", init=init)
    statistics = [one for one in model if one not in fleet.home.model.trainable]
    learned, now = Learned(), model
    for round in range(10):
        learned, now = trip(shape, learned, now, WIDTHS[round % 3], round)
    # Tuning moves the norms' statistics, as in FedConv; no weight moves.
    weights = {one: value for one, value in model.items() if one not in statistics}
    assert apart(now, weights) == 0.0
    assert now.keys() == model.keys()


def test_a_model_that_is_dilated_whole_drifts() -> None:
    """Why changes are dilated: nobody trains, and the model moves further with every trip."""
    fleet = fleet_of("mlp")
    shape, model = shape_of(fleet, "models")
    learned, now, far = Learned(), model, []
    for round in range(10):
        learned, sub = shape.down(learned, 0, now, 0.5, round, round)
        learned, (one,) = shape.up(learned, [(upload(sub), 0.5, sub)], now, round, round)
        now = one.weights
        far.append(apart(now, model))
    assert far[-1] > 2.0 * far[2] > 0.1


def test_an_untuned_change_moves_the_leading_entries_only() -> None:
    shape, model = shape_of(fleet_of("mlp"), "changes", epochs=0)
    _, now = trip(shape, Learned(), model, 0.5, 0, by=0.25)
    moved = now["fc2.weight"] - model["fc2.weight"]
    assert torch.allclose(moved[:4, :8], torch.full((4, 8), 0.25), atol=1e-6)
    assert not moved[4:].any()
    assert not moved[:, 8:].any()


def test_a_change_by_itself_is_the_same_without_the_model() -> None:
    """For a merge of changes, as in FedBuff."""
    (shape, model), (bare, _) = (shape_of(fleet_of("mlp"), "changes", alone=alone) for alone in (False, True))
    (_, now), (_, change) = (trip(one, Learned(), model, 0.5, 0, by=0.1) for one in (shape, bare))
    assert apart(each(torch.add, model, change), now) < 1e-6
    assert apart(change, each(torch.zeros_like, model)) > 0.05


def test_a_change_that_the_server_takes_itself_is_the_client_s() -> None:
    shape, model = shape_of(fleet_of("mlp"), "changes", epochs=1)
    learned, sub = shape.down(Learned(), 0, model, 0.5, 0, 0)
    moved = each(lambda value: value + 0.1, sub)
    ways = [shape.up(learned, [(one, 0.5, sub)], model, 0, 0)[1][0] for one in (upload(moved), upload(moved, sub))]
    assert apart(ways[0].weights, ways[1].weights) < 1e-6


def test_the_client_s_own_sub_model_says_what_it_learned() -> None:
    """First pushes find their cluster by answers; most of a dilated model answers as the group does."""
    fleet = fleet_of("mlp")
    shape, model = shape_of(fleet, "changes", epochs=1)
    learned, sub = shape.down(Learned(), 0, model, 0.5, 0, 0)
    moved = {name: value.roll(1, 0) if name.startswith("fc3") else value for name, value in sub.items()}
    _, (one,) = shape.up(learned, [(upload(moved, sub), 0.5, sub)], model, 0, 0)
    assert one.own is not None
    assert apart(one.own, moved) < 1e-6
    by = clusters.measures(fleet, fleet.home.model.trainable, whole=True)
    far = clusters._first(by, load("compose").configure({}), one.own, model)
    assert far is not None
    assert far(one.weights, moved) < 1e-5  # answers alike
    assert far(one.weights, sub) > 0.1


def test_layers_that_stay_on_the_client_are_not_lifted() -> None:
    shape, model = shape_of(fleet_of("mlp"), "changes", epochs=1)
    learned, sub = shape.down(Learned(), 0, model, 0.5, 0, 0)
    change = {name: torch.full_like(value, 0.1) for name, value in sub.items() if not name.startswith("fc3")}
    one = Upload("a", change, 5.0, 0, 0, Change(change, torch.zeros(2), torch.tensor(5.0)))
    _, (lifted,) = shape.up(learned, [(one, 0.5, sub)], model, 0, 0)
    assert lifted.weights.keys() == change.keys()
    assert lifted.weights["fc1.weight"].shape == model["fc1.weight"].shape


def test_kernels_learn_what_the_model_says_and_not_what_the_rows_say() -> None:
    """A group that names classes otherwise: its sub-model names them as the group does."""
    fleet = fleet_of("mlp", 200)
    shape, model = shape_of(fleet, "changes", epochs=4, pretrain=40)
    other = model | {name: model[name].roll(1, 0) for name in model if name.startswith("fc3")}  # each by the next name
    x, y = fleet.home.data.x, fleet.home.data.y
    logits = fleet.home.model.logits

    def right(sub: Params, labels: torch.Tensor) -> float:
        return float((logits(sub, x).argmax(-1) == labels).float().mean())

    says = logits(other, x).argmax(-1)
    learned = Learned()
    for round in range(3):
        learned, sub = shape.down(learned, 1, other, 0.5, round, round)
    assert right(sub, says) > 0.5
    assert right(sub, says) > right(sub, y) + 0.3
    tuner = shape.tuner.tuner if shape.tuner else NONE
    own = tuner.rows
    with tuner.answers_of(other):
        said = tuner.rows.tune.y
    assert tuner.rows is own  # the rows' own classes are back
    assert said.dtype == own.tune.y.dtype
    assert not torch.equal(said, own.tune.y)


def test_what_auto_stands_for() -> None:
    assert (Tuning().used("latest").of, Tuning().used("latest").labels) == ("changes", "model")
    assert (Tuning().used("learned").of, Tuning().used("learned").labels) == ("models", "rows")
    assert Tuning(of="models").used("latest").of == "models"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"parts": "buffered/one/fedconv/all/all/stale", "tuning.of": "models"}, "tuning.of: must be auto or changes"),
        ({"parts": "rounds/one/fedconv/all/all/mean", "kernels.pre": "stack16"}, "kernels.pre: must be none"),
    ],
)
def test_forms_that_a_change_cannot_take_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        load("compose").configure(given)
