"""Pairs of clients in an experiment, from the file to the report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import potluck
from potluck.errors import BadInput
from potluck.report import write
from potluck.report.pictures import of, together
from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from potluck.runs.pretrain import pretrain


def experiment(out: Path, name: str = "centaur", **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "data": {"source": "made"},
        "partition": {"valid_share": 0.1},
        "fleet": {"devices": "centaur", "access_point": "centaur-ap"},
        "model": {"name": "mlp", "hidden": [8]},
        "method": {"name": name, "cohort": 3, "recipe.batch": 16, "recipe.lr": 0.1},
        "stop": {"rounds": 4},
        "run": {"out": str(out)},
    }
    for section, part in more.items():
        values[section] = {**values.get(section, {}), **part}
    return values


def test_every_client_gets_a_partner(tmp_path: Path) -> None:
    parts = build(Experiment.of(experiment(tmp_path)))
    roster, n = parts.fleet.clients, len(parts.federation.names)
    assert len(roster) == 2 * n
    for name in parts.federation.names:
        mine = roster[name]
        assert (mine.kind, mine.device, mine.link) == ("device", "centaur-ucd", "centaur-ucd")
        theirs = roster[mine.partner or ""]
        assert (theirs.kind, theirs.device, theirs.link) == ("access-point", "centaur-ap", "centaur-ap")
        assert (theirs.samples, theirs.partner) == (0, name)
    assert parts.evaluator.clients == list(parts.federation.names)


def test_a_run_of_pairs_and_its_pictures(tmp_path: Path) -> None:
    run = potluck.run(experiment(tmp_path, method={"connection.mobility": [0.4, 0.7]}))
    assert run.summary["accuracy"]["mean"] > 0.3
    assert not run.summary["unfit_clients"]
    clients = {row["client"]: row for row in run.table("clients")}
    assert {row["kind"] for row in clients.values()} == {"device"}  # only devices are evaluated
    tasks = run.table("tasks")
    assert {task["program"] for task in tasks} == {"Collect", "Retrain", "relay"}
    partners = {row["partner"] for row in clients.values()}
    assert all((task["client"] in partners) == (task["program"] != "Collect") for task in tasks)
    assert any(task["bytes_handoff"] > 0 for task in tasks if task["program"] == "Collect")
    records = {row["name"]: float(row["value"]) for row in run.table("records")}
    assert records["steps"] > 0
    assert records["discarded"] + records["kept"] + records["chosen"] == records["collected"]
    assert records["handed"] >= records["chosen"]  # every epoch chooses anew
    titles = [picture.title for picture in of(run)]
    assert titles == ["Accuracy against cost", "Use of the samples", "Connectivity by time of day"]
    assert all(picture.svg.startswith("<svg") and "http://" not in picture.caption for picture in of(run))
    other = potluck.run(experiment(tmp_path, "ucd", stop={"rounds": 2}))
    assert [picture.title for picture in together([[run], [other]])] == ["Accuracy against cost"]
    assert together([[run]]) == []
    page = write([run, other], tmp_path / "both.html").read_text()
    heads = re.findall(r"<figcaption>([^<]*)</figcaption>", page)
    assert [head for head in heads if "against cost" in head] == ["Accuracy against cost"]  # not of each once more
    assert "Use of the samples" in heads


def test_only_methods_for_pairs_take_them(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="fedavg has no use for access points"):
        build(Experiment.of(experiment(tmp_path, "fedavg")))
    with pytest.raises(BadInput, match=r"fleet.access_point.*centaur-ap"):
        build(Experiment.of(experiment(tmp_path, fleet={"access_point": "centaur-app"})))


def test_the_classifier_follows_the_smallest_device(tmp_path: Path) -> None:
    chosen = {"name": "convnet", "width": 4, "features": 20}
    values = experiment(tmp_path)
    for classifier, memory, expected in (
        ("largest", {}, "large"),
        ("smallest", {}, "small"),
        ("largest", 11.0, "small"),
    ):
        more = {"memory_kb": memory} if memory else {}
        values["model"] = {**chosen, "classifier": classifier, **more}
        assert build(Experiment.of(values)).model.settings["classifier"] == expected
    values["model"] = {**chosen, "classifier": "small", "memory_kb": 11.0}
    with pytest.raises(BadInput, match=r"model.memory_kb.*smallest"):
        build(Experiment.of(values))


def test_a_run_begins_with_a_pretrained_encoder(tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    heard: list[float] = []
    done = pretrain(file, "made", {"name": "mlp", "hidden": [8]}, epochs=3, lr=0.05, said=lambda _, a: heard.append(a))
    assert done.accuracy == heard[-1] > 0.3
    kept = load_file(file)
    assert set(kept) == {"fc1.weight", "fc1.bias"}
    values = experiment(tmp_path, "ucd", model={"encoder": str(file)}, stop={"rounds": 1})
    parts = build(Experiment.of(values))
    assert torch.equal(parts.weights["fc1.weight"], kept["fc1.weight"])
    run = potluck.run(values)
    end = load_file(run.folder / "models" / "global.safetensors")
    assert torch.equal(end["fc1.weight"], kept["fc1.weight"])


def test_pretraining_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must be above 0, got 0"):
        pretrain(tmp_path / "e.safetensors", "made", {}, epochs=0)
    with pytest.raises(BadInput, match="no folder"):
        pretrain(tmp_path / "no" / "e.safetensors", "made", {})
    with pytest.raises(BadInput, match="nothing before 'fc'"):
        pretrain(tmp_path / "e.safetensors", "made", {"name": "softmax"}, epochs=1)
