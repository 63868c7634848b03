"""How strongly models are coupled: by a share per round or by beta, the choice "auto", and the bounds of beta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import Fleet
from potluck.methods.parts import checks
from potluck.methods.parts.clusterfl.validation import mean_accuracy

if TYPE_CHECKING:
    from potluck.methods.clusterfl import Config, State

COUPLING = 0.5  # unless the user says anything; chosen on validation rows (docs/methods/clusterfl.md)
UNIT = 0.5  # beta where a coupling is given: 2 beta is 1, and each client scales the pull to its own steps


@dataclass(frozen=True)
class Tuning:
    """How `coupling = "auto"` and `beta = "auto"` choose."""

    couplings: tuple[float, ...] = (0.1, 0.3, 0.5, 0.8)  # shares to try
    candidates: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)  # values of beta to try, each with alpha = beta
    trial_rounds: int = 10  # rounds of training with all candidates, before the best one goes on alone

    def __post_init__(self) -> None:
        checks.at_least(self, "trial_rounds", 1)
        if not self.candidates or min(self.candidates) <= 0:
            raise BadInput(Code.SETTING_VALUE, f"candidates: must all be above 0, got {self.candidates}.")
        if not self.couplings or min(self.couplings) < 0 or max(self.couplings) >= 1:
            raise BadInput(Code.SETTING_VALUE, f"couplings: must all be 0 or more and below 1, got {self.couplings}.")


def candidates(cfg: Config) -> list[tuple[float, float]]:
    """beta and coupling: the one pair that the settings give, or those to try, the weakest first."""
    if cfg.beta == "auto":
        return [(beta, 0.0) for beta in sorted(cfg.tuning.candidates)]
    if cfg.beta is not None:
        return [(float(cfg.beta), 0.0)]
    if cfg.coupling == "auto":
        return [_shared(share) for share in sorted(cfg.tuning.couplings)]
    return [_shared(COUPLING if cfg.coupling is None else float(cfg.coupling))]


def _shared(coupling: float) -> tuple[float, float]:
    return (UNIT, coupling) if coupling else (0.0, 0.0)


def terms(cfg: Config, beta: float) -> tuple[float, float, float]:
    """alpha, beta and rho for a coupling: what the settings say, else what they are unless given."""
    alpha = max(beta, 1e-3) if cfg.alpha is None else cfg.alpha
    return alpha, beta, 10.0 * beta if cfg.rho is None else cfg.rho


def checked(cfg: Config) -> None:
    """Raise BadInput for settings of the coupling that do not go together."""
    if cfg.beta is not None and cfg.coupling is not None:
        raise BadInput(Code.SETTINGS_CLASH, f"coupling: must not be given together with beta, got {cfg.coupling}.")
    if isinstance(cfg.coupling, float):
        checks.within(cfg, "coupling", 0.0, 0.999)
    for name in ("alpha", "rho"):
        if cfg.beta is None and getattr(cfg, name) is not None:
            raise BadInput(
                Code.SETTINGS_CLASH, f"{name}: must be given together with beta, got {getattr(cfg, name):g} alone."
            )
    for beta, _ in candidates(cfg):
        alpha, _, rho = terms(cfg, beta)
        bounded(alpha, beta, rho if cfg.mode == "admm" else None, cfg.guard)


def strength(coupling: float, lr: Tensor, steps: Tensor) -> Tensor:
    """2 beta for which a round's steps alone go this share of the way to the mean: 1 - (1 - 2 beta lr)^steps."""
    share: Tensor = 1.0 - (1.0 - coupling) ** (1.0 / steps.clamp_min(1.0))
    return share / lr


def tried(fleet: Fleet, state: State, cfg: Config, one_round: Callable[[Fleet, State, Config], State]) -> State:
    """One round of every candidate, side by side; after `trial_rounds` of them the best one goes on alone.

    A client keeps one model, as without candidates: the server sends it its row of each. The traffic and the time of
    all candidates count. The clients' validation rows decide, and of equally good candidates the weakest is taken.
    """
    last = state.round + 1 >= cfg.tuning.trial_rounds
    trials, scores = [], dict(state.scores)
    for trial in state.trials:
        trial = one_round(fleet, replace(trial, trained=state.trained, owed=trial.table.names), cfg)
        if last:
            scores[named(trial)] = mean_accuracy(fleet)
        trials.append(trial)
    state = replace(state, trials=tuple(trials), scores=scores, round=state.round + 1)
    if not last:
        return state
    chosen = best(state)
    return replace(chosen, scores=scores, owed=chosen.table.names)


def best(state: State) -> State:
    """The candidate of the highest score; before there are any, the one in the middle."""
    if not state.scores:
        return state.trials[len(state.trials) // 2]
    return max(state.trials, key=lambda trial: state.scores[named(trial)])


def named(trial: State) -> str:
    return str(trial.coupling or trial.beta)


def bounded(alpha: float, beta: float, rho: float | None, guard: bool) -> None:
    """Raise BadInput for values without a minimum or a fixed point; `rho` is None for mode mm."""
    if beta < 0:
        raise BadInput(Code.SETTING_VALUE, f"beta: must be 0 or more, or auto, got {beta:g}.")
    if guard and alpha < beta:
        raise BadInput(
            Code.SETTINGS_CLASH,
            f"alpha: must be at least beta = {beta:g}, got {alpha:g}. Below beta sigma_max(F)^2, which is beta for "
            f"hard clusters, the objective has no minimum. Try alpha = {beta:g}.",
        )
    if rho is None or beta == 0:
        return
    if rho == 2.0 * beta:
        raise BadInput(
            Code.SETTINGS_CLASH, f"rho: must not be 2 beta, got {rho:g}. The update divides by rho - 2 beta."
        )
    if guard and rho <= 4.0 * beta:
        raise BadInput(
            Code.SETTINGS_CLASH,
            f"rho: must be more than 4 beta = {4 * beta:g}, got {rho:g}. At every step the error of the dual is "
            f"multiplied by 2 beta/(rho - 2 beta). Try rho = {10 * beta:g}.",
        )
