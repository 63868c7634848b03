"""A metric: how good a model is, in which direction, and how people read it.

Inside the report every score is a *merit*: more is better. A metric that should be small counts as its negative, and
only the text that people read has the plain number again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from potluck.units import NARROW, NOTHING, number


@dataclass(frozen=True)
class Metric:
    name: str  # in summary.json and in settings
    words: str  # in text
    lower: bool = False  # whether less is better
    share: bool = True  # whether it lies between 0 and 1 and is read in per cent

    def merit(self, value: float) -> float:
        """The value so that more is better; it is its own inverse."""
        return -value if self.lower else value

    def plain(self, value: float) -> str:
        """A value in a line of text: three decimals of a share, else four significant digits."""
        return f"{value:.3f}" if self.share else number(value, 4)

    def spread(self, value: float) -> str:
        """A standard deviation beside such a value."""
        return f"{value:.3f}" if self.share else number(value, 2)

    def better(self, one: float, other: float) -> bool:
        return one < other if self.lower else one > other

    def gains(self, one: float, known: float | None) -> bool:
        """Whether a value is better than the best so far."""
        return known is None or self.better(one, known)

    def best(self, one: float, known: float | None) -> float:
        return one if known is None or self.better(one, known) else known

    def reached(self, value: float, target: float) -> bool:
        return value <= target if self.lower else value >= target

    @property
    def rule(self) -> str:
        """What a reader must know of its direction; empty for a share."""
        if not self.lower:
            return ""
        return f"{self.words}: lower is better. A difference with a plus is an improvement."


ACCURACY = Metric("accuracy", "accuracy")
BALANCED = Metric("balanced_accuracy", "balanced accuracy")
MACRO_F1 = Metric("macro_f1", "macro F1")
MICRO_F1 = Metric("micro_f1", "micro F1")
EXACT = Metric("exact_match", "exact match")
KAPPA = Metric("kappa", "quadratic kappa")
RMSE = Metric("rmse", "RMSE", lower=True, share=False)
MAE = Metric("mae", "MAE", lower=True, share=False)
AUROC = Metric("auroc", "AUROC")
AUPRC = Metric("auprc", "average precision")

METRICS = {one.name: one for one in (ACCURACY, BALANCED, MACRO_F1, MICRO_F1, EXACT, KAPPA, RMSE, MAE, AUROC, AUPRC)}


def headline(summary: Mapping[str, Any]) -> Metric:
    """The metric that ranks the run of a summary: accuracy, unless the summary names its task."""
    task = summary.get("task")
    return METRICS[task["metric"]] if isinstance(task, Mapping) else ACCURACY


_SCORED: ContextVar[Metric] = ContextVar("scored", default=ACCURACY)


@contextmanager
def scored_by(metric: Metric) -> Iterator[None]:
    """Write scores in this block as those of `metric`."""
    token = _SCORED.set(metric)
    try:
        yield
    finally:
        _SCORED.reset(token)


def metric() -> Metric:
    """The metric whose scores are being written."""
    return _SCORED.get()


def score(merit: float | None, digits: int = 1) -> str:
    """A merit as people read it: a share in per cent, an error as a plain number."""
    if merit is None:
        return NOTHING
    now = metric()
    if now.share:
        return f"{100 * merit:.{digits}f}{NARROW}%"
    return number(abs(merit) if now.lower else merit, 2 + digits)


def distance(difference: float, signed: bool = True) -> str:
    """A difference of two merits, without its unit: percentage points of a share, else the metric's own."""
    text = f"{abs(100 * difference):.1f}" if metric().share else number(abs(difference))
    sign = "" if not signed or not float(text.replace(",", "")) else "−" if difference < 0 else "+"
    return f"{sign}{text}"


def unit() -> str:
    """The unit of a difference, with a space before it; none for a metric that is not a share."""
    return " points" if metric().share else ""


def words(capital: bool = False) -> str:
    """The metric in text: accuracy, RMSE."""
    text = metric().words
    return text[:1].upper() + text[1:] if capital else text


def margin(share: float, at: float) -> float:
    """A small difference of merits: so many points of a share, else this part of the score `at`."""
    return share if metric().share else share * abs(at)


def within(low: float, high: float) -> tuple[float, float]:
    """The ends of a band of merits, no further than a score can go."""
    now = metric()
    return (max(0.0, low), min(1.0, high)) if now.share else (low, min(0.0, high) if now.lower else high)


def tie(rows: int, one: float, other: float) -> float:
    """The difference of two merits up to which a client ties: one test row of a share, else 1 % of the larger score."""
    if metric().share:
        return 1.0 / rows if rows else 0.0
    return 0.01 * max(abs(one), abs(other))


def alike() -> str:
    """`tie` in words."""
    return "at most one test row apart" if metric().share else "at most 1 % apart"
