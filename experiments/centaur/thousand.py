"""1,000 pairs, 100 of them per round: seconds of one core and memory, round by round.

The engine keeps the training rows of clients it has seen, up to a bound (`DATA_CACHE`). That is switched off here, so
that what grows would be what rounds leave behind.

python experiments/centaur/thousand.py [--rounds 40]
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from pathlib import Path

import numpy as np
import torch

from potluck.engines import samples
from potluck.runs.build import build
from potluck.runs.experiment import Experiment, read_toml

PAGE = resource.getpagesize()


def resident() -> float:
    """Megabytes this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def alive() -> float:
    """Megabytes of all tensors that anything still refers to; what the allocator keeps beyond that is used again."""
    gc.collect()
    found = (value for value in gc.get_objects() if type(value) is torch.Tensor)
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in found}.values()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="at least 8")
    rounds = max(8, parser.parse_args().rounds)
    torch.set_num_threads(1)
    samples.KEPT = 0
    parts = build(Experiment.of(read_toml(Path(__file__).with_suffix(".toml"))))
    program = parts.method.server(parts.fleet, parts.method.start(parts.weights, parts.config), parts.config)
    seconds, held, live = [], [], []
    for number in range(1, rounds + 1):
        began = time.process_time()
        state = next(program)
        seconds.append(time.process_time() - began)
        tasks, _ = parts.fleet.log.drain()  # as a run does, which writes it down
        held.append(resident())
        live.append(alive())
        who = "devices" if number % 2 else "access points"
        spent = f"{len(tasks):3d} tasks, {seconds[-1]:5.2f} s"
        print(f"round {number:3d}, {who:13s}: {spent}, {held[-1]:6.1f} MB, tensors {live[-1]:6.1f} MB", flush=True)
    half = 2 * (rounds // 4)
    for first, who in ((0, "devices"), (1, "access points")):
        later = seconds[half + first :: 2]
        print(f"rounds of {who}, second half: {np.mean(later):.2f} ± {np.std(later, ddof=1):.2f} s each")
    for what, values in (("memory", held), ("tensors", live)):
        print(
            f"{what}: {np.mean(values[half - 4 : half]):.1f} MB in the middle, {np.mean(values[-4:]):.1f} MB at the end"
        )
    print(
        f"samples handed over: {state.samples.handed_so_far:.0f}; most stored on one device: {state.samples.most:.0f}"
    )


if __name__ == "__main__":
    main()
