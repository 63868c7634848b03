"""How much an update counts that was trained from an older version of the model.

Xie et al., "Asynchronous Federated Optimization", 2019, section 5.2. `age` counts versions; a fresh update has age 0.
"""

from __future__ import annotations


def polynomial(age: int, power: float) -> float:
    """(age + 1)^-power."""
    return float((max(0, age) + 1) ** -power)


def hinge(age: int, slope: float, grace: int) -> float:
    """1 up to an age of `grace`, then 1 / (slope (age - grace) + 1)."""
    return 1.0 / (slope * max(0, age - grace) + 1.0)
