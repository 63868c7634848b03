"""What ClusterFL declares of its settings: which matter most, what to tune, what they require, which rows they use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.errors import BadInput, Code
from potluck.fleet import Local
from potluck.methods.parts import checks
from potluck.methods.parts.clusterfl import tuning
from potluck.needs import POOLED_ROWS, SERVER_ROWS, VALIDATION_ROWS
from potluck.spaces import Range, Space

if TYPE_CHECKING:
    from potluck.methods.clusterfl import Config

KEY_SETTINGS = ("coupling", "beta", "probe.source", "savers.select", "recipe.lr")
SPACE: Space = {"recipe.lr": Range(0.001, 0.5, log=True), "coupling": Range(0.05, 0.9)}


def checked(cfg: Config) -> None:
    """Raise BadInput for settings that are out of range or do not go together."""
    checks.unused(cfg, "eq. (6) is solved by SGD")
    checks.at_least(cfg, "f_every", 1)
    checks.at_least(cfg, "tolerance", 0)
    for name in ("lr_decay", "server_macs_per_second"):
        checks.above(cfg, name, 0.0)
    tuning.checked(cfg)


def uses(cfg: Config) -> tuple[str, ...]:
    """Probe inputs to compare models on, and validation rows to choose the coupling by."""
    probes = {"auto": (SERVER_ROWS,), "server": (SERVER_ROWS,), "clients": (POOLED_ROWS,), "noise": ()}
    compared = probes[cfg.probe.source] if cfg.relation.similarity == "kl" else ()
    return (*compared, *((VALIDATION_ROWS,) if "auto" in (cfg.beta, cfg.coupling) else ()))


def check(cfg: Config, home: Local) -> None:
    """Raise BadInput, before anything runs, for settings that do not fit the data."""
    for name in ("beta", "coupling"):
        if getattr(cfg, name) == "auto" and home.valid is None:
            wanted = "auto needs validation rows. Set partition.valid_share above 0"
            raise BadInput(Code.METHOD_NEEDS, f"method.{name}: {wanted}.")
    shape, fits = tuple(home.data.x.shape[1:]), tuple(home.model.shape)
    if cfg.relation.similarity == "kl" and shape != fits:
        raise BadInput(Code.METHOD_NEEDS, f"server: samples must have the shape {fits} to be a probe, got {shape}.")
