"""The same experiment has the same clients in training on every engine: memory limits, dropouts, stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.short_runs import experiment_of, tiny

from potluck.deploy.server.open_session import check, open_session, rules_of
from potluck.deploy.simulated import DIFFERS, mishaps
from potluck.deploy.simulated_client import _figures
from potluck.engines.flower.server.members import Members
from potluck.errors import BadInput
from potluck.runs import drive
from potluck.runs.deal import federation_of
from potluck.runs.record import read
from potluck.runs.results import Run
from potluck.runs.rosters import roster_of
from potluck.runs.watcher import Progress, Silent
from potluck.testing.loopback import Loopback, machines, owners, staged

BOARD = "arduino-nano-33-ble-sense"
MIXED = ["pc-i7-9700", BOARD, "pc-i7-9700", BOARD]


class Heard(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.last: Progress | None = None

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def step(self, progress: Progress) -> None:
        self.last = progress


def on_flower(experiment: Any, folder: Path, heard: Heard) -> Run:
    """The run on the Flower engine, each client with the device that the local engine gives it."""
    experiment = experiment.with_(run={"engine": "flower-sim"})
    federation = federation_of(experiment)
    roster = roster_of(experiment, federation)
    homes = machines(experiment, folder / "machines", **{**owners(experiment), "device": "this-machine"})
    for name, machine in homes.items():
        machine._simulated = {name: _figures(roster[name])}
    members = Members(Loopback(homes), {"rules": rules_of(experiment)}, poll=0.0)
    members.wait_for(len(homes), 2.0)
    session = open_session(experiment, members, "run", 2.0, mishap=mishaps(experiment, roster))
    session.differs = DIFFERS
    (folder / "run").mkdir()
    return drive.carry_out(folder / "run", session, heard)


def test_clients_that_are_too_small_train_on_no_engine(tmp_path: Path) -> None:
    experiment = experiment_of(
        "fedavg",
        tiny(tmp_path / "tiny.npz", clients=4),
        model={"name": "mlp", "hidden": [4000]},
        fleet={"devices": MIXED},
        run={"out": str(tmp_path / "runs")},
        server={"share": 0.0},
    )
    here, heard = drive.start(experiment), Heard()
    there = on_flower(experiment, tmp_path, heard)
    assert here.summary["unfit_clients"] == there.summary["unfit_clients"] == ["s01", "s03"]
    assert list(here.summary["untrained_clients"]) == list(there.summary["untrained_clients"]) == ["s01", "s03"]
    assert here.summary["per_client"] == pytest.approx(there.summary["per_client"], abs=1e-6)
    assert there.summary["lost_clients"] == 0  # too small is not lost
    assert heard.said[0] == DIFFERS == there.summary["notes"][0]
    assert any(sentence.startswith("s01: does not fit: ") for sentence in heard.said)
    assert (here.summary["clock"], there.summary["clock"]) == ("virtual", "wall")
    assert heard.last is not None
    assert (heard.last.clock, heard.last.unfit) == ("wall", 2)


def test_dropouts_are_drawn_as_in_the_local_engine(tmp_path: Path) -> None:
    experiment = experiment_of(
        "fedavg",
        tiny(tmp_path / "tiny.npz", clients=4),
        rounds=4,
        faults={"dropout": 0.4},
        run={"out": str(tmp_path / "runs")},
        server={"share": 0.0},
    )
    here, there = drive.start(experiment), on_flower(experiment, tmp_path, Heard())
    lost = "SELECT client, number FROM tasks WHERE outcome = 'lost' ORDER BY number"
    rows = [[tuple(row) for row in read(run.folder / "run.db", lost)] for run in (here, there)]
    assert rows[0] == rows[1] != []
    assert here.summary["per_client"] == pytest.approx(there.summary["per_client"], abs=1e-6)


def test_a_run_with_only_small_devices_says_so_at_once(tmp_path: Path) -> None:
    experiment = experiment_of(
        "fedavg",
        tiny(tmp_path / "tiny.npz", clients=2),
        model={"name": "mlp", "hidden": [4000]},
        fleet={"devices": BOARD},
        server={"share": 0.0},
    )
    with pytest.raises(BadInput, match="none of 2 clients can hold the model; s00: does not fit"):
        on_flower(experiment, tmp_path, Heard())


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"faults": {"nan": 0.1}}, "except dropout"),
        ({"fleet": {"joins": {"s00": 5.0}}}, "needs virtual time, which the local engine has"),
    ],
)
def test_what_flower_sim_cannot_do_is_refused_by_its_name(section: dict[str, Any], words: str, tmp_path: Path) -> None:
    data = tiny(tmp_path / "tiny.npz", clients=2)
    with pytest.raises(BadInput, match=words) as refused:
        check(experiment_of("fedavg", data, run={"engine": "flower-sim"}, **section))
    assert "flower-sim" in str(refused.value)


def test_the_runs_settings_of_the_data_reach_the_clients(tmp_path: Path) -> None:
    """Columns, windows and missing values: a table on a client's machine is read as the experiment says."""
    draw = np.random.default_rng(0)
    folder = tmp_path / "people"
    folder.mkdir()
    for person in range(2):
        lines = ["when,ax,ay,what"]
        for k in range(240):
            what = k // 40 % 2
            lines.append(f"{k / 10},{draw.normal() + what:.3f},{'' if k % 50 == 7 else f'{draw.normal():.3f}'},{what}")
        (folder / f"p{person}.csv").write_text("\n".join(lines))
    experiment = experiment_of(
        "fedavg",
        str(folder),
        data={
            "columns": {"label": "what", "time": "when"},
            "window": {"seconds": 1.0},
            "missing": "interpolate",
        },
        server={"share": 0.0},
    )
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    for name, machine in homes.items():  # the raw table in place of the file that was dealt
        object.__setattr__(machine.owner, "data", str(folder / f"{name}.csv"))
    run = drive.carry_out(_made(tmp_path / "run"), staged(experiment, Loopback(homes)), Silent())
    assert run.summary["clients"] == 2
    assert run.summary["parameters"] > 10 * 2  # a window of ten readings of two axes
    dealt = machines(experiment, tmp_path / "again", **owners(experiment))  # windows already: not cut again
    again = drive.carry_out(_made(tmp_path / "second"), staged(experiment, Loopback(dealt)), Silent())
    assert again.summary["parameters"] == run.summary["parameters"]


def test_the_owner_of_a_machine_has_the_last_word_about_its_columns(tmp_path: Path) -> None:
    lines = ["ax,ay,secret,state", *(f"{k * 7 % 11},{k * 5 % 13},{k},{k % 2}" for k in range(40))]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=1), data={"columns": {"label": "secret"}})
    (machine,) = machines(experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=1)), tmp_path / "m").values()
    object.__setattr__(machine.owner, "data", str(tmp_path / "mine.csv"))
    object.__setattr__(machine.owner, "reading", {"columns": {"label": "state", "features": "ax,ay"}})
    assert machine._rows(rules_of(experiment)).dataset.class_names == ("0", "1")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
