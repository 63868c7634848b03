"""What FedCFC declares: the network that it needs, its settings that matter most, what to tune, which names are old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.errors import BadInput, Code
from potluck.methods.parts import checks
from potluck.needs import VALIDATION_ROWS, Need, Situation, own_model
from potluck.spaces import Choice, Range, Space

if TYPE_CHECKING:
    from potluck.methods.fedcfc import Config

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
KEY_SETTINGS = ("variant", "terms.lambda_d", "recipe.lr", "recipe.batch", "pretrain.epochs")
SPACE: Space = {"recipe.lr": Range(0.002, 0.2, log=True), "terms.lambda_d": Choice(0.1, 0.3, 0.6)}
OLD_NAMES = {"first_classes": "classes.first", "rounds_per_class": "classes.every", "pretrain": "pretrain.epochs"}


def uses(cfg: Config) -> tuple[str, ...]:
    """Validation rows tell when no client gains any more."""
    return (VALIDATION_ROWS,) if cfg.settle > 0 else ()


def headline(cfg: Config) -> str:
    """With fbind all of a client's model is its own; the other variants average some of it."""
    return "own" if cfg.variant == "fbind" else "mixed"


def checked(cfg: Config) -> None:
    """Raise BadInput for settings that are out of range or do not go together."""
    checks.unused(cfg, "fedcfc takes steps of SGD")
    for name in ("cohort", "mu", "settle"):
        checks.at_least(cfg, name, 0)
    if cfg.recipe.momentum and cfg.variant in ("fscaf", "fgh"):
        raise BadInput(
            Code.SETTINGS_CLASH,
            f"recipe.momentum: must be 0 with {cfg.variant}, got {cfg.recipe.momentum:g}: its control variates count "
            "plain steps.",
        )
    if not cfg.precisions:
        raise BadInput(Code.SETTING_VALUE, "precisions: must name at least one format, got none.")
    if cfg.depths and cfg.variant != "fbind":
        raise BadInput(Code.SETTING_VALUE, f"depths: must be empty with {cfg.variant}, which averages heads.")
