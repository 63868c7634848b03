"""EchoPFL on a fleet: what clients do with broadcasts, what the server sends, and settings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.clusters import METHOD, model
from helpers.fleets import LINK, PC, fleet_of, made

from potluck import keys
from potluck.engines.local import Faults
from potluck.errors import BadInput
from potluck.fleet import Arrival, Data, Params
from potluck.methods import echopfl
from potluck.methods.echopfl import Carry, Note
from potluck.methods.parts.echopfl import tempo
from potluck.methods.parts.echopfl.feedback import nothing
from potluck.methods.parts.echopfl.legs import rebased
from potluck.wire.codec import decode, encode


def work(weights: Params, base: Params, serial: int) -> Carry:
    return Carry(weights, base, torch.tensor([serial, 1]), torch.tensor(1), keys.key(0), nothing(2))


def test_rebase_on_the_same_model_is_the_identity() -> None:
    base = model(1.0, 2.0, 3.0)
    before = work(model(1.5, 2.5, 2.0), base, 4)
    after = rebased(before, Note(base, torch.tensor([7, 2])))
    assert all(torch.equal(v, before.weights[n]) for n, v in after.weights.items())
    assert after.version.tolist() == [7, 2]


def test_rebase_keeps_progress_restart_drops_it_and_an_old_note_does_nothing() -> None:
    before = work(model(1.5, 2.5, 2.0), model(1.0, 2.0, 3.0), 4)
    note = Note(model(5.0, 5.0, 5.0), torch.tensor([7, 2]))
    assert rebased(before, note).weights["w"].tolist() == [5.5, 5.5]
    assert rebased(before, note, restart=True).weights["w"].tolist() == [5.0, 5.0]
    late = replace(note, version=torch.tensor([3, 1]))
    assert rebased(before, late).weights["w"].tolist() == [1.5, 2.5]
    assert rebased(before, late).version.tolist() == [4, 1]


def test_a_broadcast_reaches_a_client_at_work_between_legs() -> None:
    """A slow client's push begins from a version that came to be after its task was sent; with `next` it does not."""
    slow = replace(PC, macs_per_second=2.5e5)
    fast = replace(PC, macs_per_second=1e6)

    def bases(on_arrival: str) -> tuple[int, int]:
        cfg = METHOD.configure(
            {
                "broadcast.predictor": "always",
                "clusters.count": 1,
                "clusters.refine": False,
                "broadcast.on_arrival": on_arrival,
            }
        )
        fleet, state = fleet_of(METHOD, cfg, made((20, 20, 20)), equipment=[(fast, LINK), (fast, LINK), (slow, LINK)])
        program = METHOD.server(fleet, state, cfg)
        pushes: list[dict[str, Any]] = []  # of the slow client; with the first it becomes a member
        while len(pushes) < 2:
            for kind, client, detail in echopfl.events(next(program)):
                pushes += [json.loads(detail)] if (kind, client) == ("push", "c2") else []
        return pushes[1]["base"] - pushes[0]["version"], pushes[1]["staleness"]

    ahead, age = bases("next")
    assert ahead == 0  # it began from its own merge and got no broadcast since
    rebased_ahead, rebased_age = bases("rebase")
    assert rebased_ahead > 0
    assert rebased_age < age
    assert bases("restart") == (rebased_ahead, rebased_age)


def test_last_layer_only_leaves_the_others_as_they_were() -> None:
    from potluck.models import build

    net = build("mlp", (4,), 3, {"hidden": [5]})
    (x, y), *_ = made((10,))
    data = Data(torch.from_numpy(x), torch.from_numpy(y), torch.ones(10))
    weights = net.init(0)
    task = echopfl.Train(weights, torch.tensor([0, 0]), True, "rebase", "errors", 2, 1, echopfl.Recipe(1, 5, 0.1))
    done = echopfl.train(task, echopfl.Local(net, data, None, keys.key(1)))
    last = net.layers()[-1]
    for name, value in done.update.weights.items():
        assert torch.equal(value, weights[name]) != name.startswith(last)


def log_of(seed: int, arrivals: int = 16, **options: Any) -> list[tuple[float, tuple[tuple[str, str, str], ...]]]:
    cfg = METHOD.configure(
        {"broadcast.predictor": "ewma", "recipe.batch": 5, "recipe.lr": 0.1, "clusters.refine_every": 7}
    )
    slow = replace(PC, macs_per_second=1e5)
    fleet, state = fleet_of(
        METHOD, cfg, made((12, 7, 20, 15, 9, 11)), equipment=[(PC, LINK), (slow, LINK)], seed=seed, **options
    )
    program = METHOD.server(fleet, state, cfg)
    found = []
    for _ in range(arrivals):
        state = next(program)
        found.append((fleet.now, echopfl.events(state)))
    return found


def test_same_seed_same_event_log() -> None:
    assert log_of(3) == log_of(3)
    assert log_of(3) == log_of(3, workers=2)
    assert log_of(3) != log_of(4)


@pytest.mark.parametrize("steps", [1, 9, 26])
def test_a_run_goes_on_from_any_moment_with_the_same_bits(steps: int) -> None:
    """Models are rows of stacks before, and dictionaries from a checkpoint after."""
    cfg = METHOD.configure({"recipe.batch": 5, "recipe.lr": 0.1, "clusters.refine_every": 7})
    gear = [(PC, LINK), (replace(PC, macs_per_second=1e5), LINK)]

    def fleet() -> tuple[Any, Any]:
        return fleet_of(METHOD, cfg, made((12, 7, 20, 15, 9, 11)), equipment=gear, seed=3)

    def seen(fleet: Any, program: Any) -> Any:
        states = [next(program) for _ in range(20)]
        return [echopfl.events(state) for state in states], encode(states[-1]), encode(fleet.snapshot())

    whole, state = fleet()
    program = METHOD.server(whole, state, cfg)
    state = [next(program) for _ in range(steps)][-1]
    saved, kept = encode(whole.snapshot()), encode(state)
    again, _ = fleet()
    again.restore(decode(saved, METHOD.classes))
    assert seen(again, METHOD.server(again, decode(kept, METHOD.classes), cfg)) == seen(whole, program)


def test_a_broadcast_goes_to_all_of_the_cluster_but_the_sender() -> None:
    cfg = METHOD.configure({"broadcast.predictor": "always", "clusters.count": 1, "clusters.refine": False})
    fleet, state = fleet_of(METHOD, cfg, made((8, 8, 8, 8)))
    posts: list[tuple[set[str], str]] = []
    sender: list[str] = []
    post, receive = fleet.post, fleet.receive

    def spy_receive(until: float | None = None) -> Any:
        answer = receive(until)
        if isinstance(answer, Arrival):
            sender[:] = [answer.client]
        return answer

    def spy_post(note: Any, to: Any) -> None:
        posts.append((set(to), sender[0]))
        post(note, to)

    fleet.receive, fleet.post = spy_receive, spy_post  # type: ignore[method-assign]
    program = METHOD.server(fleet, state, cfg)
    for _ in range(12):
        state = next(program)
    assert posts
    for clients, sent_by in posts:
        assert sent_by not in clients
        assert clients == set(fleet.clients) - {sent_by}  # also those that have not pushed yet


def test_one_client_has_one_cluster_and_gets_no_broadcast() -> None:
    cfg = METHOD.configure({"broadcast.predictor": "always"})
    fleet, state = fleet_of(METHOD, cfg, made((8,)))
    program = METHOD.server(fleet, state, cfg)
    for _ in range(6):
        state = next(program)
    assert len(state.grouping.clusters) == 1
    assert state.grouping.broadcasts == 0


def test_a_yielded_state_is_never_changed_afterwards() -> None:
    cfg = METHOD.configure({"broadcast.predictor": "ewma", "recipe.batch": 5})
    fleet, state = fleet_of(METHOD, cfg, made((12, 7, 20)))
    program = METHOD.server(fleet, state, cfg)
    states = [next(program) for _ in range(3)]
    before = [
        (s.grouping.arrivals, dict(s.grouping.members), {k: dict(b.members) for k, b in s.grouping.clusters.items()})
        for s in states
    ]
    for _ in range(20):
        next(program)
    after = [
        (s.grouping.arrivals, dict(s.grouping.members), {k: dict(b.members) for k, b in s.grouping.clusters.items()})
        for s in states
    ]
    for old, new in zip(before, after, strict=True):
        assert old[0] == new[0]
        assert old[1].keys() == new[1].keys()
        assert old[2] == new[2]
        assert all(old[1][c] is new[1][c] for c in old[1])


def test_faults_of_every_kind_at_once() -> None:
    faults = Faults(dropout=0.1, late=0.1, duplicate=0.1, nan=0.1, corrupt=0.1)
    assert log_of(1, faults=faults) == log_of(1, faults=faults)


@pytest.mark.parametrize(
    "wrong",
    [
        {"broadcast.predictor": "rrn"},
        {"broadcast.predictor": "every"},
        {"broadcast.predictor": "every:0"},
        {"clusters.merge_rule": "newest"},
        {"broadcast.on_arrival": "ignore"},
        {"clusters.hysteresis": 1.5},
        {"clusters.count": 0},
        {"broadcast.c_gain": 0.0},
        {"clusters.assign": "l2"},
        {"pace.fill": 2.0},
        {"pace.bytes_per_second": -1.0},
        {"pace.bytes_per_second": "some"},
        {"clusters.first": "l2"},
        {"clusters.feedback": "loss"},
        {"clusters.alike": -1.0},
        {"pace.most_epochs": 1},
        {"legs": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"method.{next(iter(wrong))}"):
        METHOD.configure(wrong)


@pytest.mark.parametrize("server_rows", [True, False])
def test_kl_assignment_takes_noise_where_the_server_has_no_rows(server_rows: bool) -> None:
    cfg = METHOD.configure({"clusters.assign": "kl"})
    fleet, state = fleet_of(METHOD, cfg, made((8, 8, 8)), server_rows=server_rows)
    program = METHOD.server(fleet, state, cfg)
    for _ in range(4):
        state = next(program)
    assert len(state.grouping.members) == 3


def test_a_broadcast_lifts_the_last_layer_mode_of_a_client_at_work() -> None:
    before = replace(work(model(1.5, 2.5, 2.0), model(1.0, 2.0, 3.0), 4), last_layer=True)
    note = Note(model(5.0, 5.0, 5.0), torch.tensor([7, 2]), last_layer=True)
    assert rebased(before, note).last_layer
    assert not rebased(before, replace(note, last_layer=False)).last_layer


def test_a_limit_of_the_traffic_is_kept() -> None:
    """After every client's first push, bytes per second stay below the limit; without one they are far above it."""
    traffic = {}
    for limit in (0.0, 2000.0):
        cfg = METHOD.configure(
            {"broadcast.predictor": "ewma", "pace.bytes_per_second": limit, "recipe.batch": 5, "legs": 1}
        )
        fleet, state = fleet_of(METHOD, cfg, made((12, 7, 20, 15)), device=replace(PC, macs_per_second=1e6))
        program = METHOD.server(fleet, state, cfg)
        while fleet.now < 2.0 and state.grouping.arrivals < 200:
            state = next(program)
        tasks, _ = fleet.log.drain()
        traffic[limit] = sum(task.bytes_down + task.bytes_up for task in tasks) / fleet.now
        assert set(state.grouping.members) == set(fleet.clients)
    assert traffic[2000.0] < 0.5 * traffic[0.0]


def test_fedavgs_traffic_is_known_when_every_client_pushed() -> None:
    cfg = METHOD.configure({"pace.bytes_per_second": "fedavg", "recipe.epochs": 2})
    fleet, state = fleet_of(METHOD, cfg, made((8, 8)))
    pace = tempo.noted(tempo.Tempo(), "c0", 2.0, 2)
    assert tempo.rate(pace, cfg, fleet, state.grouping.first) == 0.0
    pace = tempo.noted(pace, "c1", 8.0, 2)
    model = tempo.size(state.grouping.first)
    assert tempo.rate(pace, cfg, fleet, state.grouping.first) == pytest.approx(2 * 2 * model / 8.0)


def test_with_fedavgs_traffic_the_first_round_is_fedavgs() -> None:
    """Until every client pushed once nobody pushes twice; after that the traffic stays below FedAvg's."""
    cfg = METHOD.configure(
        {"broadcast.predictor": "ewma", "pace.bytes_per_second": "fedavg", "recipe.batch": 5, "clusters.count": 1}
    )
    slow = replace(PC, macs_per_second=1e5)
    fleet, state = fleet_of(METHOD, cfg, made((12, 12, 12)), equipment=[(PC, LINK), (PC, LINK), (slow, LINK)])
    program = METHOD.server(fleet, state, cfg)
    pushed: list[str] = []
    while len(pushed) < 12:
        state = next(program)
        pushed += [client for kind, client, _ in echopfl.events(state) if kind in ("open", "push")]
    assert sorted(pushed[:3]) == ["c0", "c1", "c2"]
    allowed = tempo.rate(state.tempo, cfg, fleet, state.grouping.first)
    assert allowed > 0.0
    assert state.tempo.traffic <= allowed * fleet.now * 1.01 + 4 * tempo.size(state.grouping.first)


def test_a_lost_client_does_not_hold_up_the_others() -> None:
    """With FedAvg's traffic known clients wait for first pushes, but not for a client that was lost."""
    cfg = METHOD.configure({"broadcast.predictor": "ewma", "pace.bytes_per_second": "fedavg", "recipe.batch": 5})
    fleet, state = fleet_of(METHOD, cfg, made((12, 12, 12)), faults=Faults(dropout=0.5))
    program = METHOD.server(fleet, state, cfg)
    for _ in range(40):
        state = next(program)
    assert state.grouping.arrivals > 6


def test_an_update_that_was_overtaken_is_noted_and_starts_no_refinement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refinement is due after N arrivals that count, once: not again with every overtaken one that follows."""
    cfg = METHOD.configure({"broadcast.predictor": "ewma", "clusters.refine_every": 2})
    fleet, state = fleet_of(METHOD, cfg, made((8, 8)))
    program = METHOD.server(fleet, state, cfg)
    state = next(program)
    state = next(program)
    assert (state.grouping.arrivals, state.grouping.refinements) == (2, 1)
    receive = fleet.receive

    def overtaken(until: float | None = None) -> Any:
        answer = receive(until)
        assert isinstance(answer, Arrival)
        return replace(answer, update=replace(answer.update, version=torch.tensor([-1, 0])))

    monkeypatch.setattr(fleet, "receive", overtaken)
    state = next(program)
    assert [kind for kind, _, _ in echopfl.events(state)] == ["stale"]
    assert (state.grouping.arrivals, state.grouping.refinements) == (2, 1)
