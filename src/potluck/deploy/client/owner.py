"""What the owner of a client machine decided: name, data, folders, and what may run there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from potluck import devices
from potluck.engines.serial.link import check as check_address
from potluck.errors import BadInput, Code, unknown
from potluck.files import make_folder, write_json
from potluck.fleet import ClientId

THIS = "this-machine"


@dataclass(frozen=True)
class Owner:
    """The owner's decisions. They stay on the machine, no server can change them."""

    name: ClientId
    data: str
    home: Path  # where private state and personal models are kept
    device: str = THIS  # one of the catalogue, or this machine with its own figures
    access_point: str | None = None  # the access point's device, where the machine hosts one as a second client
    limit: int = 1 << 30  # bytes of the largest message it accepts
    allow: tuple[str, ...] = field(default=())  # custom methods and models that may run here
    reading: dict[str, Any] = field(default_factory=dict)  # settings of [data] for its file; they override the run's
    board: str = ""  # the address of a microcontroller that trains for this client

    def check(self) -> None:
        """Raise BadInput where a device is not in the catalogue, or the board's address is none."""
        if self.board:
            check_address(self.board)
        for device in (self.device, self.access_point or THIS):
            if device != THIS and device not in devices.catalogue():
                raise unknown(Code.DEVICE_UNKNOWN, "device", device, [THIS, *devices.catalogue()])


def write_owner(path: Path, owner: Owner) -> None:
    """Write the decisions to a file, for Flower's own SuperNode and for the doctor."""
    make_folder(path.parent, private=True)
    write_json(path, {**asdict(owner), "home": str(owner.home), "allow": list(owner.allow)})


def read_owner(path: Path) -> Owner:
    try:
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Owner(**{**saved, "home": Path(saved["home"]), "allow": tuple(saved["allow"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(
            Code.DEPLOY_FOLDER,
            f"deploy: {path} must hold the settings of this machine's owner ({error}). "
            "Start `potluck deploy client` again.",
        ) from None
