"""What modules are worth: the arms, what rests, the gain, the picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from potluck.errors import BadInput
from potluck.models import build
from potluck.runs.build import build as build_session
from potluck.runs.experiment import Experiment
from potluck.studies import modules, plots
from potluck.studies.modules import Arm, Row

CFC = {"name": "cfc", "hidden": 3, "backbone": 4, "head": 3}


def experiment(**sections: Any) -> Experiment:
    return Experiment.of(
        {
            "data": {"source": "made"},
            "partition": {"kind": "iid", "clients": 2, "samples": 8, "valid_share": 0.5},
            "model": CFC,
            "method": {"name": "local", "recipe.batch": 8, "recipe.epochs": 1},
            "stop": {"rounds": 1},
            **sections,
        }
    )


def test_arms_name_every_module_and_every_way() -> None:
    model = build("cfc", (6, 2), 3, {"hidden": 3, "backbone": 4, "head": 3})
    found = {(arm.module, arm.how): arm for arm in modules.arms_of(model)}
    assert modules.modules_of(model) == ["backbone", "f", "g", "h", "fc"]
    assert found["g", "only"].resting == ("backbone", "f", "h", "fc")
    assert found["f", "bound"].method["federate"] == "f"
    assert ("backbone", "bound") not in found
    own = modules.arms_of(build("mlp", (4,), 3, {"hidden": (5,)}), {"name": "ditto"})
    assert [arm.how for arm in own if arm.method["name"] == "ditto"] == [
        "ditto",
        *["frozen, ditto"] * len({a.module for a in own} - {"network"}),
    ]
    assert not any(arm.how == "bound" for arm in own)


def test_some_modules_may_be_chosen_and_alone_stays() -> None:
    arms = modules.arms_of(build("cfc", (6, 2), 3, {"hidden": 3, "backbone": 4, "head": 3}))
    assert {arm.module for arm in modules.chosen(arms, ["g"])} == {"network", "g"}
    assert [arm.how for arm in modules.chosen(arms, ["g"]) if arm.module == "network"] == ["alone"]
    assert modules.chosen(arms, []) == arms
    with pytest.raises(BadInput, match="--only"):
        modules.chosen(arms, ["k"])


def test_what_rests_keeps_its_first_weights_and_the_rest_learns() -> None:
    session = build_session(experiment())
    session.model.resting = frozenset(name for name in session.model.trainable if name.startswith("f."))
    try:
        state = session.method.start(session.weights, session.config)
        state = next(iter(session.method.server(session.fleet, state, session.config)))
        weights = session.personal(state, 0, session.federation.names[0])
    finally:
        session.close()
    same = {name for name, value in weights.items() if torch.equal(value, session.weights[name])}
    assert same == session.model.resting


def test_every_arm_of_a_cfc_is_measured_and_drawn(tmp_path: Path) -> None:
    plan = experiment()
    arms = modules.arms_of(build("cfc", (6, 2), 3, {"hidden": 3, "backbone": 4, "head": 3}))
    chosen = [arm for arm in arms if arm.module in ("network", "f") and arm.method["name"] in ("local", "fedbits")]
    rows = modules.measure(plan, chosen, [0, 1], (0.01,))
    assert all(len(row.accuracy) == 2 and 0 <= min(row.accuracy) <= max(row.accuracy) <= 1 for row in rows)
    assert modules.gains(rows)["network", "alone"] == [0.0, 0.0]
    whole, bits = (
        next(row for row in rows if row.how == how) for how in ("all but the read-out shared", "the same in 7 bits")
    )
    assert bits.up < whole.up
    plots.modules(rows, tmp_path / "modules.svg")
    assert "<svg" in (tmp_path / "modules.svg").read_text()


def test_validation_rows_choose_the_rate() -> None:
    (row,) = modules.measure(experiment(), [Arm("network", "alone", {"name": "local"})], [0], (1e-7, 0.1))
    assert row.lr == 0.1
    with pytest.raises(BadInput, match=r"partition\.valid_share"):
        modules.measure(experiment(partition={"kind": "iid", "clients": 2, "samples": 8}), [], [0])


def test_a_method_with_a_loop_of_its_own_is_refused() -> None:
    arm = Arm("f", "frozen, pfedme", {"name": "pfedme"}, ("f",))
    with pytest.raises(BadInput, match="pfedme moved f, which must rest"):
        modules.measure(experiment(), [arm], [0], (0.05,))


def test_gain_is_seed_by_seed() -> None:
    rows = [Row("network", "alone", 0.1, [0.5, 0.7]), Row("f", "shared", 0.1, [0.6, 0.6])]
    assert modules.gains(rows)["f", "shared"] == pytest.approx([0.1, -0.1])
