"""Carry out a calibration: measure on real processes, fit devices on some networks, judge them on others."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from potluck.calibrate import plan
from potluck.calibrate.devices_file import device_table, link_table
from potluck.calibrate.fit import Memory, Timed, fit_memory, fit_speed, fit_way
from potluck.calibrate.judge import Course, judged
from potluck.calibrate.memory import process_bytes
from potluck.calibrate.plan import Client, Network, experiment_of, read_client
from potluck.calibrate.tasks import counts_of, first_sent, moved, timed
from potluck.devices import catalogue
from potluck.errors import BadInput, Code
from potluck.files import write_json, write_text
from potluck.runs import drive
from potluck.runs.certificate import Certificate
from potluck.runs.summary import versions

if TYPE_CHECKING:
    from potluck.calibrate.site import Site

DRAWS = 5  # simulated runs whose medians are the prediction


@dataclass
class Measured:
    """What real processes did in one run."""

    network: str
    method: str
    tasks: list[Timed]
    peaks: dict[str, int]
    began: float
    nbytes: int  # of all payloads, up and down, with notes
    wire: int  # bytes through all proxies, up and down, in the time of the run
    repetition: int = 0


class Job(NamedTuple):
    """A run on real processes."""

    network: Network
    method: str
    rounds: int
    repetition: int = 0


@dataclass
class Calibration:
    folder: Path
    clients: Sequence[Client] = plan.CLIENTS
    fit: Sequence[Network] = plan.FIT
    judge: Sequence[Network] = plan.JUDGE
    methods: Sequence[str] = ("fedavg", "echopfl")
    fit_rounds: int = 2
    rounds: int = 8
    repeat: int = 1  # real runs of each network and method
    seed: int = 0
    say: Callable[[str], None] = field(default=lambda what: None)

    @property
    def data(self) -> Path:
        return self.folder / "windows.npz"

    @property
    def file(self) -> Path:
        return self.folder / "devices.toml"

    @property
    def kept(self) -> Path:
        return self.folder / "measured.json"

    @property
    def jobs(self) -> list[Job]:
        """All runs on real processes. A repetition has those of the fit, too: a machine is not always as fast."""
        fit = [(network, "fedavg", self.fit_rounds) for network in self.fit]
        judge = [(network, method, self.rounds) for network in self.judge for method in self.methods]
        return [Job(*one, k) for k in range(self.repeat) for one in (*fit, *judge)]

    def left(self) -> list[Job]:
        """The runs that are not measured yet."""
        done = {(one["network"], one["method"], one.get("repetition", 0)) for one in self._saved()["runs"]}
        return [job for job in self.jobs if (job.network.name, job.method, job.repetition) not in done]

    def measure(self, most: float = math.inf) -> bool:
        """Run everything on real processes, and tell whether all is measured.

        Each run is kept in measured.json when it is over. After `most` seconds no further one begins. Called again, it
        goes on with what is left.
        """
        from potluck.calibrate.site import Site  # needs the extra `flower`

        saved, left, began = self._saved(), self.left(), time.monotonic()
        if not left:
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.data.exists():
            plan.write_windows(self.data, self.clients, self.seed)
        place = self.folder / f"site-{len(saved['machines'])}"
        first = experiment_of(self.fit[0], "fedavg", self.data, 1, self.folder / "real", devices=plan.LIKE)
        with Site(place, first, self.clients, self.say) as site:
            saved["machines"].append({})
            for job in left:
                if saved["machines"][-1] and time.monotonic() - began > most:
                    break
                saved["runs"].append(asdict(self._measured(site, job)))
                saved["networks"][job.network.name] = asdict(job.network)
                saved["machines"][-1] = machine(site.limited_by, time.monotonic() - began)
                write_json(self.kept, saved)
        return not self.left()

    def _measured(self, site: Site, job: Job) -> Measured:
        network, method = job.network, job.method
        experiment = experiment_of(network, method, self.data, job.rounds, self.folder / "real", devices=plan.LIKE)
        before = site.moved()
        run = site.run(experiment)
        after = site.moved()
        wire = sum(sum(after[name]) - sum(before[name]) for name in site.names)
        tasks = timed(run, network.name, method)
        self.say(f"{method} on {network.name}: {len(tasks)} tasks in {run.summary['wall_seconds']:.0f} s")
        return Measured(network.name, method, tasks, site.peaks(), first_sent(run), moved(run), wire, job.repetition)

    def _saved(self) -> dict[str, Any]:
        """What is measured so far: clients, rounds, a machine for each time that `measure` was called, and runs."""
        clients = [asdict(one) for one in self.clients]
        if not self.kept.exists():
            return {"clients": clients, "rounds": self.rounds, "networks": {}, "machines": [], "runs": []}
        saved: dict[str, Any] = json.loads(self.kept.read_text(encoding="utf-8"))
        if saved["clients"] != clients or saved["rounds"] != self.rounds:
            raise BadInput(Code.OUTPUT_PLACE, f"calibrate: {self.kept} was measured with other clients or rounds.")
        known = saved.setdefault("networks", {})
        other = next(
            (one.name for one in (*self.fit, *self.judge) if known.get(one.name, asdict(one)) != asdict(one)), ""
        )
        if other:
            raise BadInput(Code.OUTPUT_PLACE, f"calibrate: {self.kept} has another network by the name of {other}.")
        return saved

    def certify(self) -> Certificate:
        """Fit on the measured runs of the fit networks, predict the others on the local engine, compare."""
        saved = json.loads(self.kept.read_text(encoding="utf-8"))
        clients = [read_client(one) for one in saved["clients"]]
        runs = [Measured(**{**one, "tasks": [Timed(**task) for task in one["tasks"]]}) for one in saved["runs"]]
        fit = {network.name: network for network in self.fit}
        counts = {name: self._counts(network) for name, network in fit.items()}
        names = sorted({task.client for one in runs for task in one.tasks})
        fitted: defaultdict[str, list[Timed]] = defaultdict(list)
        memory: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for one in runs:
            if one.network not in counts:
                continue
            for task in one.tasks:
                cost = counts[one.network][task.client]
                fitted[task.client].append(Timed(**{**asdict(task), **cost._asdict()}))
            needed = self._needed(fit[one.network], one.method)
            for client in names:
                memory[client].append((one.peaks[client], needed))
        memories = {client: fit_memory(memory[client]) for client in names}
        pairs = zip(names, clients, strict=True)
        shown = [self._fitted(name, client, fitted[name], memories[name]) for name, client in pairs]
        write_text(self.file, "\n".join(one.pop("toml") for one in shown))
        known = {name: Network(**one) for name, one in saved.get("networks", {}).items()}
        known |= {one.name: one for one in (*plan.MORE, *self.judge)}
        asked = dict.fromkeys((one.network, one.method) for one in runs if one.network not in counts)
        results = [
            judged(Course(one.tasks, one.began, one.nbytes), predicted, one.peaks, memories, one.repetition)
            for name, method in asked
            for predicted in [self._predicted(known[name], method, list(memories), saved["rounds"])]
            for one in runs
            if (one.network, one.method) == (name, method)
        ]
        certificate = Certificate(together(saved["machines"]), shown, sorted(counts), [one.plain() for one in results])
        certificate.write(self.folder / "certificate.json")
        return certificate

    def _fitted(self, name: str, client: Client, tasks: Sequence[Timed], memory: Memory) -> dict[str, Any]:
        speed, way = fit_speed(tasks), fit_way(tasks, client.up.rate, client.down.rate)
        how = f"potluck calibrate: a process with {100 * client.share:g} % of a core"
        free = catalogue()[plan.LIKE].memory
        toml = device_table(f"calibrated-{name}", plan.LIKE, f"calibrated-{name}", free, speed, how)
        toml += "\n" + link_table(f"calibrated-{name}", "wifi", client.up.rate, client.down.rate, way, how)
        return {
            "client": name,
            "share": client.share,
            "up": asdict(client.up),
            "down": asdict(client.down),
            "rows": client.rows,
            "speed": asdict(speed),
            "way": asdict(way),
            "process_bytes": memory.process,
            "memory_factor": memory.factor,
            "toml": toml,
        }

    def _simulated(self, network: Network, method: str, rounds: int, kind: str, **fleet: Any) -> Any:
        return drive.start(experiment_of(network, method, self.data, rounds, self.folder / kind, **fleet))

    def _counts(self, network: Network) -> dict[str, Any]:
        """What a task costs by count. A device with `op_seconds` makes the engine count operations."""
        write_text(self.folder / "counting.toml", f'[devices.counting]\nlike = "{plan.LIKE}"\nop_seconds = 1e-6\n')
        run = self._simulated(
            network, "fedavg", 1, "counted", devices="counting", file=str(self.folder / "counting.toml")
        )
        return counts_of(run)

    def _needed(self, network: Network, method: str) -> int:
        return process_bytes(network, method, self.clients, self.folder)

    def _predicted(self, network: Network, method: str, names: Sequence[str], rounds: int) -> list[Course]:
        fleet = {"devices": [f"calibrated-{name}" for name in names], "file": str(self.file)}
        needed, predicted = self._needed(network, method), []
        for chance in range(1, DRAWS + 1):  # the run's own seed is known; what happens on the way is not
            run = self._simulated(network, method, rounds, "predicted", chance=chance, **fleet)
            tasks = [replace(task, memory=needed) for task in timed(run, network.name, method)]
            predicted.append(Course(tasks, first_sent(run), moved(run)))
        self.say(f"{method} on {network.name}: predicted")
        return predicted


def machine(limited_by: str, seconds: float) -> dict[str, Any]:
    """Where the measurement took place, for the certificate."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "load": list(os.getloadavg()),
        "limited_by": limited_by,
        "seconds": round(seconds),
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(),
    }


def together(machines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One machine of a measurement that was made in parts: their seconds add up, the largest load stands for all."""
    found = dict(machines[-1])
    return found | {
        "load": max((one["load"] for one in machines), key=lambda load: load[0]),
        "seconds": sum(one["seconds"] for one in machines),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
