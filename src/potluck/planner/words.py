"""The recommendation in words: which method, which two cannot be told apart, what would change the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from potluck.planner.day import Day
from potluck.planner.interval import Interval
from potluck.planner.look import VALID
from potluck.planner.plan import MethodPlan, Plan
from potluck.planner.predict import calibration, odds
from potluck.units import NOTHING, listed, number, percent, plural, quantity

ALIKE = 0.25  # chance from which the second of two may be the better one: they cannot be told apart
NEAR = 0.01  # accuracy: methods within a point of the best count as equally good


@dataclass(frozen=True)
class Advice:
    """Sentences; empty where there is nothing to say."""

    method: str  # empty: no method meets the wishes, or none can run
    use: str
    because: tuple[str, ...]
    alike: str
    would_change: tuple[str, ...]


def advise(plan: Plan) -> Advice:
    """Recommend one of the plan's methods."""
    able = plan.able
    if not able:
        why = tuple(f"{one.name}: {one.why_not}" for one in plan.methods)
        hints = tuple(f"{one.name} with a smaller load: {hint}." for one in plan.methods for hint in one.hints)
        return Advice("", "No method can run here.", why, "", hints)
    good = [one for one in able if not missed(one, plan)] or able
    predicted = [one for one in good if one.prediction is not None]
    looked = [one for one in good if one.glimpse is not None]
    best, alike = _by_accuracy(predicted) if predicted else _by_look(looked, plan) if looked else _by_cost(good)
    lacking = missed(best, plan)
    use = f"{best.name} is the cheapest that learns together."
    use = f"Use {best.name}." if best.prediction else f"{best.name} leads after a tenth." if best.glimpse else use
    use = use if not lacking else f"No method meets the wishes; {best.name} comes closest."
    because = [*_because(best, plan), *(f"{best.name} misses a wish: {one}." for one in lacking)]
    return Advice(best.name, use, tuple(because), alike, tuple(_would_change(best, good, plan)))


def missed(one: MethodPlan, plan: Plan) -> list[str]:
    """The wishes that a method does not meet, in words."""
    assert one.figures is not None
    found, wish = [], plan.wish
    days = one.day.days if one.day is not None else 0.0
    wall = days * 86400.0 if one.day is not None and one.day.limit in ("bytes", "battery") else one.seconds.value
    if wish.seconds is not None and wall > wish.seconds:
        found.append(f"it takes {quantity(wall, 's')}, wished are {quantity(wish.seconds, 's')}")
    if wish.accuracy is not None and one.prediction is not None and not one.prediction.untold:
        high = one.prediction.accuracy.high
        if high is not None and high < wish.accuracy:
            found.append(f"an accuracy of {wish.accuracy:.3g} is above its interval")
    return found


def _by_accuracy(predicted: Sequence[MethodPlan]) -> tuple[MethodPlan, str]:
    """The method with the best prediction, and which one cannot be told from it."""
    order = sorted(predicted, key=lambda one: -_end(one).value)
    if len(order) == 1:
        return order[0], ""
    best, second = order[:2]
    chance = better(_end(second), _end(best))
    if chance < ALIKE:
        return best, ""
    text = (
        f"{best.name} and {second.name} cannot be told apart by this look: in {percent(chance, 0)} of such situations "
        f"the second is the better one. `potluck compare {best.name} {second.name}` would tell."
    )
    return best, text


def _by_look(looked: Sequence[MethodPlan], plan: Plan) -> tuple[MethodPlan, str]:
    """Without an archive: the method that leads at the look. Its validation rows say whether it leads by chance."""
    order = sorted(looked, key=lambda one: -_last(one))
    if len(order) == 1:
        return order[0], ""
    best, second = order[:2]
    rows = max(1.0, plan.facts["rows"] * plan.facts["clients"] * VALID)
    noise = math.sqrt(2 * max(0.01, _last(best) * (1 - _last(best))) / rows)
    if _last(best) - _last(second) > 2 * noise:
        return best, ""
    text = (
        f"{best.name} and {second.name} cannot be told apart by this look: {_last(best):.3f} and {_last(second):.3f}."
    )
    return best, f"{text} `potluck compare {best.name} {second.name}` would tell."


def _last(one: MethodPlan) -> float:
    assert one.glimpse is not None
    return one.glimpse.last


def better(one: Interval, other: Interval) -> float:
    """The chance that the first of two predictions ends above the second."""
    experience = calibration()
    apart = 1.0 if experience is None else max(1e-9, experience.apart)
    z = (odds(one.value) - odds(other.value)) / apart
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def _by_cost(good: Sequence[MethodPlan]) -> tuple[MethodPlan, str]:
    """Without a look nothing is known of accuracy: what learns together at the least cost of battery and link."""
    federated = [one for one in good if one.method != "local"] or list(good)
    order = sorted(federated, key=lambda one: one.joules.value)
    if len(order) == 1:
        return order[0], ""
    best, second = order[:2]
    alike = second.joules.low is not None and best.joules.high is not None and second.joules.low <= best.joules.high
    text = f"{best.name} and {second.name} cannot be told apart by their energy: their intervals overlap."
    return best, text if alike else ""


def _because(best: MethodPlan, plan: Plan) -> list[str]:
    assert best.figures is not None
    joules, cost = best.figures.joules, quantity(best.joules.value / max(1, plan.clients), "J")
    found = []
    if best.prediction is None and best.glimpse is not None:
        found.append(
            f"After {percent(best.glimpse.share, 0)} of the passes its validation accuracy is {_last(best):.3f}. "
            f"Nothing is predicted of the end: {plan.lacks or 'the archive does not have this method'}."
        )
    elif best.prediction is None:
        why = (
            f"nothing predicts accuracy here ({plan.lacks})"
            if plan.data
            else "nothing says how accurate any method is without data"
        )
        found.append(f"{_capital(why)}, so this is about energy alone.")
    else:
        count = sum(one.glimpse is not None for one in plan.able)
        from_what = f"{'a look' if count == 1 else f'looks at {count} methods'} and an archive of other data"
        untold = best.prediction.untold
        found.append(
            f"It ranks first by {from_what}. Its accuracy is not predicted: {untold}."
            if untold
            else f"Its accuracy is predicted from {from_what}: {interval(best.prediction.accuracy)}."
        )
    idle = percent(joules.idle / joules.total if joules.total else 0.0, 0)
    found.append(
        f"A run takes {quantity(best.seconds.value, 's')} and {cost} per client, {idle} of it idle; "
        f"{best.figures.straggler} is the last in {percent(best.figures.straggles, 0)} of the rounds."
    )
    if plan.wish.accuracy is not None:
        found.append(_whether(best, plan))
    if best.unfit:
        found.append(f"{plural(best.unfit, 'client')} of {plan.clients} cannot train: too little memory.")
    if best.day is not None:
        found.append(_capital(day_words(best.day)))
    return found


def _whether(best: MethodPlan, plan: Plan) -> str:
    """What is known of a wished accuracy, and why not more."""
    wished, experience = f"{plan.wish.accuracy:.3g}", calibration()
    if best.prediction is None or best.prediction.untold:
        return f"Whether it reaches an accuracy of {wished}, and when, is not predicted."
    low, high = best.prediction.accuracy.low, best.prediction.accuracy.high
    assert low is not None
    assert high is not None
    assert plan.wish.accuracy is not None
    place = "inside" if low <= plan.wish.accuracy <= high else "below" if plan.wish.accuracy < low else "above"
    why = experience.never_when if experience is not None else ""
    return f"An accuracy of {wished} is {place} the interval of its end; when it is reached is not predicted: {why}."


def day_words(day: Day) -> str:
    """How many rounds a day, why no more, and when the run is done."""
    why = {"time": "as fast as it goes", "the run": "then the run is done"}.get(day.limit, f"the wish on {day.limit}")
    rounds = number(day.rounds, 2 if day.rounds < 10 else 3) + (" round" if day.rounds == 1 else " rounds")
    return (
        f"{rounds} a day ({why}); the run takes {quantity(max(day.days, 1e-9) * 86400.0, 's')}."
        if (day.limit != "the run")
        else f"all of it, {rounds}, fits into a day."
    )


def _would_change(best: MethodPlan, good: Sequence[MethodPlan], plan: Plan) -> list[str]:
    found = []
    if best.prediction is None and best.glimpse is None:
        found.append("Data: with --data a look trains a tenth of each run, and shows which methods start well.")
    elif best.prediction is None:
        found.append("Full runs: a method may start slowly and end well. `potluck compare` tells.")
    cheap = min(good, key=lambda one: one.bytes.value)
    if cheap is not best and cheap.bytes.value < 0.5 * best.bytes.value:
        ratio = number(best.bytes.value / max(1.0, cheap.bytes.value), 2)
        found.append(f"If bytes matter most: {cheap.name} moves {ratio} times fewer.")
    fast = min(good, key=lambda one: one.seconds.value)
    if fast is not best and fast.seconds.value < 0.8 * best.seconds.value:
        found.append(f"If time matters most: {fast.name} is done after {quantity(fast.seconds.value, 's')}.")
    if best.prediction is not None:
        near = [
            one for one in good if one is not best and one.prediction and _end(one).value >= _end(best).value - NEAR
        ]
        cheaper = [one.name for one in near if one.joules.value < 0.8 * best.joules.value]
        if cheaper:
            found.append(f"If energy matters: {listed(cheaper)} is predicted within a point, for less.")
    aside = [one.name for one in good if best.prediction and one.glimpse and not one.prediction]
    if aside:
        found.append(f"The archive does not have {listed(aside)}: nothing is predicted there, and the look is all.")
    if best.unfit and best.hints:
        found.append(f"A smaller load: {best.hints[-1]}.")
    return found


def rough(one: MethodPlan, most: float = 0.01) -> str:
    """What no dry run knows of a method's costs, and between which bytes they are then."""
    low, high = one.bytes.low, one.bytes.high
    if low is None or high is None or high - low < most * one.bytes.value:
        return f"{one.name}: roughly. Its costs depend on {one.rough}, which values decide."
    between = f"{quantity(low, 'B')} to {quantity(high, 'B')} in all"
    return f"{one.name}: roughly, {between}. Its costs depend on {one.rough}, which values decide."


def told(one: MethodPlan) -> str:
    """The predicted accuracy; a dash where none is shown."""
    return NOTHING if one.prediction is None or one.prediction.untold else interval(one.prediction.accuracy)


def untold(plan: Plan) -> list[str]:
    """Of which methods no accuracy is shown though they are ranked, and why."""
    return [
        f"{one.name} is ranked, but no accuracy is shown: {one.prediction.untold}."
        for one in plan.able
        if one.prediction is not None and one.prediction.untold
    ]


def interval(found: Interval, digits: int = 3) -> str:
    """0.874 (0.84 to 0.91)."""
    middle = f"{found.value:.{digits}f}"
    return middle if found.low is None or found.high is None else f"{middle} ({found.low:.2f} to {found.high:.2f})"


def _end(one: MethodPlan) -> Interval:
    assert one.prediction is not None
    return one.prediction.accuracy


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
