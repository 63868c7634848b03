"""Compiling the firmware: the host's compiler for tests and tools, arm-none-eabi-gcc for boards.

Programs are kept in the user's cache, by a hash of the sources, the flags and the compiler. With `-ffp-contract=off`
host and board give the same bits: neither side fuses multiply and add.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from potluck.errors import BadInput, Code, Missing

HOW = "`make firmware-deps` installs it (Debian packages gcc-arm-none-eabi and qemu-system-arm)"
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror")
COMMON = ("-std=c11", "-g", "-ffp-contract=off", "-fno-math-errno", *WARNINGS)
SANITIZERS = (
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
CORE = ("-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard", "-mthumb")
BOARD = (*CORE, "-O2", "-ffreestanding", "-ffunction-sections", "-fdata-sections", "-Wdouble-promotion")

SMALL = ("-mcpu=cortex-m0", "-mthumb", "-O2", "-ffreestanding", "-ffunction-sections", "-fdata-sections")

SIZES = (
    "-DPL_DATA",
    "-DPL_HZ",
    "-DPL_FENCE",
    "-DPL_ARENA",
    "-DPL_FLASH",
    "-DPL_BOARD",
    "-DPL_PAGE",
    "-DPL_UNIT",
    "-DPL_MTU",
)
LINKING = ("-nostdlib", "-nostartfiles", "-Wl")

LAYERS = ("layers", "layers_conv", "layers_gru", "layers_plan")
NETWORK = (*LAYERS, "cfc_plan", "cfc_keep", "cfc_run", "cfc_bind", "cfc_step", "keys")
LINE = ("wire", "frame", "lock", "ble")
CLIENT = (*NETWORK, *LINE, "flash", "live", "shelf", "train", "fit", "share", "regions", "client")


def sources() -> Path:
    """The folder of the C sources: inside an installed package, or at the root of a checkout."""
    for place in (Path(__file__).parents[1] / "_firmware", Path(__file__).parents[3] / "firmware"):
        if (place / "src" / "pl_cfc.h").exists():
            return place
    raise Missing(
        Code.TOOLCHAIN, "firmware: its C sources are not in this installation; install potluck from its repository."
    )


def needs(program: str, why: str) -> str:
    """The path of a program. One that is not installed raises Missing."""
    found = shutil.which(program)
    if found is None:
        raise Missing(Code.TOOLCHAIN, f"firmware: {program} is not on this machine, {why} needs it; {HOW}.")
    return found


def host_compiler() -> str:
    return needs(os.environ.get("CC", "cc"), "the host's build")


def arm_compiler() -> str:
    return needs("arm-none-eabi-gcc", "an image")


def host_program(
    port: str, *, sanitize: bool = False, double: bool = False, defines: Mapping[str, int] | None = None
) -> Path:
    """Compile `posix`, `packets`, `stages` or another port for this machine."""
    names = [*(f"src/{name}.c" for name in (NETWORK if port == "stages" else CLIENT)), f"port/{port}.c"]
    if port in ("posix", "packets"):
        names.append("port/main.c")
    flags = [
        *COMMON,
        *(("-O1", *SANITIZERS) if sanitize else ("-O2",)),
        *(["-DPL_DOUBLE"] if double else ["-Wdouble-promotion"]),
    ]
    flags += [f"-D{name}={value}" for name, value in (defines or {}).items()]
    return compiled(host_compiler(), names, flags, libraries=("-lm",) if double else ())


def compiled(
    compiler: str,
    names: Sequence[str],
    flags: Sequence[str],
    libraries: Sequence[str] = (),
    script: str | None = None,
) -> Path:
    """Compile and link these sources; `script` is the text of a linker script.

    Sources that do not use the sizes of a build (PL_ARENA, PL_FLASH, PL_PAGE and such) are compiled once for all sizes.
    """
    sizes = [flag for flag in flags if flag.startswith(SIZES)]
    others = [flag for flag in flags if not flag.startswith(SIZES)]
    compiling = [flag for flag in others if not flag.startswith(LINKING)]
    top = sources()
    objects = [
        _made(
            compiler,
            ["-c", name, *compiling, *(sizes if any(size[2:].encode() in text for size in SIZES) else ())],
            name,
        )
        for name, text in ((name, (top / name).read_bytes()) for name in names)
    ]
    return _made(compiler, [*others, *map(str, objects)], names[-1], libraries, script)


def _made(
    compiler: str, arguments: Sequence[str], name: str, libraries: Sequence[str] = (), script: str | None = None
) -> Path:
    """Run the compiler, or take its result from the cache."""
    top = sources()
    digest = hashlib.sha256("\0".join([_version(compiler), *arguments, *libraries, script or ""]).encode())
    for file in [top / name, *sorted(top.glob("*/*.h"))]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    made = _folder() / f"{Path(name).stem}-{digest.hexdigest()[:20]}{'.o' if arguments[0] == '-c' else ''}"
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        fresh = Path(scratch) / "made"
        more = []
        if script is not None:
            (Path(scratch) / "board.ld").write_text(script)
            more = ["-T", str(Path(scratch) / "board.ld")]
        command = [compiler, "-Isrc", *arguments, "-o", str(fresh), *more, *libraries]
        done = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BadInput(Code.FIRMWARE_FAILED, f"firmware: {Path(compiler).name} failed: {_first_error(done.stderr)}")
        os.replace(fresh, made)
    return made


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path("~/.cache").expanduser()) / "potluck" / "firmware"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


def _first_error(text: str) -> str:
    lines = text.strip().splitlines()
    wrong = [line for line in lines if "error" in line or "overflowed" in line or "ASSERT" in line]
    return (wrong or lines or ["no reason given"])[0].strip()
