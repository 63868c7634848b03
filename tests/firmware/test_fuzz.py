"""Hostile frames: the client under the sanitizers drops or answers every one of them, and goes on."""

from __future__ import annotations

import re
import subprocess

from potluck.firmware.toolchain import host_program

MUTANTS = 100_000


def test_mutated_frames_are_no_fault_and_no_hang() -> None:
    program = host_program("fuzz", sanitize=True, defines={"PL_ARENA": 8192, "PL_FLASH": 40960})
    done = subprocess.run([str(program), str(MUTANTS)], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    told = re.fullmatch(
        r"(\d+) mutants, (\d+) answers, (\d+) of them troubles, (\d+) trained, (\d+) fitted and (\d+) told, "
        r"(\d+) frames dropped, HELLO answered\n",
        done.stdout,
    )
    assert told is not None, done.stdout
    mutants, answers, troubles, trained, fitted, changes, dropped = (int(number) for number in told.groups())
    assert mutants == MUTANTS
    # They got in everywhere: refused by what they say, dropped by how they look, and many carried out.
    assert troubles > 10_000
    assert dropped > 10_000
    assert trained > 1_000
    assert fitted > 1_000  # layers in float32 and in int8, and CFCs
    assert changes > 200
    assert answers > troubles + trained + 10_000
