"""The checks of `potluck doctor`: installation, memory, disk, data, extras, firmware tools and ports."""

from __future__ import annotations

import operator
import os
import platform
import re
import shutil
import socket
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from potluck import __version__
from potluck.cli import deploy, watch
from potluck.cli.requirements import requirements
from potluck.deploy.findings import FAIL, INFO, OK, WARN, Finding
from potluck.errors import BadInput, install, install_extra

# The extras, each with its main package and what needs it.
EXTRAS = {
    "demo": ("seglearn", "`potluck demo`"),
    "frames": ("pandas", "Parquet files and data frames"),
    "dashboard": ("starlette", "`potluck watch`"),
    "flower": ("flwr", "`potluck deploy`"),
    "ray": ("ray", "`--workers ray` and `--engine flower-sim`"),
    "sdp": ("cvxpy", '`method.cud = "sdp"` of FedCFC'),
    "tensorboard": ("tensorboard", "`potluck export --to tensorboard`"),
    "mlflow": ("mlflow-skinny", "`potluck export --to mlflow`"),
    "tune": ("optuna", "`potluck tune --sampler optuna`"),
    "fast": ("numba", "compiled kernels for small networks"),
    "privacy": ("dp-accounting", "`[privacy]` and `potluck privacy`"),
    "secure": ("cryptography", "secure sums over the network"),
    "onnx": ("onnx", "`potluck export --to onnx`"),
    "notebooks": ("nbclient", "the notebooks in examples/notebooks"),
}
TOOLS = {
    "cc": "the memory that a network needs on a board",
    "arm-none-eabi-gcc": "images for boards",
    "arm-none-eabi-size": "images for boards",
    "qemu-system-arm": "emulated boards",
}
PORTS = {
    watch.PORT: "potluck watch --port 0",
    deploy.PORT: "potluck deploy init --port N",
    deploy.PORT + 1: "potluck deploy init --port N",
}
_HOLDS = {">=": operator.ge, "==": operator.eq, "<": operator.lt}


def examine(out: Path, data: str | None = None) -> Iterator[Finding]:
    """Run all checks, the most important first; `data` is a dataset or a file to check as well."""
    yield Finding("python", OK, platform.python_version())  # an older Python could not have installed Potluck
    yield from _install()
    torch = _torch()
    yield from (torch, _cores(), _memory(), _disk(out), _writable(out))
    if torch.state == OK:  # the checks of data need it
        yield from _sets()
        if data is not None:
            yield _given(data)
    yield from _extras()
    yield from _tools()
    yield from _ports()


def _install() -> Iterator[Finding]:
    needed = requirements().get("", {})
    wrong = [(name, rule, trouble) for name, rule in needed.items() if (trouble := _trouble(name, rule))]
    for name, rule, trouble in wrong:
        yield Finding(name, FAIL, trouble, install(f"{name}{rule}"))
    if not needed:
        fix = f"`{install('-e', '.')}` in its folder installs it"
        yield Finding("potluck", WARN, f"{__version__} runs from its sources, so its requirements are not checked", fix)
    elif not wrong:
        yield Finding("potluck", OK, f"{__version__}, with the {len(needed)} packages it needs")


def _trouble(name: str, rule: str) -> str:
    """What is wrong with an installed package; empty if nothing is."""
    try:
        here = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"
    sign, wanted = re.match(r"(>=|==|<)(.+)", rule).groups()  # type: ignore[union-attr]
    return (
        "" if _HOLDS[sign](_release(here), _release(wanted)) else f"{name} {here} is installed, but {rule} is required"
    )


def _release(version: str) -> tuple[int, ...]:
    """(2, 6) of the version 2.6.0+cpu."""
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"[^0-9.]", version)[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _torch() -> Finding:
    """Import it, because a wheel for another machine is found but fails to load."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding("torch", FAIL, f"cannot be imported ({error})", install("--force-reinstall", "torch"))
    return Finding("torch", OK, f"{torch.__version__} can be imported")


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Finding("cores", OK, f"{cores} usable; --workers {cores} uses {'it' if cores == 1 else 'them all'}")


def _memory() -> Finding:
    free, total = free_memory()
    detail = f"{_gigabytes(free)} of {_gigabytes(total)} free"
    if free < 4e8:
        return Finding("memory", FAIL, detail, "the smallest run needs about that much: close other programs")
    if free < 2e9:
        return Finding("memory", WARN, detail, "enough for small models and few clients: close other programs for more")
    return Finding("memory", OK, detail)


def free_memory() -> tuple[int, int]:
    """Free bytes without swapping, and all bytes; the limit of a container counts."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    available = _number(Path("/proc/meminfo"), r"MemAvailable:\s+(\d+) kB")
    free = total if available is None else available * 1024  # not Linux: assume all of it
    limit = _number(Path("/sys/fs/cgroup/memory.max"), r"(\d+)")
    used = _number(Path("/sys/fs/cgroup/memory.current"), r"(\d+)")
    if limit is not None and used is not None:
        cached = _number(Path("/sys/fs/cgroup/memory.stat"), r"inactive_file (\d+)") or 0
        return max(0, min(free, limit - used + cached)), min(total, limit)
    return free, total


def _number(path: Path, pattern: str) -> int | None:
    try:
        found = re.search(pattern, path.read_text(encoding="utf-8"))
    except OSError:
        return None
    return None if found is None else int(found[1])


def _gigabytes(nbytes: float) -> str:
    return f"{nbytes / 1e9:.1f} GB"


def _disk(out: Path) -> Finding:
    free = shutil.disk_usage(_existing(out)).free
    detail = f"{_gigabytes(free)} free"
    if free < 5e7:
        return Finding("disk", FAIL, detail, "a run needs about 50 MB: free some space or choose another --out")
    if free < 1e9:
        return Finding(
            "disk", WARN, detail, "long runs of many clients write more: free some space or choose another --out"
        )
    return Finding("disk", OK, detail)


def _writable(out: Path) -> Finding:
    """Write a file to find out: permission bits say nothing about read-only disks."""
    place = _existing(out)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding("runs folder", FAIL, f"{place} cannot be written ({reason})", "choose another folder with --out")
    return Finding("runs folder", OK, f"{out} can be written" if place == out else f"{out} can be created in {place}")


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    path = path.absolute() if not path.exists() else path
    while not path.exists():
        path = path.parent
    return path


def _sets() -> Iterator[Finding]:
    from potluck.data import exercises
    from potluck.data.load import find
    from potluck.data.public import PUBLIC

    files = {name: path for name in PUBLIC if (path := find(name)) is not None}
    if "watch_exercises" in files or exercises.installed() is not None:
        yield Finding("demo data", OK, "watch_exercises is on this machine")
    else:
        fix = f"`{install_extra('demo')}` adds it for `potluck demo`"
        yield Finding("demo data", WARN, "watch_exercises is not on this machine", fix)
    broken = sorted({str(path) for path in files.values() if not zipfile.is_zipfile(path)})
    for file in broken:
        yield Finding("datasets", FAIL, f"{file} is incomplete or not an .npz archive", "copy it again, or remove it")
    if not broken:
        detail = f"{len(files)} of {len(PUBLIC)} public sets on this machine"
        fix = "" if files else "see `potluck datasets`; your own data needs none of them"
        yield Finding("datasets", OK if files else INFO, detail, fix)


def _given(source: str) -> Finding:
    from potluck.data.load import load

    try:
        found = load(source)
    except BadInput as error:
        return Finding("data", FAIL, str(error), f"potluck explain {error.code}")
    return Finding("data", OK, f"{source}: {len(found)} rows of shape {found.sample_shape} in {found.classes} classes")


def _extras() -> Iterator[Finding]:
    asked = requirements()
    for extra, (main, use) in EXTRAS.items():
        packages = dict(
            sorted(asked.get(extra, {}).items(), key=lambda item: item[0] != main)
        )  # the main package first
        troubles = {name: trouble for name, rule in packages.items() if (trouble := _trouble(name, rule))}
        missing = [name for name, trouble in troubles.items() if trouble.endswith("is not installed")]
        if troubles:
            # Without its main package this extra is not in use, so the versions of its other packages do not matter.
            absent = main in missing or len(missing) == len(troubles)
            fix = f"`{install_extra(extra)}` {'adds' if absent else 'repairs'} it"
            yield Finding(f"extra {extra}", INFO if absent else WARN, f"{', '.join(troubles.values())}, for {use}", fix)
        elif packages:
            yield Finding(f"extra {extra}", OK, ", ".join(f"{name} {metadata.version(name)}" for name in packages))


def _tools() -> Iterator[Finding]:
    for program, use in TOOLS.items():
        place = shutil.which(program)
        if place is None:
            yield Finding(program, INFO, f"is not installed; needed for {use}", "`make firmware-deps` installs it")
        else:
            yield Finding(program, OK, place)


def _ports() -> Iterator[Finding]:
    for port, other in PORTS.items():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError as error:
                fix = f"stop the program that uses it, or choose another port: `{other}`"
                yield Finding(f"port {port}", WARN, f"cannot be used ({error.strerror or error})", fix)
                continue
        yield Finding(f"port {port}", OK, "free")
