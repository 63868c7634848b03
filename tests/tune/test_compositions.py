"""The search among compositions: what the candidates are, and the map of what was tried."""

from __future__ import annotations

import pytest

from potluck.errors import BadInput
from potluck.methods.parts.compose import choice
from potluck.runs.experiment import Experiment
from potluck.tune.compositions import beside, by_part, combinations, only, space_of


def test_what_the_experiment_cannot_serve_is_left_out() -> None:
    bare = Experiment.of({"data": {"source": "made"}, "method": {"name": "compose"}})
    rich = bare.with_(server={"share": 0.1}, fleet={"access_point": "raspberry-pi-4"})
    assert beside(bare) == []
    assert beside(rich) == ["server rows", "access points"]
    few, many = (combinations(beside(one), only([])) for one in (bare, rich))
    assert set(few) < set(many)
    assert not [one for one in few if "fedconv" in one or "learned" in one or "handover" in one]
    assert not [one for one in many if "deadline" in one or "points/" in one]  # unless asked for
    assert all(not choice.refused(choice.spelled(one), beside(rich)) for one in many)


def test_an_axis_can_be_narrowed() -> None:
    among = only(["pace=points", "grouping=one", "shape=one", "local=all", "share=all"])
    assert combinations([], among) == ["points/one/one/all/all/latest", "points/one/one/all/all/stale"]
    with pytest.raises(BadInput, match="--among"):
        only(["speed=fast"])
    with pytest.raises(BadInput, match="--among: pace"):
        only(["pace=fast"])
    with pytest.raises(BadInput, match="two or more legal combinations, got 0"):
        combinations([], only(["pace=arrivals", "merge=mean"]))
    found = space_of(Experiment.of({"data": {"source": "made"}, "method": {"name": "compose"}}), ["pace=arrivals"])
    assert found.startswith("method.parts=arrivals/")


def test_the_map_has_the_best_and_the_mean_of_every_part() -> None:
    tried = [
        {"settings": {}, "scores": [0.5, 0.6]},
        {"settings": {"parts": "arrivals/one/one/all/all/latest"}, "scores": [0.7, 0.8]},
        {"settings": {"parts": "arrivals/one/one/all/all/stale"}, "scores": [0.4, None]},
    ]
    found = by_part({"candidates": tried})
    assert found["pace"] == {"arrivals": (0.7, pytest.approx(0.55), 2), "rounds": (0.5, 0.5, 1)}
    assert found["merge"]["stale"] == (0.4, 0.4, 1)
