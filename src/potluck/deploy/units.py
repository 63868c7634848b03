"""Service units for systemd: the server or a client that starts with its machine and comes back after a failure."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from potluck.errors import Code, must_be

UNIT = """[Unit]
Description=Potluck {what}
Wants=network-online.target
After=network-online.target time-sync.target

[Service]
User={user}
WorkingDirectory={folder}
ExecStart={command}
Restart=always
RestartSec=10
# The first Ctrl-C asks for an orderly stop: the state is saved.
KillSignal=SIGINT
TimeoutStopSec=60
Nice={nice}
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={written}

[Install]
WantedBy=multi-user.target
"""


def program() -> str:
    """The installed command, or this Python with the package."""
    command = Path(sys.executable).parent / "potluck"
    return str(command) if command.is_file() else f"{sys.executable} -m potluck"


def unit(kind: str, folder: Path, name: str, user: str | None = None, runs: Path | None = None) -> str:
    """The text of a unit. `kind` is server or client, `folder` the deployment's or the client's."""
    place, owner = folder.resolve(), user or getpass.getuser()
    for field, value in (("--folder", str(place)), ("--user", owner)):
        if any(letter in value for letter in " \t\n\"'%\\"):
            raise must_be(Code.FLAG_VALUE, field, "without blanks, quotes, % and \\ for systemd", value)
    written = [str(place), *([str(runs.resolve())] if runs is not None else [])]
    return UNIT.format(
        what="server" if kind == "server" else f"client {name}",
        user=owner,
        folder=place,
        command=f"{program()} deploy {kind} --folder {place}",
        nice=0 if kind == "server" else 10,  # a client's own work comes first
        written=" ".join(written),
    )
