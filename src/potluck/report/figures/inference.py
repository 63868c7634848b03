"""What clients infer with, method by method, and what those get that never trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from potluck.metrics import distance, score, unit, words
from potluck.report.reading.groups import Group
from potluck.report.reading.infers import OWN, RECEIVED, Infers, infers
from potluck.report.reading.run_figures import RunFigures
from potluck.units import listed

START = "start"


@dataclass(frozen=True)
class Inference:
    """One method: means over the seeds that count. None where its clients have no such model."""

    method: str
    headline: str  # what a client's personal model is: received, own or mixed
    accuracy: float
    trained: float | None  # the headline over the clients that trained
    received: float | None
    own: float | None
    untrained: dict[str, str]  # clients that never trained, with any seed -> received or start
    untrained_accuracy: float | None  # their mean accuracy
    most_untrained: int = 0  # in one run


def inference(groups: Sequence[Group], order: Sequence[str]) -> list[Inference]:
    """One line per method in this order; runs of an older version have none."""
    by_label = {one.label: one for one in groups}
    lines = [_line(by_label[label]) for label in order]
    return [line for line in lines if line is not None]


def trained_mean(one: RunFigures) -> float | None:
    """The mean accuracy of the clients that trained; of those that could, for a run of an older version."""
    found = infers(one)
    without = one.unfit if found is None else found.untrained
    each = [client.accuracy for client in one.clients if client.accuracy is not None and client.name not in without]
    return float(np.mean(each)) if each else None


def _line(one: Group) -> Inference | None:
    pairs = [(each, found) for each in one.counted if (found := infers(each)) is not None]
    if not pairs:
        return None

    def over(figure: Callable[[Infers], float | None]) -> float | None:
        values = [value for _, found in pairs if (value := figure(found)) is not None]
        return float(np.mean(values)) if len(values) == len(pairs) else None

    accuracy = over(lambda found: found.means.get("headline"))
    lost = [
        c.accuracy
        for each, found in pairs
        for c in each.clients
        if c.name in found.untrained and c.accuracy is not None
    ]
    return Inference(
        one.label,
        pairs[0][1].kind,
        0.0 if accuracy is None else accuracy,
        over(lambda found: found.trained.get("headline")),
        over(lambda found: found.means.get(RECEIVED)),
        over(lambda found: found.means.get(OWN)),
        {client: scored for _, found in pairs for client, scored in found.untrained.items()},
        float(np.mean(lost)) if lost else None,
        max(len(found.untrained) for _, found in pairs),
    )


def in_words(lines: Sequence[Inference]) -> list[str]:
    """Say how clients that never trained are scored, and both means of each method."""
    without = [line for line in lines if line.untrained]
    if not without:
        return []
    counts = ", ".join(f"{line.method} {line.most_untrained}" for line in without)
    text = f"Some clients never trained (at most, in a run: {counts})."
    given = [line.method for line in without if START not in line.untrained.values()]
    alone = [line.method for line in without if START in line.untrained.values()]
    if given:
        text += f" With {listed(given)} they are scored with the model that the server would send them."
    if alone:
        verb = "has" if len(alone) == 1 else "have"
        text += f" {listed(alone)} {verb} no model to give: there they are scored with the untrained start."
    means = ", ".join(f"{line.method} {score(line.trained)}" for line in lines if line.trained is not None)
    return [f"{text} Mean {words()} of the clients that trained: {means}."]


def better_own(lines: Sequence[Inference]) -> list[str]:
    """Say where inference with the own model is better than with the received one."""
    gains = {
        line.method: line.own - line.accuracy
        for line in lines
        if line.headline == RECEIVED and line.own is not None and line.own > line.accuracy
    }
    if not gains:
        return []
    each = ", ".join(f"{name} by {distance(gain, signed=False)}{unit()}" for name, gain in gains.items())
    return [f"Clients would do better with their own model, as their last training left it: {each}."]
