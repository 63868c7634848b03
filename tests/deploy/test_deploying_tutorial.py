"""The tutorial on deploying, command by command as it is printed, on real processes; only the port is another."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.deployment import two_ports
from safetensors.torch import load_file
from test_docs import ROOT, blocks

pytest.importorskip("flwr", reason="needs the extra flower")

PAGE = ROOT / "docs" / "tutorials" / "deploying.md"


def give(command: str, folder: Path) -> str:
    """One `potluck ...` line in a process of its own."""
    words = [sys.executable, "-m", "potluck.cli", *shlex.split(command)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"potluck {command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_page_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        for kind, text in blocks(PAGE):
            if kind == "toml":
                (tmp_path / "pair.toml").write_text(text, encoding="utf-8")
            elif kind == "python":
                exec(compile(text, str(PAGE), "exec"), {"__name__": "docs"})
            elif not text.startswith("doctor"):  # by then the server is down
                for command in text.replace("; potluck ", ";").split(";"):
                    give(f"{command} --port {two_ports()}" if command.startswith("deploy init") else command, tmp_path)
    finally:
        for what in ("s01", "s02", ""):  # whatever is still there
            subprocess.run(
                [sys.executable, "-m", "potluck.cli", "deploy", "stop", *([what] if what else [])],
                cwd=tmp_path, capture_output=True, timeout=120, check=False,
            )  # fmt: skip
    for client in ("s01", "s02"):
        simulated = load_file(tmp_path / "runs" / "simulated" / "models" / "personal" / f"{client}.safetensors")
        (deployed,) = (tmp_path / "deploy" / "clients" / client / "home" / "models").glob(f"*/{client}.safetensors")
        for name, value in load_file(deployed).items():
            torch.testing.assert_close(value, simulated[name], atol=1e-5, rtol=1e-5)
