"""What FedCFC needs of an experiment: a continuous-time network whose size suits the data."""

from __future__ import annotations

from potluck.needs import Need, Situation, own_model

FEW = 16  # channels up to which the small network is enough


def _sized(small: int, large: int) -> object:
    def of(situation: Situation) -> int:
        shape = situation.shape
        channels = shape[1] if shape is not None and len(shape) == 2 else 1
        return small if channels <= FEW else large

    return of


NETWORK = own_model(
    "cfc",
    hidden=_sized(16, 32),
    backbone=_sized(24, 48),
    head=_sized(16, 32),
    interval=lambda situation: situation.interval,  # seconds, where the data has time stamps
)
# Small steps and many of them, as in print, where a batch is one sample (docs/defaults.md has the figures).
RECIPE = {"batch": 8, "epochs": 2, "lr": 0.05}
NEEDS = NETWORK | {f"method.recipe.{name}": Need(value, unless=("model.name",)) for name, value in RECIPE.items()}
