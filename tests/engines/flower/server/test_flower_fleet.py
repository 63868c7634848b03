"""What goes wrong on real machines: dishonest answers, restarts of either side, clients that come and go."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.short_runs import experiment_of, tiny
from safetensors.torch import load_file

from potluck.deploy.client.machine import ClientMachine
from potluck.deploy.server.open_session import rules_of
from potluck.engines.flower.protocol import Envelope, Reply
from potluck.engines.flower.server.members import Members
from potluck.errors import BadInput, Code
from potluck.fleet import FleetEmpty
from potluck.runs import drive
from potluck.runs.results import Run
from potluck.runs.watcher import Progress, Silent
from potluck.testing.loopback import Loopback, kept_models, machines, owners, staged
from potluck.wire.codec import decode, encode, walk


class Killed(BaseException):
    """As if the process had been killed: nothing may run after it."""


class Kill(Silent):
    def __init__(self, at: int) -> None:
        self.at = at

    def step(self, progress: Progress) -> None:
        if progress.step == self.at:
            raise Killed


def updates(ask: Envelope, answer: Envelope) -> bool:
    return ask.kind == "task" and bool(answer.body)


def carried(folder: Path, experiment: Any, wire: Loopback, watcher: Any = None) -> Run:
    folder.mkdir(exist_ok=True)
    return drive.carry_out(folder, staged(experiment, wire), watcher or Silent())


def spoiled(answer: Envelope, change: Any) -> Envelope:
    from potluck.methods import fedavg

    update = decode(answer.body, {"Trained": fedavg.Trained})
    return Envelope(answer.head, encode(walk(update, change)))


BAD: dict[str, Any] = {
    "a wrong shape": lambda answer: spoiled(answer, lambda t: t.reshape(-1)[:1] if t.dim() else t),
    "a NaN": lambda answer: spoiled(answer, lambda t: torch.full_like(t, torch.nan)),
    "rubbish": lambda answer: Envelope(answer.head, b"\x7f" * 100_000_000),
    "too many examples": lambda answer: spoiled(answer, lambda t: t * 1e6 if not t.dim() else t),
    "another ticket": lambda answer: Envelope({**answer.head, "ticket": "9.9"}, answer.body),
    "another's name": lambda answer: Envelope({**answer.head, "client": "s01"}, answer.body),
    "no head": lambda answer: Envelope({}, answer.body),
    "odd figures": lambda answer: Envelope({**answer.head, "worked": "long", "handed": -1}, answer.body),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_dishonest_answer_is_refused_and_the_run_goes_on(kind: str, tmp_path: Path) -> None:
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3))
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    wire = Loopback(
        homes, lambda node, ask, answer: [BAD[kind](answer) if node == 3 and updates(ask, answer) else answer]
    )
    run = carried(tmp_path / "run", experiment, wire)
    tasks = run.table("tasks")
    assert run.summary["rounds"] == 2
    assert [one["outcome"] for one in tasks if one["client"] != "s02"] == ["accepted"] * 4
    outcomes = {one["outcome"] for one in tasks if one["client"] == "s02"}
    assert outcomes == {"refused"}
    assert any(event["kind"] == "refused" and event["client"] == "s02" for event in run.table("events"))
    # As if it had not answered: the model is that of the other two alone.
    wire = Loopback(machines(experiment, tmp_path / "again", **owners(experiment)))
    wire.meddle = lambda node, ask, answer: ["went away"] if node == 3 and ask.kind == "task" else [answer]
    silent = carried(tmp_path / "silent", experiment, wire)
    found, expected = (load_file(one.folder / "models/global.safetensors") for one in (run, silent))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_repeated_answer_is_counted_once(tmp_path: Path) -> None:
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3))
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    run = carried(tmp_path / "run", experiment, Loopback(homes, lambda node, ask, answer: [answer, answer]))
    taken = [one["number"] for one in run.table("tasks") if one["outcome"] == "accepted"]
    assert sorted(taken) == list(range(6))
    assert any("answered before" in event["detail"] for event in run.table("events"))


@pytest.mark.parametrize("method", ["fedavg", "ftl", "centaur", "echopfl"])
def test_a_killed_server_program_goes_on_with_the_tasks_in_flight(method: str, tmp_path: Path) -> None:
    """Killed after every single step, and started again: nothing is lost, nothing is counted twice."""
    experiment = experiment_of(method, tiny(tmp_path / "tiny.npz", clients=3), rounds=2)
    homes = machines(experiment, tmp_path / "once", **owners(experiment))
    carried(tmp_path / "whole", experiment, Loopback(homes))
    again = machines(experiment, tmp_path / "often", **owners(experiment))
    wire, step = Loopback(again), 0
    while True:
        step += 1
        try:
            run = carried(tmp_path / "run", experiment, wire, Kill(step))
            break
        except Killed:
            continue
    assert step > 2
    taken = [one["number"] for one in run.table("tasks") if one["outcome"] == "accepted"]
    assert len(taken) == len(set(taken))
    if method == "echopfl":
        assert run.table("records")[0]
        arrivals = [one["value"] for one in run.table("records") if one["name"] == "arrivals"]
        assert max(int(one) for one in arrivals) == len(taken)
        return
    before, after = kept_models(homes), kept_models(again)
    for client, weights in before.items():
        for name, value in weights.items():
            assert torch.equal(after[client][name], value), (client, name)


def test_a_killed_server_program_finds_the_answers_it_had_been_given(tmp_path: Path) -> None:
    """An update that was taken after the last checkpoint is asked for again, and given again without training."""
    experiment = experiment_of("echopfl", tiny(tmp_path / "tiny.npz", clients=3), rounds=2)
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    wire = Loopback(homes)
    with pytest.raises(Killed):
        carried(tmp_path / "run", experiment, wire, Kill(3))
    asked = {ask.head["ticket"]: ask for _, ask in wire.asked if ask.kind == "task"}
    wire.asked.clear()
    carried(tmp_path / "run", experiment, wire)
    repeated = [ask.head["ticket"] for _, ask in wire.asked if ask.kind == "task" and ask.head["ticket"] in asked]
    assert repeated


def test_a_client_that_was_started_anew_has_its_state(tmp_path: Path) -> None:
    """Private state, the legs of a task and the run itself are on the client's disk."""
    experiment = experiment_of("ftl", tiny(tmp_path / "tiny.npz", clients=3))
    homes = machines(experiment, tmp_path / "once", **owners(experiment))
    carried(tmp_path / "whole", experiment, Loopback(homes))
    again = machines(experiment, tmp_path / "often", **owners(experiment))
    wire = Loopback(again)

    def forgets(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        name, machine = wire.machines[node]
        wire.machines[node] = (name, ClientMachine(machine.owner))  # a new process knows what is on the disk
        return [answer]

    wire.meddle = forgets
    carried(tmp_path / "run", experiment, wire)
    for client, weights in kept_models(homes).items():
        for name, value in weights.items():
            assert torch.equal(kept_models(again)[client][name], value)


def test_a_note_that_goes_with_a_task_is_counted_once(tmp_path: Path) -> None:
    experiment = experiment_of("echopfl", tiny(tmp_path / "tiny.npz", clients=3), rounds=4)
    experiment = experiment.with_(method={"legs": 1, "broadcast": {"predictor": "always"}})
    wire = Loopback(machines(experiment, tmp_path / "machines", **owners(experiment)))
    carried(tmp_path / "run", experiment, wire)
    rows = Run(tmp_path / "run").table("tasks")
    posts = [one["bytes_down"] for one in rows if one["outcome"] == "post"]
    tasks = {one["bytes_down"] for one in rows if one["outcome"] == "accepted"}
    assert posts
    assert len(tasks) == 1  # one model: with a note or without, a task has as many bytes
    assert tasks.pop() < 1.5 * posts[0]


def test_who_leaves_is_lost_and_who_comes_back_is_asked_again(tmp_path: Path) -> None:
    experiment = experiment_of("echopfl", tiny(tmp_path / "tiny.npz", clients=3), rounds=4)
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    wire = Loopback(homes)
    clock = [0.0]

    def tick() -> float:
        clock[0] += 0.5
        return clock[0]

    def leaves(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        if node == 2 and ask.kind == "task" and ask.head["count"] == 1 and wire.since[2] == "first":
            wire.since[2] = "second"  # killed and started anew: its answer never comes
            return []
        return [answer]

    wire.meddle = leaves
    (tmp_path / "run").mkdir()
    run = drive.carry_out(tmp_path / "run", staged(experiment, wire, clock=tick), Silent())
    mine = [one for one in run.table("tasks") if one["client"] == "s01" and one["outcome"] != "post"]
    assert [one["outcome"] for one in mine][:3] == ["accepted", "lost", "accepted"]
    assert {"left", "joined", "lost"} <= {event["kind"] for event in run.table("events") if event["client"] == "s01"}


def test_a_late_joiner_takes_part(tmp_path: Path) -> None:
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3), rounds=6)
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    wire = Loopback(homes)
    wire.away = {3}
    clock = [0.0]

    def tick() -> float:
        clock[0] += 0.5
        return clock[0]

    class Comes(Silent):
        def step(self, progress: Progress) -> None:
            wire.away.clear()

    (tmp_path / "run").mkdir()
    run = drive.carry_out(tmp_path / "run", staged(experiment, wire, clock=tick), Comes())
    assert {one["client"] for one in run.table("tasks")} == {"s00", "s01", "s02"}
    assert run.summary["clients"] == 3


def test_a_name_that_is_not_ones_own_is_turned_away(tmp_path: Path) -> None:
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3))
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    stolen = dataclasses.replace(homes["s00"].owner, home=tmp_path / "elsewhere")
    wire = Loopback({**homes, "mallory": ClientMachine(stolen)})
    wire.away = {4}
    session = staged(experiment, wire, list_every=0.0)
    wire.away.clear()
    wire.since[4] = "now"
    for _ in range(3):
        assert session.fleet.receive(until=session.fleet.now) is None
    reasons = [event.detail for event in session.fleet.log.events if event.kind == "refused"]
    assert any("claims the name 's00' but is registered as 'mallory'" in reason for reason in reasons)
    assert list(session.members) == ["s00", "s01", "s02"]


def test_a_run_without_anybody_ends(tmp_path: Path) -> None:
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3))
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    wire = Loopback(homes)
    wire.away = {1, 2, 3}
    members = Members(wire, {"rules": {}}, poll=0.0)
    with pytest.raises(FleetEmpty, match="0 of 1 clients came"):
        members.wait_for(1, 0.01)


def test_a_machine_with_a_device_and_an_access_point_counts_once(tmp_path: Path) -> None:
    """Otherwise two of three machines, four clients in all, would start the run without the third."""
    experiment = experiment_of("centaur", tiny(tmp_path / "tiny.npz", clients=3))
    wire = Loopback(machines(experiment, tmp_path / "machines", **owners(experiment)))
    wire.away = {2}
    members = Members(wire, {"rules": rules_of(experiment)}, poll=0.0, list_every=0.0)
    with pytest.raises(FleetEmpty, match="2 of 3 clients came"):
        members.wait_for(3, 0.01)
    wire.away.clear()
    wire.since[2] = "now"
    members.wait_for(3, 60.0)
    assert list(members) == ["s00", "s01", "s02", "s00-ap", "s01-ap", "s02-ap"]


def test_the_first_round_waits_for_all_that_are_online_to_join(tmp_path: Path) -> None:
    """A machine may need more than half a minute to join, on a busy computer; it is not left out."""
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3))
    clock = [0.0]

    def tick() -> float:
        clock[0] += 0.5
        return clock[0]

    class Slow(Loopback):
        def pull(self, messages: Collection[str]) -> list[Reply]:
            late = {str(i) for i, (name, ask) in enumerate(self.asked, 1) if ask.kind == "join" and name == "s02"}
            return super().pull(set(messages) - (late if clock[0] < 100.0 else set()))

    wire = Slow(machines(experiment, tmp_path / "machines", **owners(experiment)))
    session = staged(experiment, wire, patience=500.0, clock=tick)
    assert list(session.fleet.idle) == ["s00", "s01", "s02"]


def test_the_first_round_does_not_wait_for_a_machine_that_refused_or_left(tmp_path: Path) -> None:
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3))
    wire, clock = Loopback(machines(experiment, tmp_path / "machines", **owners(experiment))), [0.0]

    def tick() -> float:
        clock[0] += 0.5
        return clock[0]

    def meddle(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        if ask.kind == "join" and node == 2:
            return [Envelope({"kind": "join", "refused": "no"})]
        if ask.kind == "join" and node == 3:
            wire.away = {3}
            return []
        return [answer]

    wire.meddle = meddle
    session = staged(experiment, wire, patience=500.0, clock=tick)
    assert list(session.fleet.idle) == ["s00"]
    assert clock[0] < 30.0


def test_a_run_that_every_client_refuses_ends_with_the_reason(tmp_path: Path) -> None:
    """At once: a refusal is an answer, and waiting does not change it."""
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3))
    wire = Loopback(machines(experiment, tmp_path / "machines", **owners(experiment)))
    refusal = Envelope({"kind": "join", "refused": "the owner said no"})
    wire.meddle = lambda node, ask, answer: [refusal if ask.kind == "join" else answer]
    with pytest.raises(FleetEmpty, match=r"no client could join the run \(the owner said no\)"):
        staged(experiment, wire, patience=1e9)


def test_too_few_clients_are_told_with_a_code(tmp_path: Path) -> None:
    """Once, with what to do about it: the server program is not started again for it."""
    server_app = pytest.importorskip("potluck.deploy.server.app", reason="needs the extra flower")
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3))
    wire = Loopback(machines(experiment, tmp_path / "machines", **owners(experiment)))
    wire.away = {2, 3}
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "experiment.toml").write_text(experiment.toml(), encoding="utf-8")
    plan = {"run": "run", "clients": 3, "patience": 0.01, "poll": 0.0, "ttl": 60.0}
    (folder / "deploy.json").write_text(json.dumps(plan), encoding="utf-8")
    with pytest.raises(BadInput, match=r"1 of 3 clients came online within 0.01 seconds; .*--clients N") as caught:
        server_app.carry(folder, wire)
    assert caught.value.code is Code.TOO_FEW
    assert "[PL-808]" in (folder / "refused.txt").read_text(encoding="utf-8")
    assert not (folder / "run.db").exists()
