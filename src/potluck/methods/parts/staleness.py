"""How much an update counts that was computed from a model of some versions ago."""

from __future__ import annotations


def polynomial(age: int, power: float) -> float:
    """(age + 1)^-power: Xie et al., "Asynchronous Federated Optimization", 2019, section 5.2; 1 for a fresh update."""
    return float((max(0, age) + 1) ** -power)


def hinge(age: int, slope: float, grace: int) -> float:
    """The same section's other one: 1 up to an age of `grace`, then 1 / (slope (age - grace) + 1)."""
    return 1.0 / (slope * max(0, age - grace) + 1.0)
