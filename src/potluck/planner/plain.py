"""A plan as plain values, for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from potluck.planner.plan import MethodPlan, Plan
from potluck.planner.predict import Prediction, calibration
from potluck.planner.words import Advice


def plain(plan: Plan, advice: Advice) -> dict[str, Any]:
    """Everything a plan says. Seconds, bytes and joules; what never happens is null."""
    found: dict[str, Any] = _finite(
        {
            "data": plan.data or None,
            "clients": plan.clients,
            "model": plan.model,
            "parameters": plan.parameters,
            "wish": asdict(plan.wish),
            "recommendation": asdict(advice),
            "methods": {one.name: _method(one, plan.clients) for one in plan.methods},
            "nothing_predicted": plan.lacks or None,
            "notes": list(plan.notes),
        }
    )
    return found


def _method(one: MethodPlan, clients: int) -> dict[str, Any]:
    figures = one.figures
    if figures is None:
        return {"why_not": one.why_not, "shrink": list(one.hints)}
    day = None if one.day is None else asdict(one.day)
    found = {name: value for name, value in asdict(figures).items() if name != "steps"}
    return {
        **found,
        "seconds": asdict(one.seconds),
        "bytes": asdict(one.bytes),
        "joules": {**asdict(one.joules), **asdict(figures.joules), "per_client": one.joules.value / max(1, clients)},
        "rough": one.rough or None,
        "unfit": one.unfit,
        "shrink": list(one.hints),
        "day": day,
        "look": None if one.glimpse is None else asdict(one.glimpse),
        "prediction": None if one.prediction is None else _prediction(one.prediction),
    }


def _prediction(found: Prediction) -> dict[str, Any]:
    """What is predicted, and what is not and why. No time to a target is (`docs/plan.md`)."""
    experience = calibration()
    return {
        "accuracy": None if found.untold else asdict(found.accuracy),
        "no_accuracy": found.untold or None,
        "no_times": experience.never_when if experience is not None else None,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value
