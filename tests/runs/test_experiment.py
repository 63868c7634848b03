"""Experiments: what is written is what runs, and what is wrong is told in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.errors import BadInput
from potluck.runs.build import build
from potluck.runs.experiment import Experiment, override, to_toml

BASE: dict[str, Any] = {"data": {"source": "made"}, "fleet": {"devices": "boards"}}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    experiment = Experiment.of(
        {
            **BASE,
            "method": {"name": "fedprox", "mu": 0.5},
            "partition": {"kind": "dirichlet", "alpha": 0.3, "clients": 7},
            "fleet": {"devices": {"raspberry-pi-4": 0.5, "jetson-nano": 0.5}, "joins": {"c1": 3.0}},
            "model": {"name": "mlp", "hidden": [8, 4]},
            "run": {"name": 'a "quoted" \\ name\n'},
        }
    )
    path = tmp_path / "e.toml"
    path.write_text(experiment.toml())
    assert Experiment.read(path) == experiment


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.one_of(
            st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.text()
        ),
        max_size=4,
    )
)
def test_toml_survives_any_text(values: dict[str, Any]) -> None:
    import tomllib

    assert tomllib.loads(to_toml({"model": values}))["model"] == values


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"stop": {"round": 3}}, "stop.round: 'round' is not known, did you mean 'rounds'"),
        ({"stops": {}}, "stops: 'stops' is not known, did you mean 'stop'"),
        ({"stop": {"rounds": -1}}, "stop.rounds: must be at least 0, got -1."),
        ({"stop": {"rounds": 0}}, "stop: nothing would ever end this run"),
        ({"stop": {"rounds": None}}, "stop: nothing would ever end this run"),
        ({"method": {"recipe.lr": 0.1}}, "method.name: missing"),
        ({"method": {"name": "fedavgs"}}, "method: 'fedavgs' is not known, did you mean 'fedavg'"),
        (
            {"method": {"name": "fedavg", "epoch": 1}},
            "method.epoch: 'epoch' is not known, did you mean 'recipe.epochs'",
        ),
        ({"method": {"name": "fedavg", "recipe.lr": -1}}, "method.recipe.lr: must be above 0 and finite, got -1.0."),
        ({"partition": {"kind": "dirichlets"}}, "partition.kind: 'dirichlets' is not known"),
        ({"partition": {"alfa": 1}}, "partition.alfa: 'alfa' is not known, did you mean 'alpha'"),
        ({"partition": {"clients": "many"}}, "partition.clients: must be a whole number, got 'many'"),
        ({"model": {"name": "mpl"}}, "'mpl' is not known, did you mean 'mlp'"),
        ({"model": {"name": "mlp", "hiden": [3]}}, "'hiden' is not known, did you mean 'hidden'"),
        ({"fleet": {"devices": "raspberry"}}, "'raspberry' is not known, did you mean 'raspberry-pi"),
        ({"fleet": {"devices": "boards", "joins": {"nobody": 1.0}}}, "fleet.joins: client: 'nobody' is not known"),
        ({"faults": {"nan": 0.7, "late": 0.6}}, "faults: the probabilities must add up to at most 1, got 1.3"),
        ({"faults": {"dropout": 2}}, "faults.dropout: must be at most 1, got 2."),
        ({"run": {"engine": "warp"}}, "run.engine: 'warp' is not known"),
        ({"data": {"source": "no_such_set"}}, "no_such_set"),
        ({"server": {"source": "made", "share": 1.5}}, "server.share: must be"),
    ],
)
def test_mistakes_get_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        build(Experiment.of({**BASE, "method": {"name": "fedavg"}, **change}))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_without_a_last_round_is_written_so(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text(Experiment.of({**BASE, "stop": {"rounds": None, "accuracy": 0.5}}).toml())
    assert Experiment.read(path).stop.rounds is None


def test_overrides_read_values_as_toml_or_text() -> None:
    values = override(
        {"method": {"name": "fedavg"}},
        [
            "stop.rounds=7",
            "method.recipe.lr=0.5",
            "data.source=my/file.npz",
            "model.hidden=[3, 4]",
            "fleet.devices.pc=1",
        ],
    )
    assert values["stop"]["rounds"] == 7
    assert values["method"] == {"name": "fedavg", "recipe": {"lr": 0.5}}
    assert values["data"]["source"] == "my/file.npz"
    assert values["model"]["hidden"] == [3, 4]
    assert values["fleet"]["devices"] == {"pc": 1}


@pytest.mark.parametrize("setting", ["rounds=3", "stop.rounds", "=3", "stop.=3", "nosuch.key=1"])
def test_overrides_that_are_none(setting: str) -> None:
    with pytest.raises(BadInput, match="--set"):
        override({}, [setting])


def test_a_file_that_is_not_there_or_no_toml(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file"):
        Experiment.read(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="must be a TOML file, got a folder"):
        Experiment.read(tmp_path)
    (tmp_path / "bad.toml").write_text("[stop\nrounds = 3")
    with pytest.raises(BadInput, match="is not valid TOML"):
        Experiment.read(tmp_path / "bad.toml")


def test_the_seed_reaches_the_method() -> None:
    parts = build(Experiment.of({**BASE, "method": {"name": "ftl"}, "run": {"seed": 5}, "stop": {"rounds": 9}}))
    assert parts.config.seed == 5


def test_the_servers_rows_are_nobody_elses() -> None:
    parts = build(Experiment.of({**BASE, "server": {"share": 0.2}}))
    whole = build(Experiment.of(BASE))
    own = len(parts.fleet.home.data.y)
    left = len(parts.federation.dataset)
    assert own > 0
    assert own + left == len(whole.federation.dataset)
    assert len(whole.fleet.home.data.y) == 0
    assert parts.fleet.home.data.x.abs().mean() < 2.0  # standardised by themselves


COUNTING = """
from dataclasses import dataclass
from torch import Tensor
from potluck.fleet import Done
from potluck.methods.fedavg import Config, State, server, shared, start

@dataclass(frozen=True)
class Count:
    pass

@dataclass(frozen=True)
class Counted:
    train: Tensor
    valid: Tensor

def count(task, local):
    return Done(Counted(local.data.weight.sum(), local.valid.weight.sum()))

PROGRAMS = {Count: count}
"""


def test_validation_rows_reach_the_client(tmp_path: Path) -> None:
    own = tmp_path / "counting.py"
    own.write_text(COUNTING)
    parts = build(Experiment.of({**BASE, "method": {"name": str(own)}, "partition": {"valid_share": 0.25}}))
    asked = list(parts.fleet.clients)[:2]
    arrivals = parts.fleet.gather({client: parts.method.module.Count() for client in asked})
    found = {arrival.client: arrival.update for arrival in arrivals}
    assert [float(found[client].train) for client in asked] == [float(n) for n in parts.federation.sizes[:2]]
    assert [float(found[client].valid) for client in asked] == [float(n) for n in parts.federation.valid_sizes[:2]]
    assert parts.federation.valid_sizes[0] > 0
    assert not set(parts.federation.valid_rows(0)) & set(parts.federation.train_rows(0))
