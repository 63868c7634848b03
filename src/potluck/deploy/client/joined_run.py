"""A run that this machine joined: what the server said of it, kept on disk for a machine that is started again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck import methods, models
from potluck.deploy.client.owner import Owner
from potluck.engines.flower.protocol import Envelope
from potluck.errors import BadInput, Code
from potluck.files import make_folder, write_bytes
from potluck.methods import Method
from potluck.models import Model

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")  # the name of a run is also the name of a folder


@dataclass(frozen=True)
class JoinedRun:
    """Method, model, labels and settings of one run, and the private state that its clients start with."""

    name: str
    owner: Owner
    head: Mapping[str, Any]
    private: bytes

    @classmethod
    def write(cls, owner: Owner, ask: Envelope) -> JoinedRun:
        """Keep what a join message says. A method or model that the owner did not allow raises BadInput."""
        run = cls(run_name(ask.head), owner, ask.head, ask.body)
        run.method()
        run.model()
        make_folder(run.folder, private=True)
        write_bytes(run.folder / "private.safetensors", ask.body, private=True)
        write_bytes(run.folder / "run.json", json.dumps(ask.head).encode(), private=True)
        return run

    @classmethod
    def read(cls, owner: Owner, name: str) -> JoinedRun:
        folder = _folder(owner, name)
        try:
            head: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            return cls(name, owner, head, (folder / "private.safetensors").read_bytes())
        except FileNotFoundError:
            raise BadInput(Code.MESSAGE, f"run: {name!r} is not known on this machine.") from None

    @property
    def folder(self) -> Path:
        return _folder(self.owner, self.name)

    @property
    def labels(self) -> list[str]:
        """The names of the classes, in the order of the model's outputs."""
        return list(self.head["classes"])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.head["model"]["shape"])

    def method(self) -> Method:
        name = str(self.head["method"])
        if name not in methods.names() and name not in self.owner.allow:
            raise BadInput(
                Code.NOT_ALLOWED, f"method: {name!r} is not installed here, and this machine's owner did not allow it."
            )
        return methods.load(name)

    def model(self) -> Model:
        """Build the model. Each caller gets its own: two threads must not share a module."""
        asked = self.head["model"]
        name = str(asked["name"])
        if ":" in name and name not in self.owner.allow:
            raise BadInput(
                Code.NOT_ALLOWED,
                f"model: {name!r} is not in the catalogue, and this machine's owner did not allow it.",
            )
        return models.build(name, self.shape, len(self.labels), dict(asked["settings"]))


def run_name(head: Mapping[str, Any]) -> str:
    run = str(head.get("run"))
    if not NAME.fullmatch(run):
        raise BadInput(Code.MESSAGE, f"run: must be a name of letters, digits, dots and dashes, got {run!r}.")
    return run


def _folder(owner: Owner, name: str) -> Path:
    return owner.home / "runs" / name
