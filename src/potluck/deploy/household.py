"""What a client's machine does when it is asked: says who it is, joins a run, works, and tells how good its model is.

It runs programs of methods that are installed here (or that its owner named), never code that came with a message. Its
rows and its private state stay on its disk. One machine may speak for two clients: a device and its access point.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch

from potluck import devices, methods, models
from potluck.deploy.holding import Holding, hold, read
from potluck.engines.execute import Executor
from potluck.engines.flower.journal import Journal
from potluck.engines.flower.resident import Resident
from potluck.engines.flower.words import PROTOCOL, Envelope
from potluck.errors import BadInput, Code, unknown
from potluck.files import write_bytes
from potluck.fleet import ClientId, ClientProgram, Data
from potluck.methods import Method
from potluck.models import Model
from potluck.runs import model_files
from potluck.runs.model_files import about_of, file_name
from potluck.runs.pairing import AP, DEVICE, SUFFIX
from potluck.runs.summary import versions
from potluck.wire.codec import decode, walk

THIS = "this-machine"
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")  # a name that is also a folder


@dataclass(frozen=True)
class Owner:
    """What the owner of a machine decided, in the machine's own config."""

    name: ClientId
    data: str
    home: Path  # where private state and personal models are kept
    device: str = THIS  # one of the catalogue, or this machine with its own figures
    access_point: str | None = None  # where it speaks for an access point, too: what that is
    limit: int = 1 << 30  # bytes of the largest message it takes
    allow: tuple[str, ...] = field(default=())  # methods and models of one's own that may run here
    board: str = ""  # the address of a microcontroller that trains for this client (FedCFC)


class Household:
    def __init__(self, owner: Owner, holding: Holding | None = None) -> None:
        self.owner = owner
        self._given = holding  # in a simulation
        self._holdings: dict[str, Holding] = {}
        self._residents: dict[tuple[str, ClientId], Resident] = {}
        self._making = Lock()
        for device in (owner.device, owner.access_point or THIS):
            if device != THIS and device not in devices.catalogue():
                raise unknown(Code.DEVICE_UNKNOWN, "device", device, [THIS, *devices.catalogue()])

    @cached_property
    def names(self) -> list[ClientId]:
        name = self.owner.name
        return [name, f"{name}{SUFFIX}"] if self.owner.access_point else [name]

    def _partner(self, name: ClientId) -> ClientId | None:
        return next((other for other in self.names if other != name), None)

    def handle(self, ask: Envelope) -> Envelope:
        """The answer; there always is one, and a reason where it is no."""
        try:
            if ask.kind == "hello":
                return self._hello(ask.head)
            if ask.kind == "join":
                return self._join(ask)
            if ask.kind == "task":
                return self.resident(ask).work(ask)
            if ask.kind == "look":
                return self._look(ask)
            raise BadInput(Code.MESSAGE, f"message: its kind is {ask.kind!r}; allowed are hello, join, task and look.")
        except BadInput as error:
            return Envelope({"kind": ask.kind, "refused": error.told})
        except Exception as error:  # whatever a program does, the server is told and the machine stays there
            return Envelope({"kind": ask.kind, "refused": f"{type(error).__name__}: {' '.join(str(error).split())}"})

    def resident(self, ask: Envelope) -> Resident:
        """The client that is meant, in the run that is meant."""
        run, name = self._run(ask.head), str(ask.head.get("client"))
        if name not in self.names:
            raise BadInput(Code.MESSAGE, f"client: {name!r} does not live here, only {', '.join(self.names)}.")
        with self._making:
            if (run, name) not in self._residents:
                for one in self.names:
                    self._residents[run, one] = self._settle(run, one)
            return self._residents[run, name]

    # -- hello and join ----------------------------------------------------------------------------------------------

    def _hello(self, head: Mapping[str, Any]) -> Envelope:
        if head.get("protocol") != PROTOCOL:
            raise BadInput(
                Code.NOT_JOINED,
                f"protocol: the server speaks {head.get('protocol')!r}, here is {PROTOCOL}; update potluck.",
            )
        holding = self._holding(head["rules"])
        clients = [self._card(name, holding) for name in self.names]
        return Envelope({"kind": "hello", "protocol": PROTOCOL, "clients": clients, "versions": versions()})

    def _card(self, name: ClientId, holding: Holding) -> dict[str, Any]:
        is_ap = name != self.owner.name
        data = holding.dataset
        return {
            "name": name,
            "kind": AP if is_ap else DEVICE if self.owner.access_point else "client",
            "partner": self._partner(name),
            **self._machine(str(self.owner.access_point) if is_ap else self.owner.device),
            "train": 0 if is_ap else holding.count("train"),
            "test": 0 if is_ap else holding.count("test"),
            "valid": 0 if is_ap else holding.count("valid"),
            "shape": list(data.sample_shape),
            "classes": list(data.class_names),
            "times": data.t is not None,
            "lengths": data.length is not None,
        }

    def _machine(self, named: str) -> dict[str, Any]:
        if named == THIS:
            return self._own_figures
        device = devices.catalogue()[named]
        return {
            "device": device.name,
            "link": device.link,
            "memory": device.memory,
            "storage": device.storage,
            "macs_per_second": device.macs_per_second,
        }

    @cached_property
    def _own_figures(self) -> dict[str, Any]:
        storage = shutil.disk_usage(self.owner.home if self.owner.home.exists() else ".").free
        return {
            "device": THIS,
            "link": "network",
            "memory": _memory(),
            "storage": storage,
            "macs_per_second": _speed(),
        }

    def _holding(self, rules: dict[str, Any]) -> Holding:
        if self._given is not None:
            return self._given
        key = json.dumps(rules, sort_keys=True)
        if key not in self._holdings:
            self._holdings[key] = hold(read(self.owner.data), rules)
        return self._holdings[key]

    def _join(self, ask: Envelope) -> Envelope:
        """Write down what the run is; a machine that is started anew reads it there."""
        folder = self._folder(self._run(ask.head))
        self._method(str(ask.head["method"]))
        self._model(ask.head)
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / "private.safetensors", ask.body)
        write_bytes(folder / "run.json", json.dumps(ask.head).encode())
        with self._making:
            self._residents.clear()
        self.resident(Envelope({**ask.head, "client": self.owner.name}))
        return Envelope({"kind": "join", "joined": True})

    def _run(self, head: Mapping[str, Any]) -> str:
        run = str(head.get("run"))
        if not RUN.fullmatch(run):
            raise BadInput(Code.MESSAGE, f"run: {run!r} given, letters, digits, dots and dashes are allowed.")
        return run

    def _folder(self, run: str) -> Path:
        return self.owner.home / "runs" / run

    def _told(self, run: str) -> tuple[dict[str, Any], bytes]:
        folder = self._folder(run)
        try:
            head: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            return head, (folder / "private.safetensors").read_bytes()
        except FileNotFoundError:
            raise BadInput(Code.MESSAGE, f"run: {run!r} is not known here.") from None

    def _method(self, name: str) -> Method:
        if name not in methods.METHODS and name not in self.owner.allow:
            raise BadInput(
                Code.NOT_ALLOWED, f"method: {name!r} is not installed here, and this machine's owner did not allow it."
            )
        return methods.load(name)

    def _model(self, head: Mapping[str, Any]) -> Model:
        told = head["model"]
        name = str(told["name"])
        if ":" in name and name not in self.owner.allow:
            raise BadInput(
                Code.NOT_ALLOWED, f"model: {name!r} is not of the catalogue, and this machine's owner did not allow it."
            )
        return models.build(name, [int(n) for n in told["shape"]], len(head["classes"]), dict(told["settings"]))

    def _settle(self, run: str, name: ClientId) -> Resident:
        head, private = self._told(run)
        method, model = self._method(str(head["method"])), self._model(head)
        whole = self._holding(head["rules"])
        if whole.dataset.sample_shape != tuple(head["model"]["shape"]):
            raise BadInput(
                Code.NOT_JOINED,
                f"data: samples of shape {whole.dataset.sample_shape}, the run has {head['model']['shape']}.",
            )
        is_ap = name != self.owner.name
        mine = Holding(whole.federation, None if is_ap else whole.place, _order(whole, head["classes"]))
        classes = method.classes
        executor = Executor(
            model,
            self._programs(method),
            classes,
            lambda places, capacity: mine.rows("train", capacity),
            stacking="never",
            valid=(lambda places, capacity: mine.rows("valid", capacity)) if head["valid"] else None,
            valid_sizes=np.array([mine.count("valid")]),
        )
        partner = self._partner(name)
        folder = self._folder(run) / "clients"
        noise = float(head["noise"])
        still = {"buffers", *(buffer for buffer, _ in model.module.named_buffers())} if noise else set()
        return Resident(
            name=name,
            seed=int(head["seed"]),
            samples=mine.count("train"),
            executor=executor,
            programs=method.programs,
            classes=classes,
            journal=Journal(folder / file_name(name), classes),
            private=decode(private, classes)["private"],
            noise=noise,
            still=still,
            limit=self.owner.limit,
            partner=partner,
            parcel=lambda ticket: self._residents[run, str(partner)].journal.handoff(ticket),
        )

    def _programs(self, method: Method) -> Mapping[type, ClientProgram]:
        """The method's; where a board trains for this client, with its rounds done there."""
        if not self.owner.board:
            return method.programs
        if method.name != "fedcfc":
            raise BadInput(
                Code.BOARD_SETTINGS,
                f"board: this client's trains for fedcfc only, the run's method is {method.name!r}.",
            )
        from potluck.firmware.program import BoardProgram
        from potluck.methods.fedcfc import Round

        return {**method.programs, Round: BoardProgram(self.owner.name, self.owner.board)}

    # -- how good is the model ---------------------------------------------------------------------------------------

    def _look(self, ask: Envelope) -> Envelope:
        resident = self.resident(ask)
        run, name = self._run(ask.head), resident.name
        head, _ = self._told(run)
        method, model = self._method(str(head["method"])), self._model(head)  # its own: modules are not shared
        content = decode(ask.body, resident.classes)
        shared = content["shared"]
        try:
            mine = resident.mine(str(ask.head["taken"].get(name, "")))
            weights = content["weights"] or method.personal(_Part(content["state"]), name, mine)
        except _Lacking as lacking:
            return Envelope({"kind": "look", "lacks": str(lacking)})
        whole = self._holding(head["rules"])
        holding = Holding(whole.federation, whole.place, _order(whole, head["classes"]))
        told: dict[str, Any] = {"kind": "look", "client": name, "samples": holding.count("test")}
        if holding.count("test"):
            rows: Data = walk(holding.rows("test", holding.count("test")), lambda stack: stack[0])
            told["right"], told["loss"] = _measured(model, weights, rows)
            told["shared"] = None if shared is None else _measured(model, shared, rows)[0]
        if ask.head.get("keep"):
            told["kept"] = str(self._keep(run, name, holding, model, weights))
        return Envelope(told)

    def _keep(self, run: str, name: ClientId, holding: Holding, model: Model, weights: Any) -> Path:
        folder = self.owner.home / "models" / run
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{file_name(name)}.safetensors"
        model_files.save(path, weights, about_of(model, holding.dataset))
        scale = holding.scale()
        scales = {} if scale is None else {f"{name}.mean": scale[0], f"{name}.factor": scale[1]}
        model_files.save(folder / "inputs.safetensors", scales, {})
        return path


class _Lacking(Exception):
    """A method's `personal` asked for a part of the state that the server did not send."""


class _Part:
    """The parts of a server's state that were sent; what else is asked for is asked of the server."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        if name in self._fields:
            return self._fields[name]
        raise _Lacking(name)


@torch.no_grad()
def _measured(model: Model, weights: Any, rows: Data) -> tuple[float, float]:
    """Right answers and summed loss."""
    logits = model.logits(weights, rows.x, t=rows.t, length=rows.length)
    right = (logits.argmax(-1) == rows.y).sum()
    return float(right), float(model.losses(logits, rows.y).sum())


def _order(holding: Holding, classes: list[str]) -> tuple[int, ...] | None:
    """This client's label numbers as the run counts them; labels are told apart by their names."""
    own = holding.dataset.class_names
    if list(own) == list(classes):
        return None
    return tuple(classes.index(name) for name in own)


def _memory() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def _speed(seconds: float = 0.1) -> float:
    """Multiply-accumulates per second of small matrix products, which is what training mostly is."""
    a, b = torch.ones(64, 256), torch.ones(256, 128)
    began, rounds = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        a @ b
        rounds += 1
    return rounds * 64 * 256 * 128 / (time.monotonic() - began)
