"""The example sketch itself, run: its sensor, buttons, line and flash are played on this machine.

A host sets it up and federates. Then it works without one: it classifies, learns from corrections between its readings,
and goes on after a power cut. Then a host comes again.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from potluck import keys
from potluck.engines.chunks import Job
from potluck.engines.serial.board import Board
from potluck.engines.serial.link import Line, Socket
from potluck.firmware.fit import FitClient, fit_setup
from potluck.firmware.toolchain import CLIENT, COMMON, compiled, host_compiler, needs, sources
from potluck.fleet import Data
from potluck.learn import Recipe, fit
from potluck.methods import fedavg
from potluck.models import build

STUBS = Path(__file__).parent / "stubs" / "arduino"
STEPS, CHANNELS, CLASSES, EVERY = 50, 6, 3, 25  # as in the sketch
MODEL = build("mlp", (STEPS, CHANNELS), CLASSES, {"hidden": (8,), "activation": "tanh"})
MEAN, DEVIATION = np.linspace(-1, 1, CHANNELS), np.linspace(0.5, 3, CHANNELS)
CONFIG = fedavg.Config(Recipe(epochs=20, batch=4, lr=0.05))


def gestures(count: int, pitches: tuple[float, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised windows: a wave of the class's pitch, its phase nearly the same each time."""
    rng = keys.rng("gestures", seed)
    y = np.arange(count) % CLASSES
    time = np.arange(STEPS)[None, :, None]
    phase = np.arange(CHANNELS) + rng.normal(0, 0.2, (count, 1, 1))
    x = np.sin(np.asarray(pitches)[y][:, None, None] * time + phase) + 0.1 * rng.normal(size=(count, STEPS, CHANNELS))
    return x.astype(np.float32), y


USUAL, OWN = (0.1, 0.25, 0.4), (0.1, 0.6, 0.4)  # this person does the second gesture faster than everybody else


class Sketch:
    """The sketch as a process; opened anew, its power was cut."""

    def __init__(self, program: Path, flash: Path) -> None:
        self._words = [str(program), str(flash)]
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Socket | None = None
        self._play = self._led = -1

    def open(self) -> Line:
        self.cut()
        ours, theirs = socket.socketpair()
        sensor, self._play = os.pipe()
        self._led, lamp = os.pipe()
        with theirs:
            self._process = subprocess.Popen(
                [*self._words, str(sensor), str(lamp)], stdin=theirs, stdout=theirs, pass_fds=(sensor, lamp)
            )
        os.close(sensor)
        os.close(lamp)
        ours.settimeout(30)
        self._line = Socket(ours)
        return self._line

    def open_again(self) -> Line:
        """The line of the sketch as it runs."""
        assert self._line is not None
        return self._line

    def cut(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            os.close(self._play)
            os.close(self._led)
            self._process = None
        if self._line is not None:
            self._line.close()
            self._line = None

    def moment(self, reading: np.ndarray, button: int = -1) -> bool:
        """One reading of the sensor; whether the LED is on afterwards."""
        os.write(self._play, struct.pack("<6fb", *(reading * DEVIATION + MEAN), button))
        return os.read(self._led, 1) == b"\1"

    def window(self, x: np.ndarray, button: int = -1) -> bool:
        """Readings of one window, where the board's own windows begin; what the LED says; then perhaps a button."""
        for reading in x[:-1]:
            self.moment(reading)
        return self.moment(x[-1], button)


@pytest.fixture
def sketch(tmp_path: Path) -> Iterator[Sketch]:
    gxx, top = needs("c++", "the sketch"), sources()
    flags = ["-DARDUINO=10819", "-DARDUINO_ARCH_MBED", "-O1", "-ffp-contract=off", f"-I{top / 'src'}", f"-I{STUBS}"]
    objects = [compiled(host_compiler(), [f"src/{name}.c"], [*COMMON, "-O2", "-r", "-nostdlib"]) for name in CLIENT]
    code = tmp_path / "sketch.cpp"
    code.write_text("#include <Arduino.h>\n" + (top / "examples" / "Gestures" / "Gestures.ino").read_text())
    plus = ["-std=gnu++14", "-fno-exceptions", "-fno-rtti", "-Wno-int-to-pointer-cast"]
    files = [code, top / "src" / "arduino" / "port.cpp", STUBS / "played.cpp"]
    words = [gxx, *plus, *flags, *files, *objects, "-o", tmp_path / "sketch"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    one = Sketch(tmp_path / "sketch", tmp_path / "flash")
    yield one
    one.cut()


def rows(x: np.ndarray, y: np.ndarray) -> Data:
    return Data(torch.from_numpy(x), torch.from_numpy(y), torch.ones(len(y)))


def client(sketch: Sketch, x: np.ndarray, y: np.ndarray) -> FitClient:
    scaler = MEAN.astype("<f4").tobytes() + (1 / DEVIATION).astype("<f4").tobytes()
    board = Board("sketch", sketch.open, 20.0)
    return FitClient(board, MODEL, fit_setup(MODEL, CONFIG), fedavg.PROGRAMS, rows(x, y), scaler=scaler)


def lit_rightly(sketch: Sketch, x: np.ndarray, y: np.ndarray) -> float:
    """How often the LED says rightly whether a window is of class 1."""
    return float(np.mean([sketch.window(one) == (label == 1) for one, label in zip(x, y, strict=True)]))


def test_it_federates_works_alone_learns_from_corrections_and_federates_again(sketch: Sketch) -> None:
    everybody, own = gestures(24, USUAL, 0), gestures(24, OWN, 1)
    host = client(sketch, *everybody)
    job = Job(number=0, client=0, samples=24, task=fedavg.Train(MODEL.init(0), CONFIG.recipe), key=5)
    outcome = host.run(job)
    assert outcome.done is not None, outcome.lost
    host.took(0)
    host.close()

    sketch.open()  # no host from here on; windows of the test begin where the board's do
    assert lit_rightly(sketch, *gestures(18, USUAL, 2)) == 1.0
    before = lit_rightly(sketch, *own)
    assert before < 0.75  # the fast gesture is not known

    while_learning = []
    for x, label in zip(*gestures(36, OWN, 3), strict=True):  # 36 corrections, one a window
        sketch.window(x, int(label))
        while_learning.append(sketch.moment(x[0]))  # the button is let go
        for reading in x[1:]:
            sketch.moment(reading)
    assert len(set(while_learning)) == 2  # it went on classifying

    sketch.open()  # a power cut
    assert lit_rightly(sketch, *own) > 0.95

    more = gestures(10, OWN, 4)
    for x, label in zip(*more, strict=True):
        sketch.moment(x[0])
        for reading in x[1:]:
            sketch.moment(reading)
        sketch.window(x, int(label))
    host.board = Board("sketch", sketch.open_again, 20.0)  # while it learns by itself: the host goes before
    outcome = host.run(Job(number=1, client=0, samples=24, task=fedavg.Train(MODEL.init(0), CONFIG.recipe), key=6))
    assert outcome.done is not None, outcome.lost
    assert host.board.stats().stores == 4  # of the host's model, and of three times that it learnt; not of the fourth
    x, y = (np.concatenate(parts) for parts in zip(everybody, gestures(36, OWN, 3), more, strict=True))
    theirs = fit(MODEL, MODEL.init(0), rows(x, y), CONFIG.recipe, key=torch.tensor(6))
    ours = outcome.done.update.weights  # of the host's samples and the board's own
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in theirs) < 1e-4
    host.close()
