"""The server program that Flower starts: it drives the run in a folder to its end, from its last checkpoint."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from potluck import files
from potluck.deploy.layout import held
from potluck.deploy.server.open_session import enough, members_of, open_session
from potluck.deploy.server.session import FlowerSession
from potluck.engines.flower.protocol import Transport
from potluck.engines.flower.server.words import Registered
from potluck.engines.flower.transport import GridTransport
from potluck.errors import BadInput
from potluck.report.html.page import write as write_report
from potluck.runs import drive
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run
from potluck.runs.session import Session
from potluck.runs.watcher import Progress

app = ServerApp()
LOG, REFUSED, PLAN, LOCK = "server.log", "refused.txt", "deploy.json", ".server"


@app.main()
def main(grid: Grid, context: Context) -> None:
    carry(Path(str(context.run_config["folder"])), GridTransport(grid))


def carry(folder: Path, transport: Transport) -> Run:
    """Drive the run to its end. BadInput is also written to refused.txt, which `potluck deploy start` polls."""
    log = RunLog(folder / LOG)
    with held(folder / LOCK):  # from the start: the supervisor takes a free lock for a dead process
        try:
            return drive.carry_out(folder, session_of(folder, transport, log), log)
        except BadInput as error:
            files.write_text(folder / REFUSED, f"{error.told}\n")
            log.say(f"refused: {error.told}")
            raise


def session_of(folder: Path, transport: Transport, log: RunLog) -> FlowerSession:
    """Wait for clients and open the session. A new run waits for all expected clients, a resumed one for the first."""
    experiment = Experiment.read(folder / "experiment.toml")
    plan: dict[str, Any] = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    resumed = (folder / "checkpoint").exists()
    known = {name: Registered(**one) for name, one in plan.get("registered", {}).items()}
    members = members_of(experiment, transport, poll=plan["poll"], ttl=plan["ttl"], registered=known)
    wanted = 1 if resumed else plan["clients"]
    log.say(f"{'resumes' if resumed else 'starts'}; waits for {wanted} of {plan['clients']} clients")
    with enough("start the others, or start with fewer: `potluck deploy start --clients N`"):
        members.wait_for(wanted, plan["patience"])
        log.say(f"online: {', '.join(members)}")
        return open_session(experiment, members, plan["run"], plan["patience"], known=folder / "fleet.json")


class RunLog:
    """A watcher that writes one line per step to server.log, for `potluck deploy logs`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def say(self, sentence: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")

    def start(self, run: Run, session: Session) -> None:
        self.say(f"{run.name}: {session.method.name}, {len(session.fleet.clients)} clients, {session.model.name}")

    def step(self, progress: Progress) -> None:
        accuracy = (
            "" if progress.accuracy is None else f", {progress.metric.words} {progress.metric.plain(progress.accuracy)}"
        )
        troubles = f", {progress.refused} refused, {progress.lost} lost" if progress.refused or progress.lost else ""
        self.say(f"step {progress.step}, round {progress.round}{accuracy}, {progress.at_work} at work{troubles}")

    def show_activity(self, what: str) -> None:
        self.say(what)

    def end(self, run: Run) -> None:
        write_report([run], run.folder / "report.html")
        self.say(f"ended: {run.summary['ended']}")
