"""The checks of the battery: plain functions that take a `Trial` and raise AssertionError with a sentence.

Each makes small runs of the method. The first line of its docstring says what passing means.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from potluck.errors import BadInput
from potluck.fleet import Params
from potluck.methods import HEADLINES
from potluck.runs.newcomers import measured
from potluck.testing.trial import (
    DEEP,
    DEVICE,
    ROUNDS,
    Ended,
    Models,
    Trial,
    assert_same,
    note_progress,
    personal,
    settings_of,
)
from potluck.wire.codec import decode, encode, flatten, size

Check = Callable[[Trial], None]


class NotApplicable(Exception):
    """This check does not apply to the method; the message says why."""


# -- what is sent and kept -------------------------------------------------------------------------------------------


def saves(trial: Trial) -> None:
    """The first state and the private state can be saved and read back."""
    session = trial.session()
    method, weights, config = session.method, session.weights, session.config
    _same_after_the_codec(trial, method.start(weights, config), "start")
    _same_after_the_codec(trial, method.private(weights, config), "private")


def runs(trial: Trial) -> None:
    """Four rounds run, and each client program returns Done."""
    ended = trial.plain
    assert any(task.outcome == "accepted" for task in ended.tasks), "server: no client answered any task."
    for client, weights in ended.models.items():
        _assert_finite(client, weights)


def messages(trial: Trial) -> None:
    """Tasks, notes, updates and states are the same after encoding, and have the size that was counted."""
    ended = trial.plain
    for message in ended.seen.messages:
        kind: Any = type(message)
        name = kind.__name__
        assert hasattr(kind, "__dataclass_params__"), f"{name}: must be a dataclass to be sent."
        assert kind.__dataclass_params__.frozen, (
            f"{name}: must be a frozen dataclass, many clients may hold the same one."
        )
        data = _same_after_the_codec(trial, message, name)
        assert len(data) == size(message), f"{name}: has {len(data)} bytes, but {size(message)} were counted."
    _same_after_the_codec(trial, ended.state, "State")
    for index, client in enumerate(ended.session.federation.names):
        _same_after_the_codec(trial, ended.session.fleet.mine(index), f"private state of {client}")


def _same_after_the_codec(trial: Trial, value: Any, what: str) -> bytes:
    try:
        data = encode(value)
        back = decode(data, trial.method.classes)
    except (BadInput, TypeError, ValueError) as error:
        raise AssertionError(f"{what}: cannot be saved and read back ({error}).") from error
    (skeleton, tensors), (skeleton_back, tensors_back) = flatten(value), flatten(back)
    assert skeleton == skeleton_back, f"{what}: is not the same after saving and reading it back."
    assert all(torch.equal(a, b) for a, b in zip(tensors, tensors_back, strict=True)), f"{what}: lost bits on the way."
    return data


def class_names(trial: Trial) -> None:
    """All dataclasses that are sent or kept have names of their own."""
    found: dict[str, type] = {}
    ended = trial.plain
    kept = [ended.session.fleet.mine(index) for index in range(len(ended.session.federation.names))]
    for value in [*ended.seen.messages, ended.state, *kept]:
        for kind in _classes_of(value):
            first = found.setdefault(kind.__name__, kind)
            assert first is kind, (
                f"{kind.__name__}: two classes have this name, in {first.__module__} and {kind.__module__}; rename one."
            )


def _classes_of(value: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value)
        inner: Any = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, dict):
        inner = value.values()
    else:
        inner = value if isinstance(value, list | tuple) else ()
    for item in inner:
        yield from _classes_of(item)


# -- what is learned -------------------------------------------------------------------------------------------------


def learns(trial: Trial) -> None:
    """Every client has a personal model, and training changed it."""
    _learned(trial, trial.plain.models, trial.session())


def _learned(trial: Trial, after: Models, session: Any) -> None:
    before = personal(session, session.method.start(session.weights, session.config))
    assert after.keys() == before.keys(), f"personal: must give a model to {sorted(before)}, got {sorted(after)}."
    for client, weights in after.items():
        lacking = before[client].keys() - weights.keys()
        assert not lacking, f"personal: {client} has no {sorted(lacking)[0]!r}, which it had at the start."
        assert any(not torch.equal(weights[name], value) for name, value in before[client].items()), (
            f"personal: the model of {client} is still that of the start after {ROUNDS} rounds."
        )


def infers(trial: Trial) -> None:
    """Each model that a client may infer with, received or its own, runs on the client's rows."""
    ended = trial.plain
    session = ended.session
    kind = session.method.headline(session.config)
    assert kind in HEADLINES, f"headline: must be one of {', '.join(HEADLINES)}, got {kind!r}."
    for name, scores in session.evaluate(ended.state).others.items():
        bad = [client for client, loss in zip(ended.models, scores.loss, strict=True) if not loss < float("inf")]
        assert not bad, f"{name}: the model of {bad[0]} gives a loss that is not a number."
    for index, client in enumerate(ended.models):
        own = session.fleet.kept.own(index)
        if own is not None:
            assert kind != "own", 'Done.own: leave it out, HEADLINE = "own" says that `personal` is that model.'
            _assert_finite(client, own)


def newcomers(trial: Trial) -> None:
    """Clients that took no part in training get a model, with and without labelled rows, and change nothing."""
    ended = trial.run(2, newcomers={"share": 0.4, "rows": [0, 2], "rounds": 2})
    session, state = ended.session, ended.state
    before = encode(state)
    found, again = (measured(session, state) for _ in range(2))
    assert found is not None
    assert found == again, "newcomers: two measurements of one state must be the same."
    assert encode(state) == before, "State: newcomers changed a tensor of it in place."
    names = found["rows"]["0"]["per_client"].keys()
    asked = {task.client for task in ended.tasks} & set(names)
    assert not asked, f"server: asked {sorted(asked)[0]}, which takes no part in training."
    for count, figures in found["rows"].items():
        told = f"newcomers: with {count} rows of each class"
        assert figures["per_client"].keys() == names, f"{told} some have no accuracy."
        assert all(0.0 <= one <= 1.0 for one in figures["per_client"].values()), f"{told} an accuracy is no share."


def same_seed(trial: Trial) -> None:
    """The same seed gives the same bits."""
    assert_same(trial.plain.models, trial.run().models, "two runs with one seed")


def other_seed(trial: Trial) -> None:
    """Another seed gives another model."""
    a, b = trial.plain.models, trial.run(run={"seed": 1}).models
    differ = any(not torch.equal(value, b[client][name]) for client in a for name, value in a[client].items())
    assert differ, "seed: must matter, but seeds 0 and 1 end with the same models."


def stacked(trial: Trial) -> None:
    """Clients trained together, as a stack, end like clients trained one by one."""
    alone = trial.run(run={"stacking": "never"}).models
    assert_same(trial.plain.models, alone, "stacked and one by one", tolerance=1e-5)


def workers(trial: Trial) -> None:
    """The number of threads does not change the bits."""
    assert_same(trial.plain.models, trial.run(run={"workers": 3}).models, "one thread and three")


def deep_model(trial: Trial) -> None:
    """A model with a hidden layer, batch norm and dropout learns, too: stacked or not, with the same bits per seed."""
    # Batches of four leave no client with a last batch of two: batch norm makes those two ±1, whatever they were, and
    # what is left of their gradient is rounding.
    deep = {"model": DEEP, "method": settings_of(trial.method, {"batch": 4})}
    try:
        session = trial.session(**deep)
    except BadInput as reason:
        raise NotApplicable(str(reason)) from None
    together = trial.run(2, **deep)
    _learned(trial, together.models, session)
    for client, weights in together.models.items():
        _assert_finite(client, weights)
    assert_same(together.models, trial.run(2, **deep).models, "two runs with one seed")
    # Adam and batch norm both divide by small numbers, which magnifies rounding.
    alone = trial.run(2, **deep, run={"stacking": "never"}).models
    assert_same(together.models, alone, "stacked and one by one", tolerance=1e-3)


# -- what goes wrong -------------------------------------------------------------------------------------------------


def resume(trial: Trial) -> None:
    """A run that is saved and started again at every yield ends with the same bits."""
    session = trial.session()
    state = session.method.start(session.weights, session.config)
    steps = 0
    while getattr(state, "round", steps) < ROUNDS:
        try:
            state = next(session.method.server(session.fleet, state, session.config))
        except StopIteration:  # the method ended by itself
            break
        steps += 1
        saved = encode({"state": state, "fleet": session.fleet.snapshot()})
        session.close()
        session = trial.session()
        found = decode(saved, trial.method.classes)
        session.fleet.restore(found["fleet"])
        state = found["state"]
        note_progress(session, getattr(state, "round", steps))
    assert_same(personal(session, state), trial.plain.models, "started again at every yield, and never")
    session.close()


def lost(trial: Trial) -> None:
    """Clients that are lost again and again do no harm, and the same seed still gives the same bits."""
    one, other = (trial.run(faults={"dropout": 0.4}) for _ in range(2))
    assert any(task.outcome == "lost" for task in one.tasks), "no client was lost, so nothing was checked."
    assert_same(one.models, other.models, "two runs with one seed and lost clients")


def all_lost(trial: Trial) -> None:
    """Rounds in which nearly every client is lost pass."""
    session = trial.session(faults={"dropout": 0.95})
    state = session.method.start(session.weights, session.config)
    program = session.method.server(session.fleet, state, session.config)
    for _, state in zip(range(3), program, strict=False):
        for client, weights in personal(session, state).items():
            _assert_finite(client, weights)
    assert session.fleet.now > 0, "fleet: no time has passed."
    session.close()


def late_joiner(trial: Trial) -> None:
    """A client that joins late gets tasks from then on, and a personal model."""
    late = trial.plain.session.federation.names[3]
    moment = max(task.arrived for task in trial.plain.tasks) / 4
    ended = trial.run(fleet={"joins": {late: moment}})
    assert late in ended.models, f"personal: {late} joined late and has no model."
    asked = {task.client for task in ended.tasks if task.sent >= moment}
    early = [task.sent for task in ended.tasks if task.client == late and task.sent < moment]
    assert not early, f"server: sent a task to {late} at {early[0]:.3g} s, but it joins at {moment:.3g} s."
    others = set(ended.models) - {late}
    assert late in asked or not others <= asked, f"server: asks all clients but {late}, which joined late."


def refused(trial: Trial) -> None:
    """A refused update leaves no trace, whatever was wrong with it."""
    spoiled = {kind: _faulty(trial, kind) for kind in ("nan", "corrupt", "oversize")}
    for kind, ended in spoiled.items():
        assert any(task.outcome == "refused" for task in ended.tasks), "no update was refused, so nothing was checked."
        assert_same(ended.models, spoiled["nan"].models, f"updates refused for {kind} and for nan")
    if not trial.plain.seen.by_the_clock:
        like_a_lost_client(trial, spoiled["nan"])


def like_a_lost_client(trial: Trial, spoiled: Ended | None = None) -> None:
    """A refused update leaves the same shared model as a client that never answered.

    Not so for a method by the clock: it learns of a loss sooner than of a refusal.
    """
    one, other = spoiled or _faulty(trial, "nan"), _faulty(trial, "dropout")
    assert_same({"shared": one.shared}, {"shared": other.shared}, "with refused updates and without an answer")


def _faulty(trial: Trial, kind: str) -> Ended:
    """Half of all tasks have this fault. One by one, because a stack of another size may round in another way."""
    return trial.run(faults={kind: 0.5}, wire={"limit_bytes": 10_000}, run={"stacking": "never"})


def repeated(trial: Trial) -> None:
    """An update that arrives twice counts once."""
    ended = trial.run(faults={"duplicate": 0.7})
    accepted = [task.number for task in ended.tasks if task.outcome == "accepted"]
    assert len(accepted) == len(set(accepted)), "an update was accepted twice."
    assert_same(ended.models, trial.plain.models, "with repeated updates and without")


def in_time(trial: Trial) -> None:
    """The server sees each answer when it has arrived and not before, on devices of unlike speed."""
    ended = trial.run(fleet={"devices": [DEVICE, "galaxy-s2"] * 2 + [DEVICE]})
    moments = [moment for moment, _ in ended.seen.answers]
    assert moments == sorted(moments), "fleet.now: went back."
    for moment, answer in ended.seen.answers:
        assert answer.at <= moment, f"{answer.client}: answered at {answer.at:.3g} s and was seen at {moment:.3g} s."


def flower(trial: Trial) -> None:
    """On the Flower engine, in one process, it ends with the models of the local engine."""
    from potluck.testing import loopback

    experiment = trial.experiment(stop={"rounds": 2})
    with tempfile.TemporaryDirectory(prefix="potluck-check-") as folder:
        there = loopback.models(experiment, Path(folder))
    here = trial.run(2).models
    assert there.keys() == here.keys(), f"clients: must be {sorted(here)}, got {sorted(there)}."
    if not trial.plain.seen.by_the_clock:
        assert_same(there, here, "Flower engine and local engine", tolerance=1e-5)
    # Another clock may lead to another order, and so to other models: then only that it works can be said.
    for client, weights in there.items():
        assert weights.keys() == here[client].keys(), f"{client}: has other weights than on the local engine."
        _assert_finite(client, weights)


def private_to_each(trial: Trial) -> None:
    """No client is sent what another one said or holds: no rows, no update, no personal model of another client."""
    from potluck.testing import leaks, loopback

    experiment = trial.experiment(stop={"rounds": 3})
    with tempfile.TemporaryDirectory(prefix="potluck-check-") as folder:
        found = leaks.leaks(experiment, Path(folder), loopback)
    assert not found, found[0]


def _assert_finite(client: str, weights: Params) -> None:
    for name, value in weights.items():
        assert torch.isfinite(value).all(), f"personal: {client} has numbers in {name!r} that are not finite."


CHECKS: dict[str, Check] = {
    check.__name__.replace("_", "-"): check
    for check in (
        saves, runs, messages, class_names, learns, infers, newcomers, same_seed, other_seed, stacked, workers,
        deep_model, resume, lost, all_lost, late_joiner, refused, repeated, in_time, flower, private_to_each,
    )
}  # fmt: skip
