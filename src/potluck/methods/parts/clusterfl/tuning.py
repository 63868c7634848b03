"""The choice of beta, alpha and rho: `beta = "auto"`, and the bounds below which the iteration diverges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from potluck.errors import BadInput, Code
from potluck.fleet import Fleet, Params
from potluck.methods.parts import checks
from potluck.methods.parts.clusterfl.validation import mean_accuracy

if TYPE_CHECKING:
    from potluck.methods.clusterfl import Config, State


@dataclass(frozen=True)
class Tuning:
    """How `beta = "auto"` chooses beta."""

    candidates: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)  # values of beta to try, each with alpha = beta
    trial_rounds: int = 15  # rounds of training with each candidate

    def __post_init__(self) -> None:
        checks.at_least(self, "trial_rounds", 1)
        if not self.candidates or min(self.candidates) <= 0:
            raise BadInput(Code.SETTING_VALUE, f"candidates: must all be above 0, got {self.candidates}.")


def choose(
    fleet: Fleet,
    state: State,
    cfg: Config,
    start: Callable[[Params, Config], State],
    server: Callable[[Fleet, State, Config], Iterator[State]],
) -> Iterator[State]:
    """Train with every candidate for a while from the same start; the clients' validation rows decide.

    The trials run by ordinary tasks, so their traffic and time count. The scores are in the state, so a run can resume
    between two trials. Of equally good candidates the smallest is taken.
    """
    off = replace(cfg, savers=replace(cfg.savers, stragglers=False, select=0.0), stop_settled=False)
    for beta in cfg.tuning.candidates:
        if str(beta) in state.scores:
            continue
        trial = replace(off, beta=beta)
        for _ in islice(server(fleet, start(state.initial, trial), trial), cfg.tuning.trial_rounds):
            pass
        state = replace(state, scores=state.scores | {str(beta): mean_accuracy(fleet)})
        yield state
    best = max(sorted(cfg.tuning.candidates), key=lambda beta: state.scores[str(beta)])
    yield replace(state, beta=best, alpha=cfg.terms(best)[0])


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
