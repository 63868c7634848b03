"""What `potluck doctor` looks at: the install, memory, disk, data, extras, the firmware's tools and ports."""

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

# The extras a user may want: the package that each stands for, and what needs it.
EXTRAS = {
    "demo": ("seglearn", "`potluck demo`"),
    "frames": ("pandas", "Parquet files and data frames"),
    "dashboard": ("starlette", "`potluck watch`"),
    "flower": ("flwr", "`potluck deploy`"),
    "ray": ("ray", "`--workers ray` and `--engine flower-sim`"),
    "sdp": ("cvxpy", '`method.cud = "sdp"` of FedCFC'),
    "tensorboard": ("tensorboard", "`potluck export --to tensorboard`"),
    "mlflow": ("mlflow-skinny", "`potluck export --to mlflow`"),
}
TOOLS = {
    "cc": "how much memory a board's network takes",
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
    """Everything, what matters most first; `data` is a set or a file to look at, too."""
    yield Finding("python", OK, platform.python_version())  # an older one could not have installed this
    yield from _install()
    torch = _torch()
    yield from (torch, _cores(), _memory(), _disk(out), _writable(out))
    if torch.state == OK:  # Potluck's own parts need it
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
    """What is wrong with an installed package, or nothing."""
    try:
        here = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"
    sign, wanted = re.match(r"(>=|==|<)(.+)", rule).groups()  # type: ignore[union-attr]
    return "" if _HOLDS[sign](_release(here), _release(wanted)) else f"{name} {here} is installed, {rule} is needed"


def _release(version: str) -> tuple[int, ...]:
    """Of 2.6.0+cpu: (2, 6)."""
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"[^0-9.]", version)[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _torch() -> Finding:
    """Imported, not only found: a wheel for another machine fails here."""
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
        return Finding("memory", FAIL, detail, "the smallest run takes nearly that: end other programs")
    if free < 2e9:
        return Finding("memory", WARN, detail, "enough for small models and few clients: end other programs for more")
    return Finding("memory", OK, detail)


def free_memory() -> tuple[int, int]:
    """Bytes that can be had without swapping, and bytes in all; a container's own limit counts."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    told = _number(Path("/proc/meminfo"), r"MemAvailable:\s+(\d+) kB")
    free = total if told is None else told * 1024  # where nobody tells, all that there is
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
        return Finding("disk", FAIL, detail, "a run needs some 50 MB: make room or choose another --out")
    if free < 1e9:
        return Finding("disk", WARN, detail, "long runs of many clients write more: make room or choose another --out")
    return Finding("disk", OK, detail)


def _writable(out: Path) -> Finding:
    """Tried, not asked: permission bits do not tell about read-only disks."""
    place = _existing(out)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding("runs folder", FAIL, f"{place} cannot be written ({reason})", "choose another folder with --out")
    return Finding("runs folder", OK, f"{out} can be written" if place == out else f"{out} can be made in {place}")


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
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
        yield Finding("demo data", OK, "watch_exercises is here")
    else:
        fix = f"`{install_extra('demo')}` brings it for `potluck demo`"
        yield Finding("demo data", WARN, "watch_exercises is not here", fix)
    broken = sorted({str(path) for path in files.values() if not zipfile.is_zipfile(path)})
    for file in broken:
        yield Finding("data sets", FAIL, f"{file} is cut short or no .npz archive", "copy it again, or remove it")
    if not broken:
        detail = f"{len(files)} of {len(PUBLIC)} public sets on this machine"
        fix = "" if files else "see `potluck datasets`; data of your own needs none of them"
        yield Finding("data sets", OK if files else INFO, detail, fix)


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
        packages = dict(sorted(asked.get(extra, {}).items(), key=lambda item: item[0] != main))  # the main one first
        troubles = {name: trouble for name, rule in packages.items() if (trouble := _trouble(name, rule))}
        missing = [name for name, trouble in troubles.items() if trouble.endswith("is not installed")]
        if troubles:
            # Without its main package nobody asked for this extra; the versions of the others do not matter then.
            absent = main in missing or len(missing) == len(troubles)
            fix = f"`{install_extra(extra)}` {'adds' if absent else 'mends'} it"
            yield Finding(f"extra {extra}", INFO if absent else WARN, f"{', '.join(troubles.values())}, for {use}", fix)
        elif packages:
            yield Finding(f"extra {extra}", OK, ", ".join(f"{name} {metadata.version(name)}" for name in packages))


def _tools() -> Iterator[Finding]:
    for program, use in TOOLS.items():
        place = shutil.which(program)
        if place is None:
            yield Finding(program, INFO, f"is not here, for {use}", "`make firmware-deps` installs it")
        else:
            yield Finding(program, OK, place)


def _ports() -> Iterator[Finding]:
    for port, other in PORTS.items():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError as error:
                fix = f"end what listens there, or choose another one: `{other}`"
                yield Finding(f"port {port}", WARN, f"cannot be used ({error.strerror or error})", fix)
                continue
        yield Finding(f"port {port}", OK, "free")
