"""A short look: a tenth of the passes, validation rows, and the split and devices of the full runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from potluck.planner import look as looks
from potluck.planner.archive import Spec, make, read
from potluck.planner.dry import dry_run
from potluck.planner.plan import Effort, plan
from potluck.runs import compare_plan
from potluck.runs.experiment import Experiment
from potluck.runs.rosters import equipment

VALUES: dict[str, Any] = {"data": {"source": "made"}, "fleet": {"devices": "boards"}, "budget": {"local_passes": 20}}


def planned(method: str, *settings: str) -> Experiment:
    return compare_plan.plan(VALUES, [method], 1, settings).runs[0].experiment


def test_it_trains_a_tenth_and_reads_no_test_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from potluck.data.federation import Federation

    parts: list[str] = []
    whole = Federation.materialise
    monkeypatch.setattr(
        Federation, "materialise", lambda self, i, part="train": parts.append(part) or whole(self, i, part)
    )
    found = looks.look(planned("fedavg", "method.recipe.epochs=1"))
    assert found is not None
    assert found.passes == (0.0, 1.0, 2.0)
    assert found.share == pytest.approx(0.1)
    assert found.scores[0] < 0.5
    assert "test" not in parts


def test_it_stays_within_a_tenth_where_devices_are_too_small() -> None:
    """FedBuff's rounds do not end with its steps, and clients that cannot train make passes fewer."""
    values = {**VALUES, "partition": {"clients": 12}, "fleet": {"devices": {"raspberry-pi-4": 10, "nrf52832": 2}}}
    run = compare_plan.plan(values, ["fedbuff"], 1, ["method.recipe.epochs=1"]).runs[0].experiment
    found = looks.look(run)
    assert found is not None
    assert found.share <= 0.1 + 1e-9
    with dry_run(looks.looked_at(run)) as (dry, session):
        assert session.fleet.unfit
        total = dry.table("steps")[-1]["passes"]
    assert 0 < found.passes[-1] <= 0.1 * total * (1 + 1e-6)
    assert found.share == pytest.approx(found.passes[-1] / total)


def test_a_first_step_may_be_the_whole_look() -> None:
    found = looks.look(planned("ditto", "method.recipe.epochs=1"))  # it trains two models, so a step has two passes
    assert found is not None
    assert found.passes == (0.0, 2.0)
    assert found.share == pytest.approx(0.1)


def test_a_method_with_long_steps_cannot_be_looked_at() -> None:
    assert looks.look(planned("fedavg", "method.recipe.epochs=10")) is None


def test_seed_split_and_deal() -> None:
    full = planned("fedavg")
    seen = looks.looked_at(full)
    assert seen.run.seed == looks.SEED
    assert seen.partition_spec().seed == full.partition_spec().seed == 0
    assert equipment(seen)[1].codes(12).tolist() == equipment(full)[1].codes(12).tolist()
    assert seen.partition_spec().valid_share == 0.25


def test_a_plan_with_data_says_what_the_look_saw() -> None:
    """The archive has no runs with this model, so nothing is predicted."""
    settings = ["method.recipe.epochs=1", "model.name=softmax"]
    found = plan(VALUES, ["local", "fedavg"], settings=settings, effort=Effort(seeds=1))
    assert [one.glimpse is not None for one in found.methods] == [True, True]
    assert found.facts["classes"] == 4
    assert found.data == "made"
    assert found.advice.use == f"{found.advice.method} leads after a tenth."
    assert "its runs are with the model mlp" in found.advice.because[0]
    ahead = max(found.methods, key=lambda one: one.glimpse.last if one.glimpse else 0.0)
    assert found.advice.method == ahead.name
    shown = found.json()
    assert shown["methods"]["fedavg"]["look"]["passes"] == [0.0, 1.0, 2.0]
    assert shown["methods"]["fedavg"]["prediction"] is None
    assert "model mlp" in shown["nothing_predicted"]


def test_a_situation_like_those_of_the_archive_is_predicted() -> None:
    settings = ["method.recipe.epochs=1", "model.name=mlp"]
    found = plan(VALUES, ["local", "fedavg", "fedprox"], settings=settings, effort=Effort(seeds=1))
    assert found.lacks == ""
    local, fedavg, fedprox = found.methods
    assert fedprox.prediction is None  # a method that the archive lacks
    best = max((local, fedavg), key=lambda one: one.prediction.accuracy.value if one.prediction else 0.0)
    assert found.advice.use == f"Use {best.name}."
    assert "looks at 3 methods and an archive of other data" in found.advice.because[0]
    assert any("does not have fedprox" in one for one in found.advice.would_change)
    for one in (local, fedavg):
        assert one.prediction is not None
        assert one.prediction.accuracy.low is not None
        assert one.prediction.accuracy.low < one.prediction.accuracy.value
        assert one.prediction.seconds is None  # times to a target were not foreseen in the back-test


def test_a_plan_says_less_where_a_simple_rival_is_closer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of two methods is no better predicted than the mean of other data: it is ranked, and has no figure."""
    from dataclasses import replace

    from potluck.planner import plain, predict, words
    from potluck.planner import plan as plans
    from potluck.planner.wish import Wish

    shipped = predict.calibration()
    assert shipped is not None
    errors = {"local": (0.08, 0.12, 120.0), "fedavg": (0.128, 0.123, 120.0)}
    for module in (plain, words, plans):
        monkeypatch.setattr(module, "calibration", lambda: replace(shipped, errors=errors, reached=(0.47, 720.0)))
    settings = ["method.recipe.epochs=1", "model.name=mlp"]
    wish = Wish.of(["accuracy 0.7"])
    found = plan(VALUES, ["local", "fedavg"], wish, settings=settings, effort=Effort(seeds=1))
    said = {one.name: words.told(one) for one in found.methods}
    assert said["fedavg"] == "–"
    assert "(" in said["local"]
    assert words.untold(found) == [
        "fedavg is ranked, but no accuracy is shown: the mean of other data was closer, 12.3 points off against 12.8."
    ]
    because = " ".join(found.advice.because)
    assert ("Its accuracy is not predicted" in because) == (found.advice.method == "fedavg")
    assert "accuracy of 0.7" in because
    assert "not predicted" in because  # when it is reached
    shown = found.json()["methods"]
    assert shown["fedavg"]["prediction"]["accuracy"] is None
    assert "closer" in shown["fedavg"]["prediction"]["no_accuracy"]
    assert shown["local"]["prediction"]["accuracy"]["low"] > 0
    assert "47 %" in shown["local"]["prediction"]["no_times"]
    page = found.write(tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "Time to the target" not in page
    assert "fedavg is ranked, but no accuracy is shown" in page


def test_an_archive_is_made_once(tmp_path: Any) -> None:
    spec = Spec(
        ("local",), ("pc",), 1, 3.0, {"made": "subject"}, {"few": {"most_rows": 8}}, {"method.recipe.epochs": 1}
    )
    (there,) = spec.situations()
    file = tmp_path / "made.jsonl"
    make(spec, there, file)
    before = file.read_bytes()
    assert {(one["kind"], one["seed"]) for one in read(file)} == {
        ("full", 0), ("facts", 0), ("look", 1000), ("look", 1500), ("dry", 0),
        ("dry", 1000), ("dry", 1001), ("dry", 1002),
    }  # fmt: skip
    make(spec, there, file)
    assert file.read_bytes() == before
    full, dry = (
        next(one for one in read(file) if one["kind"] == kind and one["seed"] == 0) for kind in ("full", "dry")
    )
    assert (full["up"], full["seconds"], full["joules"]) == (dry["up"], dry["seconds"], dry["joules"])
    assert len(full["scores"]) == len(full["curve"]["passes"]) == 4


def test_a_run_in_small_has_the_end_of_a_run() -> None:
    """FTL fine-tunes in the last fifth: its look is FedAvg's, its run in small is not."""
    full, plain = (planned(name, "method.recipe.epochs=1") for name in ("ftl", "fedavg"))
    small, look = looks.in_small(full, 5), looks.look(plain, 0.25)
    assert look is not None
    assert small.passes == look.passes == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    assert small.share == look.share == pytest.approx(0.25)
    assert small.scores[:5] == look.scores[:5]
    own = looks.in_small(full, 20)
    assert own.share == 1.0
    assert len(own.scores) == 21


def test_situations_cover_all_sets_first() -> None:
    spec = Spec(("local",), ("pc", "boards"), 1, 3.0, {"a": "iid", "b": "iid"}, {"x": {}, "y": {}}, {})
    found = spec.situations()
    assert len(set(found)) == len(found) == 8
    assert [one.data for one in found[:2]] == ["a", "b"]
