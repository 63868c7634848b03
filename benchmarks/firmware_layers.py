"""Layers on a board, float32 beside int8: memory, instructions of a training step and of a label, accuracy.

    python benchmarks/firmware_layers.py               instructions, by QEMU's own count
    python benchmarks/firmware_layers.py --accuracy    what people's own data teach each network (UCI-HAR at 10 Hz)

A training step is one sample of 128 readings of 9 channels (an MLP: 64 values): forward, backward, descent; from the
difference that four more samples make. `plain` is the same with the inner loops as straightforward C (-DPL_PLAIN), same
compiler, same flags, same results to the last bit. A label is the forward pass alone, from the difference that four
validation samples make. The checksums are what a whole training has beside its steps, twice over all weights.
Accuracy: ten epochs on the training rows of one person, scored on that person's test rows, mean and standard deviation
over five people. The client is this machine's build of the firmware, which gives a board's bits.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import tempfile
from pathlib import Path

import torch

from potluck import keys
from potluck.data.federation import Federation, Part
from potluck.engines.chunks import Job
from potluck.engines.serial.board import Board
from potluck.engines.serial.link import Line, Socket
from potluck.firmware.boards import BOARDS, KB
from potluck.firmware.emulator import INSTRUCTIONS_PER_TICK, Emulator
from potluck.firmware.fit import FitClient, fit_setup
from potluck.firmware.image import build
from potluck.firmware.shape import memory_needed
from potluck.firmware.toolchain import host_program
from potluck.fleet import Data
from potluck.learn import Recipe
from potluck.methods import fedavg
from potluck.models import build as model_of
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment

NETWORKS = {
    "MLP 64-32-6": ("mlp", (64, 1), {"hidden": (32,)}),
    "1-D CNN": ("cnn1d", (128, 9), {"channels": (8, 16), "kernel": 5}),
    "GRU-16": ("gru", (128, 9), {"hidden": 16}),
}
FORMS = ("float32", "int8")


def some(count: int, shape: tuple[int, ...]) -> Data:
    x = keys.normal(keys.key("samples"), (count, *shape))
    return Data(x, torch.arange(count) % 6, torch.ones(count))


def ticks(name: str, form: str, train: int = 1, valid: int = 0, plain: bool = False) -> tuple[int, float]:
    """Instructions of one training on so many samples, and kB of SRAM."""
    kind, shape, settings = NETWORKS[name]
    model, config = model_of(kind, shape, 6, settings), fedavg.Config(Recipe(epochs=1, batch=1, lr=0.01))
    setup = fit_setup(model, config, form=form)
    image = build(BOARDS["nano33"], memory_needed(setup), plain=plain)
    with tempfile.TemporaryDirectory() as folder, Emulator(image.elf, f"unix:{folder}/line", counted=True) as emulator:
        board = Board(name, emulator.address, silence=600.0)
        judged = some(valid, shape) if valid else None
        client = FitClient(board, model, setup, fedavg.PROGRAMS, some(train, shape), judged)
        task = fedavg.Train(model.init(0), config.recipe)
        outcome = client.run(Job(number=0, client=0, samples=train, task=task, key=1))
        assert outcome.done is not None, outcome.lost
        found = client._fits[-1].ticks * INSTRUCTIONS_PER_TICK
        kb = (image.fixed + board.stats().stack) / KB
        board.close()
    return found, kb


COLUMNS = ("network", "weights", "SRAM kB", "training step, M instructions", "plain", "label", "checksums")


def instructions() -> None:
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    for name in NETWORKS:
        for form in FORMS:
            (alone, kb), (more, _), (judged, _) = (ticks(name, form, *n) for n in ((1,), (5,), (1, 4)))
            simple = ticks(name, form, 5, plain=True)[0] - ticks(name, form, plain=True)[0]
            step, label = (more - alone) / 4, (judged - alone) / 4
            figures = [f"{kb:.1f}", *(f"{n / 1e6:.3f}" for n in (step, simple / 4, label, alone - step))]
            print(f"| {name} | {form} | {' | '.join(figures)} |", flush=True)


def rows(federation: Federation, person: int, part: Part) -> Data:
    x, y, *_ = federation.materialise(person, part)
    return Data(torch.from_numpy(x), torch.from_numpy(y), torch.ones(len(y)))


def accuracy(people: int = 5) -> None:
    federation = federation_of(Experiment.of({"data": {"source": "uci_har_10hz"}, "partition": {"kind": "subject"}}))
    shape = federation.dataset.sample_shape
    program = host_program("posix", defines={"PL_ARENA": 200_000, "PL_FLASH": 1 << 22})
    print("| network | float32 | int8 |")
    print("|---|---|---|")
    for name, (kind, _, settings) in NETWORKS.items():
        model = model_of(kind, shape, federation.dataset.classes, settings)
        config = fedavg.Config(Recipe(epochs=10, batch=8, lr=0.05))
        cells = []
        for form in FORMS:
            scores = []
            for person in range(people):
                train, test = (rows(federation, person, part) for part in ("train", "test"))
                weights = trained(program, model, config, train, form, person)
                scores.append(float((model.logits(weights, test.x).argmax(1) == test.y).float().mean()))
            cells.append(f"{statistics.mean(scores):.3f} ± {statistics.stdev(scores):.3f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def trained(program: Path, model, config, train: Data, form: str, person: int):  # type: ignore[no-untyped-def]
    """The weights that the client makes of a person's rows."""
    started: list[subprocess.Popen[bytes]] = []

    def opened() -> Line:
        ours, theirs = socket.socketpair()
        with theirs:
            started.append(subprocess.Popen([str(program)], stdin=theirs, stdout=theirs))
        return Socket(ours)

    client = FitClient(Board("here", opened), model, fit_setup(model, config, form=form), fedavg.PROGRAMS, train)
    task = fedavg.Train(model.init(person), config.recipe)
    outcome = client.run(Job(number=0, client=0, samples=len(train.y), task=task, key=person))
    client.close()
    for process in started:
        process.wait()
    assert outcome.done is not None, outcome.lost
    return outcome.done.update.weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accuracy", action="store_true")
    if parser.parse_args().accuracy:
        accuracy()
    else:
        instructions()


if __name__ == "__main__":
    main()
