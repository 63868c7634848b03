"""`potluck deploy`: the same experiment on real machines, with TLS and a key per client."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from potluck.cli import flags, text
from potluck.errors import BadInput, Code, Missing, install_extra, retold, unknown

if TYPE_CHECKING:
    from potluck.deploy.layout import Deployment

app = typer.Typer(no_args_is_help=True, help="Run an experiment on real machines: a server, clients, TLS and keys.")

Folder = Annotated[Path, typer.Option("--folder", metavar="DIR", help="the deployment's folder")]
Background = Annotated[bool, typer.Option("--background", help="start it, come back once it is up")]
HERE = Path("deploy")
PORT = 9092


def _deployment(folder: Path) -> Deployment:
    installed()
    from potluck.deploy.layout import Deployment

    found = Deployment.read(folder)
    if found.insecure:
        text.console(stderr=True).print(
            Text("insecure: no TLS and no keys; whoever reaches the port can read and change everything", "bold red")
        )
    elif found.control_host != "127.0.0.1":
        text.console(stderr=True).print(
            Text(f"control on {found.control_host}: whoever reaches it can start runs; it has no login", "bold red")
        )
    return found


def installed() -> None:
    import importlib.util

    if importlib.util.find_spec("flwr") is None:
        raise Missing(Code.EXTRA, f"flwr: not installed; `{install_extra('flower')}` adds it.")


@app.command(epilog="Example: potluck deploy init --host 192.0.2.7 --client s01 --client s02")
def init(
    folder: Folder = HERE,
    host: Annotated[str, typer.Option("--host", metavar="NAME", help="what clients call the server")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="that clients reach; the next one is the server's own")
    ] = PORT,
    client: Annotated[
        list[str] | None, typer.Option("--client", metavar="NAME", help="a client; again and again")
    ] = None,
    share: Annotated[
        Path | None,
        typer.Option(
            "--share",
            metavar="EXPERIMENT.toml",
            help="for a trial: a client and a file of rows for each of its clients",
        ),
    ] = None,
    control_host: Annotated[
        str, typer.Option("--control-host", metavar="ADDR", help="where commands are taken; they have no login")
    ] = "127.0.0.1",
    insecure: Annotated[bool, typer.Option("--insecure", help="no TLS and no keys; for a closed bench only")] = False,
) -> None:
    """Make certificates, a key per client, and folders; what is there already stays, so clients can be added later."""
    installed()
    from potluck.deploy import commands
    from potluck.deploy.layout import Deployment
    from potluck.runs.experiment import Experiment

    if not 1024 <= port <= 65534:
        raise BadInput(Code.FLAG_VALUE, f"--port: {port} given, allowed is 1024 to 65534.")
    fresh = commands.make(
        Deployment(folder, host, port, control_host, insecure),
        client or [],
        None if share is None else Experiment.read(share),
    )
    deployment = _deployment(folder)
    text.line(f"deployment in {folder}; clients: {', '.join(deployment.names) or 'none yet'}")
    if fresh:
        text.line(f"each client's machine needs its folder, such as {deployment.client(fresh[0])}; keep it private")
    text.line(f"next: potluck deploy server --folder {folder}")


@app.command(epilog="Example: potluck deploy server --background")
def server(folder: Folder = HERE, background: Background = False) -> None:
    """Start the server: SuperLink, launcher and gateway; those that die are started again."""
    deployment = _deployment(folder)
    from potluck.deploy.layout import SERVER_LOCK, holder
    from potluck.deploy.server.supervisor import Supervisor

    lock = deployment.server / SERVER_LOCK
    if background:
        log = deployment.server / "logs" / "server.log"
        _detached(["server", "--folder", str(folder)], log, lambda: _up(deployment))
        text.line(f"server at {deployment.host}:{deployment.port}, process {holder(lock)}; log in {log}")
        return
    text.line(f"server at {deployment.host}:{deployment.port}; Ctrl-C stops it")
    Supervisor(deployment, _told).run(_stopping())


@app.command(epilog="Example: potluck deploy client --name s01 --data s01.npz")
def client(
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="which client this is")] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="PATH", help="its rows, on this machine; data.npz in its folder otherwise"),
    ] = None,
    folder: Folder = HERE,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="DEVICE", help="one of `potluck devices`; this machine's own figures otherwise"
        ),
    ] = "this-machine",
    access_point: Annotated[
        str | None, typer.Option("--access-point", metavar="DEVICE", help="speak for an access point, too (Centaur)")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="NAME", help="a method or model of your own that may run here"),
    ] = None,
    stock: Annotated[
        bool, typer.Option("--stock", help="Flower's own SuperNode: a process per message, slower")
    ] = False,
    background: Background = False,
) -> None:
    """Start a client on this machine: it trains on rows that stay here, and keeps its private state here."""
    installed()
    from potluck.deploy import commands
    from potluck.deploy.client.machine import ClientMachine
    from potluck.deploy.client.owner import Owner, write_owner
    from potluck.deploy.client.process import serve
    from potluck.deploy.layout import holder

    place = commands.client_folder(folder, name)
    source = data or str(place.folder / "data.npz")
    home = (place.folder / "home").resolve()
    owner = Owner(place.name, source, home, device, access_point, allow=tuple(allow or ()))
    ClientMachine(owner)  # a device that is not known shows here
    if place.insecure:
        text.console(stderr=True).print(Text("insecure: no TLS and no keys on this line", "bold red"))
    if background:
        words = ["client", "--folder", str(place.folder), "--data", source, "--device", device]
        words += ["--access-point", access_point] if access_point else []
        words += [word for one in allow or [] for word in ("--allow", one)] + (["--stock"] if stock else [])
        _detached(words, place.folder / "client.log", lambda: (home / "node.json").exists() or stock)
        text.line(f"{place.name}: process {holder(home / '.lock')}; log in {place.folder / 'client.log'}")
        return
    home.mkdir(parents=True, exist_ok=True)
    write_owner(home / "owner.json", owner)
    if stock:
        from potluck.deploy.client.supernode import supernode

        supernode(place, home, _stopping())
        return
    serve(place, owner, _stopping(), _told)


@app.command(epilog="Example: potluck deploy start experiment.toml --set stop.rounds=5")
def start(
    experiment: Annotated[Path | None, typer.Argument(metavar="EXPERIMENT.toml", help="what to run")] = None,
    folder: Folder = HERE,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="go on with a run that was stopped")
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option("--clients", metavar="N", help="begin once so many are there; all that are registered otherwise"),
    ] = None,
    patience: Annotated[
        float, typer.Option("--patience", metavar="SECONDS", help="how long to wait for clients")
    ] = 600.0,
    settings: flags.Set = None,
    out: flags.Out = None,
    name: flags.Name = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="come back at once; `deploy status` and `logs` tell")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """Hand an experiment to the server and follow it to its end."""
    deployment = _deployment(folder)
    from potluck.deploy import commands
    from potluck.runs.experiment import Experiment, override

    if (experiment is None) == (resume is None):
        raise BadInput(Code.NOT_SAID, "deploy start: give an experiment, or --resume and a run.")
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
    """Who is there, what runs, and who was turned away."""
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
        text.line(f"turned away: {line}")


@app.command(epilog="Example: potluck deploy logs superlink")
def logs(
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="server, superlink, launcher, gateway, a client's name, or a run's folder"),
    ] = "server",
    folder: Folder = HERE,
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="N", help="the last so many")] = 40,
) -> None:
    """The last lines of a log."""
    deployment = _deployment(folder)
    from potluck.deploy.server.app import DIARY

    places = [
        deployment.server / "logs" / f"{what}.log",
        deployment.client(what) / "client.log",
        Path(what) / DIARY,
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
    """Stop the server, a client on this machine, or a run after its present step."""
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
        text.line(f"{what}: asked to stop; `potluck deploy start --resume {what}` goes on")


def _follow(run: Path, as_json: bool) -> None:
    """The run's own log as it grows, until the run is at its end."""
    from potluck.deploy.server.app import DIARY, REFUSED
    from potluck.deploy.server.supervisor import finished
    from potluck.runs.results import Run

    seen = 0
    while not finished(run):
        if (run / REFUSED).exists():
            raise retold((run / REFUSED).read_text(encoding="utf-8"), Code.DEPLOY_SERVER)
        path = run / DIARY
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


def _detached(words: list[str], log: Path, up: Callable[[], bool]) -> None:
    """This program once more, on its own, with its output in a file; back once it is up."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        begun = subprocess.Popen(
            [sys.executable, "-m", "potluck.cli", "deploy", *words],
            stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    for _ in range(600):
        if begun.poll() is not None:
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            said = last[0].removeprefix("potluck: ") if last else f"deploy: it ended at once; see {log}."
            raise retold(said, Code.DEPLOY_SERVER)
        if up():
            return
        time.sleep(0.1)
    raise BadInput(Code.DEPLOY_SERVER, f"deploy: it did not come up within a minute; see {log}.")


def _up(deployment: Any) -> bool:
    """Whether the server takes clients and commands, and knows its clients."""
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


def _told(sentence: str) -> None:
    text.line(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}")


def _stopping() -> threading.Event:
    """Set by Ctrl-C, or by `deploy stop`."""
    import signal

    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    return asked
