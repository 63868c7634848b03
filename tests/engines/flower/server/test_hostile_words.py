"""One registered client says anything it likes: the run goes on, and is as if that client had not answered."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.short_runs import experiment_of, tiny
from safetensors.torch import load_file

from potluck.engines.flower.protocol import Envelope
from potluck.engines.flower.server.words import Registered
from potluck.fleet import FleetEmpty
from potluck.runs import drive
from potluck.runs.results import Run
from potluck.runs.watcher import Silent
from potluck.testing.loopback import Loopback, machines, owners, staged
from potluck.wire.codec import decode, encode, flatten

HUGE = 10**400
LONE = "lone \ud800 surrogate"
LIAR = 3  # the node of s02
Lie = Callable[[Envelope, Envelope], Envelope]


def run_with(
    lie: Lie | None, folder: Path, kind: str, method: str = "fedavg", away: bool = False, **settings: Any
) -> Run:
    """A run of three clients whose third answers one kind of message with a lie, or never (`away`)."""
    folder.mkdir()
    experiment = experiment_of(method, tiny(folder / "tiny.npz", clients=3))
    homes = machines(experiment, folder / "machines", **owners(experiment))

    def meddle(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        if node != LIAR or ask.kind != kind:
            return [answer]
        return ["went away"] if lie is None else [lie(ask, answer)]

    wire = Loopback(homes, meddle)
    wire.away = {LIAR} if away else set()
    count = 2 if kind == "hello" else 3
    (folder / "run").mkdir()
    return drive.carry_out(folder / "run", staged(experiment, wire, count=count, **settings), Silent())


def same_models(one: Run, other: Run) -> None:
    a, b = (load_file(run.folder / "models/global.safetensors") for run in (one, other))
    assert all(torch.equal(a[name], b[name]) for name in a)


def refusals(run: Run, client: str = "s02") -> list[str]:
    return [
        event["detail"] for event in run.table("events") if event["kind"] == "refused" and event["client"] == client
    ]


def card(**changes: Any) -> Lie:
    """The answer to hello with other entries on the client's card."""

    def lie(ask: Envelope, answer: Envelope) -> Envelope:
        head = copy.deepcopy(answer.head)
        head["clients"][0] |= changes
        return Envelope(head)

    return lie


def head(**changes: Any) -> Lie:
    return lambda ask, answer: Envelope({**answer.head, **changes}, answer.body)


def many(ask: Envelope, answer: Envelope) -> Envelope:
    one = answer.head["clients"][0]
    return Envelope({**answer.head, "clients": [one, *({**one, "name": f"s02-{i}"} for i in range(300))]})


GREETINGS: dict[str, Lie] = {
    "train inf": card(train=float("inf")),
    "train 1e30": card(train=10**30),
    "train negative": card(train=-1),
    "train is a text": card(train="12"),
    "train is true": card(train=True),
    "test 1e30": card(test=10**30),
    "valid huge": card(valid=HUGE),
    "memory inf": card(memory=float("inf")),
    "memory huge": card(memory=HUGE),
    "storage nan": card(storage=float("nan")),
    "speed huge": card(macs_per_second=HUGE),
    "speed nan": card(macs_per_second=float("nan")),
    "shape inf": card(shape=[float("inf")]),
    "shape huge": card(shape=[10**9, 10**9]),
    "shape of others": card(shape=[5, 5]),
    "shape of 60 axes": card(shape=[1] * 60),
    "no shape": card(shape=[]),
    "times": card(times=True),
    "device surrogate": card(device=LONE),
    "link surrogate": card(link=LONE),
    "link with a line break": card(link="a\nb"),
    "device of a megabyte": card(device="x" * 1_000_000),
    "kind": card(kind="server"),
    "partner of another": card(partner="s00"),
    "partner nobody": card(partner="nobody", kind="device"),
    "60,000 classes": card(classes=[str(i) for i in range(60_000)]),
    "300 classes": card(classes=[str(i) for i in range(300)]),
    "class twice": card(classes=["0", "0"]),
    "class surrogate": card(classes=["0", LONE]),
    "no classes": card(classes=[]),
    "a card that is a list": head(clients=[[1, 2]]),
    "clients a number": head(clients=7),
    "clients a text": head(clients="s02"),
    "no clients": head(clients=[]),
    "the same client twice": lambda ask, a: Envelope({**a.head, "clients": a.head["clients"] * 2}),
    "303 clients": many,
    "another protocol": head(protocol=HUGE),
    "refused with a surrogate": lambda ask, answer: Envelope({"refused": LONE}),
    "refused with a megabyte": lambda ask, answer: Envelope({"refused": "no " * 1_000_000}),
    "refused with a table": lambda ask, answer: Envelope({"refused": {"a": [1]}}),
    "an unknown field": card(weight=9),
    "an empty head": lambda ask, answer: Envelope({}),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_with(None, tmp_path_factory.mktemp("two") / "run", "hello", away=True)


@pytest.mark.parametrize("kind", GREETINGS)
def test_a_greeting_that_lies_is_refused_for_its_client_alone(kind: str, two: Run, tmp_path: Path) -> None:
    run = run_with(GREETINGS[kind], tmp_path / "run", "hello")
    assert run.summary["clients"] == 2
    assert run.summary["refused_messages"] >= 1
    (reason,) = refusals(run)
    assert reason.isprintable()
    assert len(reason) < 700
    same_models(run, two)


def test_a_client_has_at_most_the_rows_that_were_registered(two: Run, tmp_path: Path) -> None:
    known = {"s02": Registered(rows=40)}
    run = run_with(card(train=41), tmp_path / "run", "hello", registered=known)
    assert "at most 40 rows" in refusals(run)[0]
    same_models(run, two)


def test_a_client_has_the_classes_that_were_registered(two: Run, tmp_path: Path) -> None:
    known = {"s02": Registered(classes=("0", "1", "2"))}
    run = run_with(card(classes=["0", "1", "strange"]), tmp_path / "run", "hello", registered=known)
    assert "the label 'strange'" in refusals(run)[0]
    same_models(run, two)


def _examples(ask: Envelope, answer: Envelope) -> Envelope:
    from potluck.methods import fedavg

    update = decode(answer.body, {"Trained": fedavg.Trained})
    return Envelope(answer.head, encode(fedavg.Trained(update.weights, torch.tensor(1e9))))


def test_rows_on_a_clients_own_word_count_at_most_ten_times_the_median(tmp_path: Path) -> None:
    """B5: a client that greets with 10**9 rows and claims as many examples would have the model for itself."""
    folder = tmp_path / "run"
    folder.mkdir()
    experiment = experiment_of("fedavg", tiny(folder / "tiny.npz", clients=3))
    homes = machines(experiment, folder / "machines", **owners(experiment))

    def meddle(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        if node == LIAR and ask.kind == "hello":
            return [card(train=10**9)(ask, answer)]
        if node == LIAR and ask.kind == "task":
            return [_examples(ask, answer)]
        return [answer]

    session = staged(experiment, Loopback(homes, meddle))
    fleet = session.fleet
    task_of = session.method.server(fleet, session.method.start(session.weights, session.config), session.config)
    seen: list[float] = []
    inner = fleet.gather
    fleet.gather = lambda tasks, until=None: [  # type: ignore[method-assign]
        seen.append(float(one.update.examples)) or one
        for one in inner(tasks, until)  # type: ignore[func-returns-value]
    ]
    next(task_of)
    honest = [member.sizes.train for name, member in session.members.by_name.items() if name != "s02"]
    assert max(seen) == 10 * sorted([*honest, 10**9])[1]
    assert any(event.kind == "capped" and event.client == "s02" for event in fleet.log.events)


def float8(ask: Envelope, answer: Envelope) -> Envelope:
    """B1: torch cannot add numbers of this type."""
    from potluck.methods import fedavg

    update = decode(answer.body, {"Trained": fedavg.Trained})
    weights = {name: value.to(torch.float8_e4m3fn) for name, value in update.weights.items()}
    return Envelope(answer.head, encode(fedavg.Trained(weights, update.examples)))


def long_number(ask: Envelope, answer: Envelope) -> Envelope:
    """B2: a number of 400 digits where the codec expects an odd float."""
    from safetensors.torch import load, save

    from potluck.methods import fedavg

    skeleton, _ = flatten(decode(answer.body, {"Trained": fedavg.Trained}))
    last = skeleton.rindex('["x",')
    wrong = skeleton[:last] + '["f",1' + "0" * 400 + "]]]"
    return Envelope(answer.head, save(load(answer.body), metadata={"potluck": wrong}))


ANSWERS: dict[str, Lie] = {
    "float8": float8,
    "400 digits": long_number,
    "refused with a surrogate": lambda ask, answer: Envelope({"refused": LONE}),
    "refused with a table": lambda ask, answer: Envelope({"refused": {"a": 1}}),
    "refused with nothing": lambda ask, answer: Envelope({"refused": None}),
    "ticket a table": head(ticket={"a": 1}),
    "leg huge": head(leg=HUGE),
    "leg true": head(leg=False),
    "client surrogate": head(client=LONE),
    "no bytes": lambda ask, answer: Envelope(answer.head, b""),
    "an unknown field": head(more=1),
    "worked a text": head(worked="long"),
    "worked huge": head(worked=HUGE),
    "handed negative": head(handed=-1),
}


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_with(None, tmp_path_factory.mktemp("silent") / "run", "task")


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_that_lies_is_as_none(kind: str, silent: Run, tmp_path: Path) -> None:
    run = run_with(ANSWERS[kind], tmp_path / "run", "task")
    assert {task["outcome"] for task in run.table("tasks") if task["client"] == "s02"} <= {"refused", "lost"}
    assert all(event["detail"].isprintable() for event in run.table("events"))
    same_models(run, silent)


SCORES: dict[str, Lie] = {
    "right huge": head(right=HUGE),
    "right more than rows": head(right=1e6),
    "right a text": head(right="all"),
    "right true": head(right=True),
    "loss huge": head(loss=HUGE),
    "loss nan": head(loss=float("nan")),
    "loss 1e300": head(loss=1e300),
    "shared negative": head(shared=-1.0),
    "own of three": head(own=[1.0, 2.0, 3.0]),
    "own huge": head(own=[1.0, HUGE]),
    "received a table": head(received={"a": 1}),
    "kept surrogate": head(kept=LONE),
    "kept nan": head(kept=float("nan")),
    "kept a table": head(kept={"a": 1}),
    "kept of a megabyte": head(kept="x" * 1_000_000),
    "another's scores": head(client="s00"),
    "asks for a field": head(missing="weights"),
    "asks for a field that is not there": head(missing="__dict__"),
    "refused with a surrogate": lambda ask, answer: Envelope({"refused": LONE}),
    "an empty head": lambda ask, answer: Envelope({}),
}


@pytest.mark.parametrize("kind", SCORES)
def test_scores_that_lie_are_left_out(kind: str, tmp_path: Path) -> None:
    run = run_with(SCORES[kind], tmp_path / "run", "evaluate")
    assert run.summary["rounds"] == 2
    assert sorted(run.summary["per_client"]) == ["s00", "s01"]
    assert run.summary["refused_messages"] >= 1
    assert refusals(run)


JOINS: dict[str, Lie] = {
    "refused with a surrogate": lambda ask, answer: Envelope({"refused": LONE}),
    "refused with a list": lambda ask, answer: Envelope({"refused": [HUGE]}),
    "nothing": lambda ask, answer: Envelope({}),
    "joined huge": head(joined=HUGE),
}


@pytest.mark.parametrize("kind", JOINS)
def test_an_answer_to_join_that_lies_is_a_refusal(kind: str, tmp_path: Path) -> None:
    run = run_with(JOINS[kind], tmp_path / "run", "join")
    assert {task["client"] for task in run.table("tasks")} == {"s00", "s01"}
    assert all(event["detail"].isprintable() for event in run.table("events"))


def test_an_access_point_that_the_method_cannot_use_costs_its_client_alone(two: Run, tmp_path: Path) -> None:
    def pair(ask: Envelope, answer: Envelope) -> Envelope:
        device = {**answer.head["clients"][0], "kind": "device", "partner": "s02-ap"}
        point = {
            **device,
            "name": "s02-ap",
            "kind": "access-point",
            "partner": "s02",
            "train": 0,
            "test": 0,
            "valid": 0,
        }
        return Envelope({**answer.head, "clients": [device, point]})

    run = run_with(pair, tmp_path / "run", "hello")
    assert "works with devices alone" in refusals(run)[0]
    same_models(run, two)


def test_a_server_with_refused_greetings_alone_says_why(tmp_path: Path) -> None:
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=1))
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    wire = Loopback(homes, lambda node, ask, answer: [card(train="many")(ask, answer)])
    with pytest.raises(FleetEmpty, match="train: must be"):
        staged(experiment, wire, patience=0.01)


def test_a_lying_score_stops_no_run(tmp_path: Path) -> None:
    """B7: all answers right, said by one of three, would move the mean by a third."""
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=3), rounds=3, stop={"accuracy": 0.999})
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))

    def meddle(node: int, ask: Envelope, answer: Envelope) -> list[Envelope | str]:
        if ask.kind != "evaluate":
            return [answer]
        rows = float(answer.head["samples"])
        return [head(right=rows if node == LIAR else rows * 0.9986, shared=None, own=None)(ask, answer)]

    (tmp_path / "run").mkdir()
    wire = Loopback(homes, meddle)
    run = drive.carry_out(tmp_path / "run", staged(experiment, wire), Silent())
    assert run.summary["accuracy"]["mean"] >= 0.999
    assert run.summary["rounds"] == 3
