"""The PlatformIO library, built by PlatformIO itself, and its image run under QEMU.

`make firmware-deps` installs PlatformIO and SCons from PyPI into build/platformio. Its registry of platforms and tools
is elsewhere, so the platform is one of our own (stubs/platformio), with the system's compiler.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.boards import emulation

from potluck.engines.serial.board import Board
from potluck.firmware.boards import BOARDS
from potluck.firmware.emulator import Emulator
from potluck.firmware.image import linker_script
from potluck.firmware.toolchain import sources

TOP, STUB = sources(), Path(__file__).parent / "stubs" / "platformio"
PLATFORMIO = TOP.parent / "build" / "platformio" / "bin" / "platformio"
SCONS = "4.41101.0"  # as PlatformIO 6.2.0 numbers SCons 4.11.1

pytestmark = [
    pytest.mark.skipif(emulation() is not None, reason=str(emulation())),
    pytest.mark.skipif(not PLATFORMIO.exists(), reason="needs PlatformIO; `make firmware-deps` installs it"),
]


def core_folder(path: Path) -> Path:
    """What PlatformIO would have downloaded: its build tool, which is PyPI's SCons, and the platform."""
    tool = path / "packages" / "tool-scons"
    tool.mkdir(parents=True)
    (tool / "package.json").write_text(json.dumps({"name": "tool-scons", "version": SCONS}))
    spec = {"owner": "platformio", "id": 1, "name": "tool-scons", "requirements": None, "uri": None}
    (tool / ".piopm").write_text(json.dumps({"type": "tool", "name": "tool-scons", "version": SCONS, "spec": spec}))
    (tool / "scons.py").write_text("from SCons.Script.Main import main\nmain()\n")
    shutil.copytree(STUB, path / "platforms" / "bare")
    return path


def test_platformio_builds_the_library_and_the_image_answers(tmp_path: Path) -> None:
    project, part = tmp_path / "project", BOARDS["nrf52832"]
    (project / "src").mkdir(parents=True)
    for name in ("main.c", "mps2.c", "startup.c", "key.h", "nor.h"):
        shutil.copy(TOP / "port" / name, project / "src")
    (project / "board.ld").write_text(linker_script(part, "emulator"))
    shutil.copytree(TOP, tmp_path / "library", ignore=shutil.ignore_patterns("port", "zephyr"))
    (project / "platformio.ini").write_text(
        "[env:nano33]\nplatform = bare\nboard = nano33\nboard_build.ldscript = board.ld\n"
        f"lib_deps = symlink://{tmp_path / 'library'}\n"
        "build_flags = -DPL_ARENA=9000 -DPL_FLASH=393216 -DPL_FENCE '-DPL_BOARD=\"pio\"'\n"
    )
    settings = {"PLATFORMIO_CORE_DIR": str(core_folder(tmp_path / "core")), "PLATFORMIO_SETTING_ENABLE_TELEMETRY": "No"}
    settings |= {"PLATFORMIO_SETTING_CHECK_PLATFORMIO_INTERVAL": "9999"}
    mine = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(PLATFORMIO), "run", "-d", str(project)]
    done = subprocess.run(words, env={**mine, **settings}, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Potluck @ " in done.stdout  # it found the library by its manifest
    elf = project / ".pio" / "build" / "nano33" / "program.elf"
    with Emulator(elf, f"unix:{tmp_path / 'line'}", tmp_path / "flash") as emulator:
        board = Board("pio", emulator.address, silence=60.0)
        hello = board.connect()
        board.close()
    assert (hello.board, hello.arena) == ("pio", 9000)
