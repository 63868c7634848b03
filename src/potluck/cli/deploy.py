"""`potluck deploy`: the same experiment on real machines, with TLS and a key per client."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from potluck.cli import flags, text
from potluck.cli.background import log_line, start_in_background, stop_signal
from potluck.cli.columns import reading_of, reads_own_data
from potluck.errors import BadInput, Code, Missing, install_extra, retold, unknown
from potluck.units import plural

if TYPE_CHECKING:
    from potluck.deploy.layout import Deployment

app = typer.Typer(no_args_is_help=True, help="Run an experiment on real machines: a server, clients, TLS and keys.")

Folder = Annotated[Path, typer.Option("--folder", metavar="DIR", help="folder of the deployment")]
Background = Annotated[bool, typer.Option("--background", help="return once it is running")]
HERE = Path("deploy")
PORT = 9092


def _deployment(folder: Path) -> Deployment:
    installed()
    from potluck.deploy.layout import Deployment

    found = Deployment.read(folder)
    if found.insecure:
        text.console(stderr=True).print(
            Text(
                "insecure: no TLS and no keys; anyone who can reach the port can read and change everything", "bold red"
            )
        )
    elif found.control_host != "127.0.0.1":
        text.console(stderr=True).print(
            Text(
                f"control on {found.control_host}: anyone who can reach it can start runs; it has no login", "bold red"
            )
        )
    return found


def installed() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise Missing(Code.EXTRA, f"flwr: not installed; `{install_extra('flower')}` adds it.")


@app.command(epilog="Example: potluck deploy init --host 192.0.2.7 --client s01 --client s02")
def init(
    folder: Folder = HERE,
    host: Annotated[
        str, typer.Option("--host", metavar="NAME", help="name or address by which clients reach the server")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="port that clients connect to; the server also uses the next one")
    ] = PORT,
    client: Annotated[
        list[str] | None, typer.Option("--client", metavar="NAME", help="name of a client; repeatable")
    ] = None,
    clients: Annotated[
        Path | None,
        typer.Option(
            "--clients",
            metavar="TABLE.csv",
            help="a table with a client per row: name, data, device, access_point, rows",
        ),
    ] = None,
    rows: flags.MostRows = None,
    share: Annotated[
        Path | None,
        typer.Option(
            "--share",
            metavar="EXPERIMENT.toml",
            help="for a trial on one machine: create each client of this experiment, with its samples",
        ),
    ] = None,
    control_host: Annotated[
        str, typer.Option("--control-host", metavar="ADDR", help="address that accepts commands; they have no login")
    ] = "127.0.0.1",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="no TLS and no keys; only for an isolated network")
    ] = False,
    days: flags.Days = None,
) -> None:
    """Create certificates, a key per client, and folders. Existing files stay, so clients can be added later."""
    installed()
    from potluck.deploy import commands, rights
    from potluck.deploy.layout import Deployment
    from potluck.deploy.table import read_clients
    from potluck.runs.experiment import Experiment

    if not 1024 <= port <= 65534:
        raise BadInput(Code.FLAG_VALUE, f"--port: must be 1024 to 65534, got {port}.")
    rights.check_days(days, insecure)
    fresh = commands.make(
        Deployment(folder, host, port, control_host, insecure),
        client or [],
        None if share is None else Experiment.read(share),
        *read_clients(clients, client or [], rows),
    )
    deployment = _deployment(folder)
    rights.expire(deployment, fresh, days)
    names = deployment.names
    text.line(f"deployment in {folder}; {plural(len(names), 'client')}{': ' if names else ''}{text.some(names, 8)}")
    if fresh:
        text.line(f"copy each client's folder to its machine, such as {deployment.client(fresh[0])}; keep it private")
    text.line(f"next: potluck deploy server --folder {folder}")


@app.command(epilog="Example: potluck deploy server --background")
def server(folder: Folder = HERE, background: Background = False) -> None:
    """Start the server: SuperLink, launcher and gateway. A process that ends is started again."""
    deployment = _deployment(folder)
    from potluck.deploy.layout import SERVER_LOCK, holder
    from potluck.deploy.server.supervisor import Supervisor

    lock = deployment.server / SERVER_LOCK
    if background:
        log = deployment.server / "logs" / "server.log"
        start_in_background(["server", "--folder", str(folder)], log, lambda: _up(deployment))
        text.line(f"server at {deployment.host}:{deployment.port}, process {holder(lock)}; log in {log}")
        return
    text.line(f"server at {deployment.host}:{deployment.port}; Ctrl-C stops it")
    Supervisor(deployment, log_line).run(stop_signal())


@app.command(epilog="Example: potluck deploy client --name s01 --data s01.npz")
@reads_own_data()
def client(
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="name of this client")] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="PATH", help="its samples, on this machine (default: data.npz in its folder)"),
    ] = None,
    folder: Folder = HERE,
    device: flags.OwnDevice = None,
    access_point: Annotated[
        str | None, typer.Option("--access-point", metavar="DEVICE", help="also act as an access point (Centaur)")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="method or model by import path that may run here; repeatable"),
    ] = None,
    board: flags.BoardAddress = "",
    stock: Annotated[
        bool, typer.Option("--stock", help="use Flower's own SuperNode: one process per message, slower")
    ] = False,
    background: Background = False,
    settings: flags.Reading = None,
) -> None:
    """Start a client on this machine. Its samples and its private state stay on this machine.

    What a table of `deploy init --clients` said about its data and device holds where the flags say nothing.
    """
    installed()
    from potluck.deploy import commands
    from potluck.deploy.client.machine import ClientMachine
    from potluck.deploy.client.owner import Owner, write_owner
    from potluck.deploy.client.process import serve
    from potluck.deploy.layout import holder

    place = commands.client_folder(folder, name)
    source = data or place.start.data or str(place.folder / "data.npz")
    device = device or place.start.device or "this-machine"
    access_point = access_point or place.start.access_point or None
    home = (place.folder / "home").resolve()
    reading, allowed = reading_of(settings or []), tuple(allow or ())
    owner = Owner(place.name, source, home, device, access_point, allow=allowed, reading=reading, board=board)
    ClientMachine(owner)  # raises BadInput for an unknown device, or an address that cannot be
    if place.insecure:
        text.console(stderr=True).print(Text("insecure: no TLS and no keys on this connection", "bold red"))
    if background:
        words = ["client", "--folder", str(place.folder), "--data", source, "--device", device]
        words += (["--access-point", access_point] if access_point else []) + (["--board", board] if board else [])
        words += [word for one in allow or [] for word in ("--allow", one)] + (["--stock"] if stock else [])
        words += [word for one in settings or [] for word in ("--set", one)]
        start_in_background(words, place.folder / "client.log", lambda: (home / "node.json").exists() or stock)
        text.line(f"{place.name}: process {holder(home / '.lock')}; log in {place.folder / 'client.log'}")
        return
    write_owner(home / "owner.json", owner)
    if stock:
        from potluck.deploy.client.supernode import supernode

        supernode(place, home, stop_signal())
        return
    serve(place, owner, stop_signal(), log_line)


@app.command(epilog="Example: potluck deploy start experiment.toml --set stop.rounds=5")
def start(
    experiment: Annotated[Path | None, typer.Argument(metavar="EXPERIMENT.toml", help="the experiment to run")] = None,
    folder: Folder = HERE,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="continue a run that was stopped")
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(
            "--clients", metavar="N", help="start once this many clients are online (default: all that are registered)"
        ),
    ] = None,
    patience: Annotated[
        float, typer.Option("--patience", metavar="SECONDS", help="how long to wait for clients")
    ] = 600.0,
    settings: flags.Set = None,
    out: flags.Out = None,
    name: flags.Name = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="return at once; see `deploy status` and `deploy logs`")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """Start an experiment on the server and follow it to its end."""
    deployment = _deployment(folder)
    from potluck.deploy import commands
    from potluck.runs.experiment import Experiment, override

    if (experiment is None) == (resume is None):
        raise BadInput(Code.NOT_SAID, "deploy start: name an experiment, or a run with --resume.")
    if resume is not None:
        commands.resume(deployment, resume)
        run = resume
    else:
        assert experiment is not None
        values, _ = flags.gathered(experiment, out=out, name=name)
        run = commands.start(deployment, Experiment.of(override(values, settings or [])), clients, patience)
    text.line(f"folder {run}")
    if not detach:
        _follow(run, as_json)


@app.command(epilog="Example: potluck deploy status")
def status(folder: Folder = HERE, as_json: flags.Json = False) -> None:
    """Show which clients are online, which runs there are, and which connections were refused."""
    deployment = _deployment(folder)
    from potluck.deploy import commands

    found = commands.status(deployment)
    if as_json:
        text.as_json(asdict(found))
        return
    processes = "".join(f"; {name} {number}" for name, number in found.processes.items())
    text.line(f"server: process {found.server}{processes}" if found.server else "server: not running")
    table = text.sheet("client", "state")
    for one, state in sorted(found.clients.items()):
        table.add_row(one, Text(state, "green" if state == "online" else "yellow"))
    text.show(table)
    for place, state in found.runs.items():
        text.line(f"{place}: {state}")
    for line in found.refused:
        text.line(f"refused: {line}")


@app.command(epilog="Example: potluck deploy logs superlink")
def logs(
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="server, superlink, launcher, gateway, a client's name, or a run's folder"),
    ] = "server",
    folder: Folder = HERE,
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="N", help="number of lines")] = 40,
) -> None:
    """Show the last lines of a log."""
    deployment = _deployment(folder)
    from potluck.deploy.server.app import LOG

    places = [
        deployment.server / "logs" / f"{what}.log",
        deployment.client(what) / "client.log",
        Path(what) / LOG,
    ]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        known = sorted(path.stem for path in (deployment.server / "logs").glob("*.log"))
        raise unknown(Code.DEPLOY_NAME, "logs", what, [*known, *deployment.names])
    for line in found.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
        text.line(line)


@app.command(epilog="Example: potluck deploy stop")
def stop(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="server, a client's name, or a run's folder")] = "server",
    folder: Folder = HERE,
) -> None:
    """Stop the server, a client on this machine, or a run after its current step."""
    deployment = _deployment(folder)
    from potluck.deploy import commands
    from potluck.deploy.layout import SERVER_LOCK

    if what == "server":
        there = commands.stop_process(deployment.server / SERVER_LOCK, "the server")
        text.line("server: stopped" if there else "server: was not running")
    elif what in deployment.names:
        there = commands.stop_process(deployment.client(what) / "home" / ".lock", what)
        text.line(f"{what}: {'stopped' if there else 'was not running on this machine'}")
    else:
        commands.stop_run(deployment, Path(what))
        text.line(f"{what}: stops after its current step; continue with `potluck deploy start --resume {what}`")


def _follow(run: Path, as_json: bool) -> None:
    """Print the log of the run as it grows, until the run ends."""
    from potluck.deploy.server.app import LOG, REFUSED
    from potluck.deploy.server.supervisor import finished
    from potluck.runs.results import Run

    seen = 0
    while not finished(run):
        if (run / REFUSED).exists():
            raise retold((run / REFUSED).read_text(encoding="utf-8"), Code.DEPLOY_SERVER)
        path = run / LOG
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if not as_json:
            for line in lines[seen:]:
                text.console(stderr=True).print(Text(line), soft_wrap=True)
        seen = len(lines)
        time.sleep(0.5)
    if as_json:
        text.as_json(Run(run).summary)
    else:
        text.show(text.result(Run(run)))


def _up(deployment: Any) -> bool:
    """Whether the server accepts clients and commands, and knows its clients."""
    from potluck.deploy.layout import reached
    from potluck.deploy.server.control import Control

    if reached(f"127.0.0.1:{deployment.port}") is not None or reached(deployment.control) is not None:
        return False
    control = Control(deployment)
    try:
        return set(deployment.names) <= set(control.nodes()) or deployment.insecure
    except BadInput:
        return False
    finally:
        control.close()
