"""Candidates by Optuna's TPE sampler (extra `tune`): each wave is drawn with the scores of the waves before it.

The study lives in memory and is repeated from the scores on disk when a tuning is resumed: with the same seed and the
same scores it asks for the same candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from potluck import keys
from potluck.errors import Code, Missing, install_extra
from potluck.spaces import Choice, Dimension, Space
from potluck.tune.candidates import MOST_TRIES, Settings

if TYPE_CHECKING:
    import optuna


def imported() -> Any:
    try:
        import optuna
    except ImportError:
        raise Missing(Code.EXTRA, f"optuna: not installed; `{install_extra('tune')}` adds it.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def distribution(one: Dimension) -> Any:
    """The same space in Optuna's words."""
    from optuna import distributions as of

    if isinstance(one, Choice):
        return of.CategoricalDistribution(one.values)
    if one.whole:
        return of.IntDistribution(int(one.low), int(one.high), log=one.log)
    return of.FloatDistribution(float(one.low), float(one.high), log=one.log)


def holds(space: Space, settings: Settings) -> bool:
    """Whether Optuna can be told of these settings: all of them are in the space."""
    if set(settings) != set(space):
        return False
    for name, one in space.items():
        value = settings[name]
        inside = value in one.values if isinstance(one, Choice) else one.low <= float(value) <= one.high
        if not inside:
            return False
    return True


class Optuna:
    """Draws by TPE; the same seed and scores give the same candidates."""

    wave = 4  # whatever --jobs is, so that the choice does not depend on it

    def __init__(self, space: Space, default: Settings, *key: int | str) -> None:
        self._optuna = imported()
        seed = keys.number(*key, "optuna") & 0x7FFFFFFF
        self._study: optuna.Study = self._optuna.create_study(
            direction="maximize", sampler=self._optuna.samplers.TPESampler(seed=seed, n_startup_trials=8)
        )
        self._space = space
        self._distributions = {name: distribution(one) for name, one in space.items()}
        self._seen = [default]
        self._open: list[Any] = []

    def ask(self, count: int) -> list[Settings]:
        found: list[Settings] = []
        for _ in range(MOST_TRIES * count):
            if len(found) == count:
                break
            trial = self._study.ask(self._distributions)
            drawn = {name: rounded(one, trial.params[name]) for name, one in self._space.items()}
            if drawn in self._seen:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                continue
            self._seen.append(drawn)
            self._open.append(trial)
            found.append(drawn)
        return found

    def tell(self, told: Sequence[tuple[Settings, float]]) -> None:
        own, drawn = told[: len(told) - len(self._open)], told[len(told) - len(self._open) :]
        for settings, score in own:  # the default settings, which Optuna did not draw
            if holds(self._space, settings):
                make = self._optuna.trial.create_trial
                self._study.add_trial(make(params=settings, distributions=self._distributions, value=score))
        for trial, (_, score) in zip(self._open, drawn, strict=True):
            self._study.tell(trial, score)
        self._open = []


def rounded(one: Dimension, value: Any) -> Any:
    """A drawn number as the space writes numbers: three digits, inside its ends."""
    if isinstance(one, Choice) or one.whole:
        return value
    return min(float(one.high), max(float(one.low), float(f"{value:.3g}")))
