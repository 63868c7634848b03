"""Which client gets which width."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.fleets import LINK, PC, fleet_of, made, run
from helpers.submodels import model_of

from potluck import methods
from potluck.errors import BadInput
from potluck.fleet import Profile
from potluck.methods.parts.submodels import fitting
from potluck.methods.parts.submodels.fitting import FittedSizes, Sizes
from potluck.methods.parts.submodels.train import ADAM
from potluck.models import build


def test_shares_of_widths_are_met() -> None:
    widths = Sizes((1.0, 0.75, 0.5, 0.25), (4, 8, 4, 4)).dealt([f"c{i}" for i in range(20)], seed=1)
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
            "sizes.assign": "auto",
            "sizes.widths": [1.0, 0.25],
            "sizes.shares": [1, 1],
            "kernels.compress_epochs": 1,
            "kernels.dilate_epochs": 1,
            "mix.epochs": 1,
        }
    )
    fleet, state = fleet_of(method, config, made((12, 9)), model=model, equipment=[(PC, LINK), (small, LINK)])
    assert run(method, config, fleet, state, 1).known == {"c0": 1.0, "c1": 0.25}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"widths": []}, "method.sizes.widths: must be unequal ratios"),
        ({"widths": [1.0, 1.5]}, "method.sizes.widths: must be unequal ratios"),
        ({"widths": [0.5, 0.5], "shares": [1, 1]}, "method.sizes.widths: must be unequal ratios"),
        ({"widths": [1.0, 0.5]}, "method.sizes.shares: must be 2 numbers of 0 or more"),
        ({"widths": [1.0, 0.5], "shares": [0, 0]}, "method.sizes.shares: must be 2 numbers of 0 or more"),
    ],
)
@pytest.mark.parametrize("name", ["heterofl", "fedconv"])
def test_widths_and_shares_that_do_not_fit_are_refused(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        methods.load(name).configure({"sizes": settings})


def test_by_speed_the_fastest_devices_get_the_widest_models() -> None:
    speeds = {"slow": 1.0, "fast": 9.0, "middle": 5.0, "unknown": None}
    clients = {name: Profile("board", "wifi", 10, macs_per_second=speed) for name, speed in speeds.items()}
    sizes = FittedSizes((0.5, 1.0, 0.25), (2.0, 1.0, 1.0), assign="speed")
    assert sizes.by_speed(clients) == {"fast": 1.0, "middle": 0.5, "slow": 0.5, "unknown": 0.25}
