"""How much an update counts that was computed from a model of some versions ago."""

from __future__ import annotations


def polynomial(age: int, power: float) -> float:
    """(age + 1)^-power: Xie et al., "Asynchronous Federated Optimization", 2019, section 5.2; 1 for a fresh update."""
    return float((max(0, age) + 1) ** -power)
