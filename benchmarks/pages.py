"""How long the report and the live page take to open with a run of many clients, and how they answer afterwards.

    python benchmarks/pages.py --clients 1000

It makes a run (FedAvg on rows drawn for the purpose), writes its report, serves its page, and opens both in Chromium. A
page has opened when everything on it is drawn. Answering is the time from an event to the next frame that shows it. On
a machine that is busy with other things the processor time says what an idle one would need.
Needs the extras `dashboard` and `dev`, and Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from playwright.sync_api import Page, sync_playwright

import potluck
from potluck import report
from potluck.runs.results import Run

ROUNDS, ROWS, CLASSES = 30, 40, 6
NEXT_FRAME = "await new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
OPEN = "document.querySelectorAll('.rest').forEach((one) => { one.open = true; })"
OPENED = "#views:not(.old) section"


def made(folder: Path, clients: int) -> Run:
    rng = np.random.Generator(np.random.Philox(0))
    y = rng.integers(0, CLASSES, clients * ROWS)
    mine = np.repeat(rng.normal(size=(clients, 12)) * 0.6, ROWS, axis=0)
    x = (rng.normal(size=(CLASSES, 12))[y] + mine + 1.3 * rng.normal(size=(len(y), 12))).astype(np.float32)
    np.savez(folder / "rows.npz", x=x, y=y, subject=np.repeat([f"c{i:04}" for i in range(clients)], ROWS))
    return potluck.run({
        "data": {"source": str(folder / "rows.npz")},
        "method": {"name": "fedavg"},
        "fleet": {"devices": "mixed"},
        "faults": {"nan": 0.01, "dropout": 0.02},
        "stop": {"rounds": ROUNDS},
        "run": {"out": str(folder / "runs")},
    })  # fmt: skip


def answers(page: Page, script: str, argument: Any = None) -> float:
    """Milliseconds from an event to the frame after it."""
    began, ended = "const began = performance.now()", "return performance.now() - began"
    timed = f"async (given) => {{ {began}; {script}; {NEXT_FRAME}; {ended}; }}"
    return float(page.evaluate(timed, argument))


def spent() -> float:
    """Processor seconds of this process and of its children: the server and the browser."""
    found = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found += times.user + times.system
    return found


def of_report(page: Page, path: Path) -> None:
    began, before = time.perf_counter(), spent()
    page.goto(path.as_uri())
    page.evaluate(f"async () => {{ {NEXT_FRAME} }}")
    opened, work = time.perf_counter() - began, spent() - before
    typed = """const find = document.getElementById('device-cards').previousElementSibling;
        find.value = given; find.dispatchEvent(new Event('input'))"""
    found = {
        "find a device": answers(page, typed, "c07"),
        "show all devices": answers(page, f"{typed}; {OPEN}", ""),
        "sort the clients": answers(page, "document.querySelector('#client-table th button').click()"),
        "scroll to the end": answers(page, "scrollTo(0, document.body.scrollHeight)"),
    }
    print(f"report: {path.stat().st_size / 1e6:.1f} MB, open after {opened:.2f} s ({work:.2f} s of processor time)")
    print("  " + ", ".join(f"{what} {value:.0f} ms" for what, value in found.items()))


def of_live_page(page: Page, address: str, clients: int) -> None:
    began, before = time.perf_counter(), spent()
    page.goto(address)
    page.wait_for_selector(f".tiles .tile:nth-child({clients})[class*=q]")
    tiles = time.perf_counter() - began
    page.wait_for_selector(OPENED)
    page.evaluate(f"async () => {{ {NEXT_FRAME} }}")
    opened, work = time.perf_counter() - began, spent() - before
    moved = """
        const bar = document.getElementById('scrub'), first = document.querySelector('.run p');
        const before = first.textContent; bar.value = given; bar.dispatchEvent(new Event('input'));
        while (first.textContent === before) await new Promise(done => setTimeout(done, 1))"""
    times = [answers(page, moved, at) for at in range(25, 1000, 50)]
    page.wait_for_selector(OPENED)
    print(f"live page: tiles after {tiles:.2f} s, all views after {opened:.2f} s ({work:.2f} s of processor time)")
    print(f"  scrubbing to 20 moments: {median(times):.0f} ms each, {max(times):.0f} ms at most")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--clients", type=int, default=1000)
    asked.add_argument("--run", type=Path, help="measure this run instead of making one")
    given = asked.parse_args()
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        raise SystemExit("pages: no Chromium here (Debian: apt-get install chromium).")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run = Run(given.run) if given.run else made(Path(folder), given.clients)
        clients = len(run.clients)
        print(f"{clients:,} clients, {len(run.table('tasks')):,} tasks; load of the machine {os.getloadavg()[0]:.1f}")
        began = time.perf_counter()
        written = report.write([run], Path(folder) / "report.html")
        print(f"report written in {time.perf_counter() - began:.2f} s")
        command = [sys.executable, "-m", "potluck", "watch", str(run.folder), "--port", "0"]
        serving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert serving.stdout is not None
        address = serving.stdout.readline().split()[1]
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            of_report(browser.new_page(viewport={"width": 1280, "height": 900}), written)
            of_live_page(browser.new_page(viewport={"width": 1280, "height": 900}), address, clients)
        finally:
            browser.close()
            serving.send_signal(signal.SIGINT)
            serving.wait()


if __name__ == "__main__":
    main()
