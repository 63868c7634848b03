"""Every check of the doctor, well and ill: what is ill is named with its remedy."""

from __future__ import annotations

import builtins
import json
import re
import shutil
import socket
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from potluck.cli import doctor_checks
from potluck.deploy.findings import Finding
from potluck.errors import install, install_extra

from .conftest import Potluck

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
Look = Callable[..., dict[str, Finding]]


@pytest.fixture
def look(here: Path) -> Look:
    return lambda *data: {finding.what: finding for finding in doctor_checks.examine(here / "runs", *data)}


def test_all_is_well(potluck: Potluck) -> None:
    result = potluck("doctor", "--json")
    findings = {finding["what"]: finding for finding in json.loads(result.stdout)}
    assert result.exit_code == 0
    whats = {"python", "potluck", "torch", "cores", "memory", "disk", "runs folder", "demo data", "datasets"}
    assert whats <= findings.keys()
    assert {f"extra {extra}" for extra in doctor_checks.EXTRAS} | set(doctor_checks.TOOLS) <= findings.keys()
    assert {f"port {port}" for port in doctor_checks.PORTS} <= findings.keys()
    assert findings["torch"]["state"] == "ok"
    assert [one for one in findings.values() if one["state"] != "ok" and not one["fix"]] == []
    assert potluck("doctor").stdout.startswith("ok")


def test_the_extras_are_those_of_the_project() -> None:
    """All but the two for developers; the package each stands for is one of its own."""
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(doctor_checks.EXTRAS) == set(extras) - {"dev", "docs"}
    for extra, (main, _) in doctor_checks.EXTRAS.items():
        assert any(re.match(rf"{main}[<>=]", line) for line in extras[extra]), extra


def test_without_metadata_it_says_that_requirements_are_not_checked(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", none)
    found = look()
    assert found["potluck"].state == "warn"
    assert "runs from its sources" in found["potluck"].detail
    assert "extra flower" not in found


def test_a_folder_that_cannot_be_written_fails(potluck: Potluck, here: Path) -> None:
    (here / "file").write_text("")
    result = potluck("doctor", "--out", "file/runs")
    assert result.exit_code == 1
    assert re.search(r"fail +runs folder", result.stdout)
    assert "choose another folder with --out" in " ".join(result.stdout.split())


def installed(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    """Other versions than there are; None for what is not installed."""
    real = metadata.version

    def version(name: str) -> str:
        if name not in versions:
            return real(name)
        told = versions[name]
        if told is None:
            raise metadata.PackageNotFoundError(name)
        return told

    monkeypatch.setattr(doctor_checks.metadata, "version", version)


def test_the_install(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, {"scipy": None, "numpy": "1.9.5", "rich": "13.0.0"})
    found = look()
    assert "potluck" not in found
    assert "rich" not in found  # 13 and 13.0.0 are the same
    assert found["scipy"] == Finding("scipy", "fail", "scipy is not installed", install("scipy>=1.11"))
    assert found["numpy"].detail == "numpy 1.9.5 is installed, but >=1.26 is required"  # 1.9 is older than 1.26


def test_torch_that_cannot_be_imported(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def fail(name: str, *rest: Any) -> Any:
        if name == "torch":
            raise OSError("libtorch.so: wrong ELF class")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail)
    found = look()
    assert found["torch"].state == "fail"
    assert "wrong ELF class" in found["torch"].detail
    assert "pip install" in found["torch"].fix
    assert "datasets" not in found  # they cannot be looked at without it


@pytest.mark.parametrize(("free", "state"), [(1e8, "fail"), (1e9, "warn"), (8e9, "ok")])
def test_memory(look: Look, monkeypatch: pytest.MonkeyPatch, free: float, state: str) -> None:
    monkeypatch.setattr(doctor_checks, "free_memory", lambda: (int(free), 16 * 10**9))
    found = look()["memory"]
    assert found.state == state
    assert found.detail == f"{free / 1e9:.1f} GB of 16.0 GB free"
    assert bool(found.fix) == (state != "ok")


def test_free_memory_is_what_linux_and_the_container_say(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"/proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:    5000 kB\n"}

    def read(path: Path, **_: Any) -> str:
        if str(path) not in told:
            raise FileNotFoundError(path)
        return told[str(path)]

    monkeypatch.setattr(Path, "read_text", read)
    free, total = doctor_checks.free_memory()
    assert free == 5000 * 1024
    told["/sys/fs/cgroup/memory.max"], told["/sys/fs/cgroup/memory.current"] = "max\n", "1000\n"
    assert doctor_checks.free_memory() == (free, total)
    told["/sys/fs/cgroup/memory.max"] = "4000000\n"
    told["/sys/fs/cgroup/memory.current"] = "1500000\n"
    told["/sys/fs/cgroup/memory.stat"] = "anon 1000000\ninactive_file 500000\n"
    assert doctor_checks.free_memory() == (3_000_000, 4_000_000)
    told.pop("/proc/meminfo")
    told["/sys/fs/cgroup/memory.max"] = "max"
    assert doctor_checks.free_memory() == (total, total)  # nobody tells


@pytest.mark.parametrize(("free", "state"), [(1e7, "fail"), (5e8, "warn"), (5e9, "ok")])
def test_disk(look: Look, monkeypatch: pytest.MonkeyPatch, free: float, state: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(free)))
    found = look()["disk"]
    assert found.state == state
    assert ("choose another --out" in found.fix) == (state != "ok")


def test_data(look: Look, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setattr("potluck.data.load.roots", lambda: [here])
    monkeypatch.setattr("potluck.data.exercises.installed", lambda: None)
    found = look()
    assert (found["demo data"].state, found["datasets"].state) == ("warn", "info")
    assert "[demo]'" in found["demo data"].fix
    assert "potluck datasets" in found["datasets"].fix
    (here / "mnist.npz").write_text("half a down")
    found = look()
    assert found["datasets"].state == "fail"
    assert "mnist.npz is incomplete" in found["datasets"].detail
    assert found["datasets"].fix == "copy it again, or remove it"


def test_data_of_ones_own(look: Look, potluck: Potluck, here: Path) -> None:
    (here / "mine.csv").write_text("ax,label\n0.1,walk\n0.2,sit\n")
    assert look("mine.csv")["data"] == Finding("data", "ok", "mine.csv: 2 rows of shape (1,) in 2 classes")
    (here / "mine.csv").write_text("ax,label\n0.1,walk\nn/a,sit\n")
    found = look("mine.csv")["data"]
    assert (found.state, found.fix) == ("fail", "potluck explain PL-206")
    assert "1 missing value in 1 of 1 columns (ax 1)" in found.detail
    assert potluck("doctor", "--data", "mine.csv").exit_code == 1


def test_extras(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, {"pyarrow": None, "flwr": "1.20.0", "click": "8.4.1"})
    found = look()
    remedy = f"`{install_extra('frames')}` adds it"
    frames = Finding("extra frames", "info", "pyarrow is not installed, for Parquet files and data frames", remedy)
    assert found["extra frames"] == frames
    flower = "flwr 1.20.0 is installed, but ==1.41.0 is required, click 8.4.1 is installed, but <8.4 is required"
    assert found["extra flower"].detail == f"{flower}, for `potluck deploy`"
    assert found["extra flower"].state == "warn"
    installed(monkeypatch, {"flwr": None, "click": "8.4.1"})
    assert look()["extra flower"].state == "info"  # nobody asked for it, so click may be of any version


def test_the_tools_of_the_firmware(look: Look, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setenv("PATH", str(here))
    found = look()
    for program in doctor_checks.TOOLS:
        assert found[program].state == "info"
        assert found[program].fix == "`make firmware-deps` installs it"
    (here / "cc").write_text("")
    (here / "cc").chmod(0o755)
    assert look()["cc"] == Finding("cc", "ok", str(here / "cc"))


def test_ports(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor_checks, "PORTS", {port: "potluck watch --port 0"})
        found = look()[f"port {port}"]
        assert found.state == "warn"
        assert found.detail == "cannot be used (Address already in use)"
        assert "`potluck watch --port 0`" in found.fix
    assert look()[f"port {port}"].state == "ok"
