"""What ClusterFL's settings require of the data, and which rows beyond the clients' own they use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.errors import BadInput, Code
from potluck.fleet import Local
from potluck.needs import POOLED_ROWS, SERVER_ROWS, VALIDATION_ROWS

if TYPE_CHECKING:
    from potluck.methods.clusterfl import Config


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
