"""What a device's part of Centaur costs against UCD training, counted for the published ConvNet, devices and links.

python experiments/centaur/latency.py [--samples 331]

Nothing is trained: one round is counted as a run counts it (MACs of a task, bytes on the link), for every number of
offline units, and weighted by how likely that is. The lines differ in what is counted and in who may keep features.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

import torch

from potluck import devices, keys
from potluck.engines.price import Prices
from potluck.fleet import Data, Local
from potluck.methods import centaur
from potluck.methods.centaur import Collect, Config
from potluck.methods.parts.centaur.handover import Handover
from potluck.methods.parts.centaur.partial import Encoding
from potluck.methods.parts.selection import EVERYTHING, Rule, expected_shares
from potluck.models import Model, build
from potluck.wire.codec import size

UCD, LINK = devices.device("centaur-ucd"), devices.link("centaur-ucd")
LONGEST = 30  # offline units: more are one in 10^9


@dataclass(frozen=True)
class Cost:
    macs: float = 0.0
    down: float = 0.0  # bytes
    up: float = 0.0

    def times(self, often: float) -> Cost:
        return Cost(self.macs * often, self.down * often, self.up * often)

    def plus(self, other: Cost) -> Cost:
        return Cost(self.macs + other.macs, self.down + other.down, self.up + other.up)

    @property
    def computing(self) -> float:
        return self.macs / UCD.macs_per_second

    @property
    def seconds(self) -> float:
        return self.computing + 8 * (self.down / LINK.down + self.up / LINK.up)

    @property
    def joules(self) -> float:
        radio = 8 * (self.down / LINK.down * LINK.down_watts + self.up / LINK.up * LINK.up_watts)
        return self.computing * UCD.active_watts + radio


def device_round(model: Model, cfg: Config, units: int, samples: int, *, selects: bool, equal: bool = False) -> Cost:
    """A device's round after so many failed connections; one that does not select has all its samples, or as many as
    one that does (`equal`)."""
    state = centaur.start(model.init(0), cfg)
    how = Handover.of(0, here=selects, again=False, storage=1e9)
    task = Collect.of(state, cfg, model.split().classifier, units, how)
    rows = Data(torch.zeros(1, 128, 9), torch.zeros(1, dtype=torch.int64), torch.ones(1))
    local = Local(model, rows, None, keys.key(0))
    if not selects:
        task = replace(task, rule=EVERYTHING, share=task.share if equal else 1.0)
    price = PRICES.of(task, local, samples)
    down = size(task) if selects else size(task.classifier)  # UCD training has the encoder since its first round
    return Cost(price.macs.of(samples), down, price.up.of(samples) + price.handoff.of(samples))


def steps(model: Model, cfg: Config, units: int, samples: int, *, selects: bool) -> Cost:
    """The training steps alone, the encoder run in each of them: what the published figures count."""
    without = device_round(model, replace(cfg, encoder=Encoding(cache=False)), units, samples, selects=False)
    share = cfg.connection.gathered(units) * expected_shares(cfg.selection)[1] if selects else 1.0
    return Cost(without.macs * share)


def expected(of: Any, model: Model, cfg: Config, samples: int, **options: bool) -> Cost:
    total = Cost()
    for units in range(LONGEST):
        total = total.plus(of(model, cfg, units, samples, **options).times(0.5 ** (units + 1)))
    return total


PRICES = Prices(centaur.PROGRAMS, centaur.WORK)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=331, help="of each client; UCI-HAR has 331 for each of 20")
    samples = parser.parse_args().samples
    torch.set_num_threads(1)
    model = build("convnet", (128, 9), 6, {"norm": "batch"})
    kept, again = Config(), Config(encoder=Encoding(cache=False))
    first = Config(selection=Rule(encode="kept"))  # chooses before it encodes
    ours, theirs, equal = {"selects": True}, {"selects": False}, {"selects": False, "equal": True}
    lines = {
        "training steps only": ((steps, kept, ours), (steps, kept, theirs)),
        "selection counted, neither keeps features": ((device_round, again, ours), (device_round, again, theirs)),
        "selection counted, both keep features": ((device_round, kept, ours), (device_round, kept, theirs)),
        "selection counted, only Centaur keeps features": ((device_round, kept, ours), (device_round, again, theirs)),
        "both keep features, equal data": ((device_round, kept, ours), (device_round, kept, equal)),
        "chosen before encoding, both keep features": ((device_round, first, ours), (device_round, kept, theirs)),
        "the same, equal data": ((device_round, first, ours), (device_round, kept, equal)),
    }
    print(
        f"{sum(value.numel() for value in model.init(0).values())} numbers in the model, {samples} samples per client"
    )
    for name, sides in lines.items():
        one, other = (expected(of, model, cfg, samples, **options) for of, cfg, options in sides)
        saved = [100 * (getattr(one, what) / getattr(other, what) - 1) for what in ("macs", "seconds", "joules")]
        line = "MACs {:+5.1f} %, seconds with links {:+5.1f} %, joules {:+5.1f} %".format(*saved)
        print(f"{name:48s} {line} ({one.seconds:.0f} s against {other.seconds:.0f} s)")


if __name__ == "__main__":
    main()
