"""A client machine: one process that hosts a client, or a device and its access point, and answers the server.

It runs programs of methods that are installed on it (or that its owner named), never code that came with a message.
Samples and private state stay on its disk.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from potluck.deploy.client.bounds import door_here, guard_here, privacy_of, step_noise_here
from potluck.deploy.client.card import card, figures_here
from potluck.deploy.client.evaluate import evaluate
from potluck.deploy.client.joined_run import JoinedRun, run_name
from potluck.deploy.client.owner import Owner
from potluck.deploy.client.rows import LocalRows, read, split_rows
from potluck.engines.execute import Executor
from potluck.engines.flower.client.client import FlowerClient
from potluck.engines.flower.client.journal import Journal
from potluck.engines.flower.protocol import PROTOCOL, Envelope
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, ClientProgram
from potluck.learn import StepNoise
from potluck.methods import Method
from potluck.models import Model
from potluck.runs.model_files import file_name
from potluck.runs.pairing import SUFFIX
from potluck.runs.summary import versions
from potluck.wire.codec import decode


class ClientMachine:
    """Answers the messages of a server (see `engines/flower/protocol.py`)."""

    def __init__(
        self, owner: Owner, rows: LocalRows | None = None, figures: Mapping[ClientId, Mapping[str, Any]] | None = None
    ) -> None:
        owner.check()
        self.owner = owner
        self._given = rows  # only in a simulation, where no file is read
        self._simulated = figures or {}  # only in a simulation: the figures of each client's device
        self._split: dict[str, LocalRows] = {}  # by the rules of the split
        self._clients: dict[tuple[str, ClientId], FlowerClient] = {}
        self._making = Lock()

    @cached_property
    def names(self) -> list[ClientId]:
        name = self.owner.name
        return [name, f"{name}{SUFFIX}"] if self.owner.access_point else [name]

    def _partner(self, name: ClientId) -> ClientId | None:
        return next((other for other in self.names if other != name), None)

    def handle(self, ask: Envelope) -> Envelope:
        """Return the answer. There always is one: what cannot be done is answered with the reason."""
        try:
            if ask.kind == "hello":
                return self._hello(ask.head)
            if ask.kind == "join":
                return self._join(ask)
            if ask.kind == "task":
                return self.client(ask).work(ask)
            if ask.kind == "evaluate":
                client, run = self.client(ask), JoinedRun.read(self.owner, run_name(ask.head))
                return evaluate(ask, client, run, self._of_run(run, self.owner.name))
            if ask.kind == "secure" and (door := self.client(ask).door) is not None:
                return door.answer(ask)
            raise BadInput(Code.MESSAGE, f"message: its kind must be hello, join, task or evaluate, got {ask.kind!r}.")
        except BadInput as error:
            return Envelope({"kind": ask.kind, "refused": error.told})
        except Exception as error:  # a program may fail in any way; the machine must stay up and say why
            return Envelope({"kind": ask.kind, "refused": f"{type(error).__name__}: {' '.join(str(error).split())}"})

    def client(self, ask: Envelope) -> FlowerClient:
        """The client that a message is for, in the run that it names."""
        run, name = run_name(ask.head), str(ask.head.get("client"))
        if name not in self.names:
            raise BadInput(Code.MESSAGE, f"client: {name!r} is not on this machine, only {', '.join(self.names)}.")
        with self._making:
            if (run, name) not in self._clients:
                joined = JoinedRun.read(self.owner, run)
                for one in self.names:
                    self._clients[run, one] = self._make(joined, one)
            return self._clients[run, name]

    # -- hello and join ----------------------------------------------------------------------------------------------

    def _hello(self, head: Mapping[str, Any]) -> Envelope:
        if head.get("protocol") != PROTOCOL:
            raise BadInput(
                Code.NOT_JOINED,
                f"protocol: the server speaks {head.get('protocol')!r}, this machine {PROTOCOL}; update potluck.",
            )
        rows = self._rows(head["rules"])
        clients = [
            {**card(self.owner, name, self._partner(name), rows, self._figures), **self._simulated.get(name, {})}
            for name in self.names
        ]
        return Envelope({"kind": "hello", "protocol": PROTOCOL, "clients": clients, "versions": versions()})

    @cached_property
    def _figures(self) -> dict[str, Any]:
        return figures_here(self.owner)

    def _rows(self, rules: dict[str, Any]) -> LocalRows:
        """The samples on this machine, split by these rules."""
        if self._given is not None:
            return self._given
        key = json.dumps(rules, sort_keys=True)
        if key not in self._split:
            self._split[key] = split_rows(
                read(self.owner.data, {**rules.get("reading", {}), **self.owner.reading}), rules
            )
        return self._split[key]

    def _join(self, ask: Envelope) -> Envelope:
        """Keep what the run is on disk: a machine that is started again reads it there."""
        JoinedRun.write(self.owner, ask)
        with self._making:
            self._clients.clear()
        self.client(Envelope({**ask.head, "client": self.owner.name}))
        return Envelope({"kind": "join", "joined": True})

    # -- the clients of a run ----------------------------------------------------------------------------------------

    def _of_run(self, run: JoinedRun, name: ClientId) -> LocalRows:
        """A client's samples, with its labels numbered as in the run; an access point has none."""
        whole = self._rows(run.head["rules"])
        if whole.dataset.sample_shape != run.shape:
            raise BadInput(
                Code.NOT_JOINED,
                f"data: samples must have the shape {list(run.shape)}, got {list(whole.dataset.sample_shape)}.",
            )
        is_ap = name != self.owner.name
        return LocalRows(whole.federation, None if is_ap else whole.index, whole.order_in(run.labels))

    def _make(self, run: JoinedRun, name: ClientId) -> FlowerClient:
        method, model, rows = run.method(), run.model(), self._of_run(run, name)
        classes = method.classes
        partner, noise = self._partner(name), float(run.head["noise"])
        secret = 0 if self._simulated else secrets.randbits(62)
        bound = privacy_of(run.head.get("privacy"))
        return FlowerClient(
            name=name,
            seed=int(run.head["seed"]),
            samples=rows.count("train"),
            executor=self._executor(run, method, model, rows, classes, step_noise_here(bound, secret)),
            programs=method.programs,
            classes=classes,
            journal=Journal(run.folder / "clients" / file_name(name), classes),
            private=decode(run.private, classes)["private"],
            noise=noise,
            still={"buffers", *(buffer for buffer, _ in model.module.named_buffers())} if noise else set(),
            guard=guard_here(bound, method),
            secret=secret,
            door=door_here(run.head.get("secure"), method, name),
            limit=self.owner.limit,
            partner=partner,
            parcel=lambda ticket: self._clients[run.name, str(partner)].journal.handoff(ticket),
        )

    def _executor(
        self,
        run: JoinedRun,
        method: Method,
        model: Model,
        rows: LocalRows,
        classes: Mapping[str, type],
        step: StepNoise | None,
    ) -> Executor:
        return Executor(
            model,
            self._programs(method),
            classes,
            lambda _, capacity: rows.rows("train", capacity),
            stacking="never",
            valid=(lambda _, capacity: rows.rows("valid", capacity)) if run.head["valid"] else None,
            valid_sizes=np.array([rows.count("valid")]),
            step=step,
        )

    def _programs(self, method: Method) -> Mapping[type, ClientProgram]:
        """The method's programs. Where a board trains for this client, its rounds run on the board."""
        if not self.owner.board:
            return method.programs
        from potluck.firmware.program import BitsProgram, BoardProgram, BoardTrainer

        if method.name == "fedbits":
            return dict.fromkeys(method.programs, BitsProgram(self.owner.name, self.owner.board))
        if method.name != "fedcfc":
            return BoardTrainer(self.owner.name, self.owner.board, method.programs).programs()
        from potluck.methods.fedcfc import Round

        return {**method.programs, Round: BoardProgram(self.owner.name, self.owner.board)}
