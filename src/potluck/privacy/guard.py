"""The guard at a client's door: clips an update to a bound before it leaves, and adds noise where the client does that.

The release of an update (`potluck.release`) is shortened to the norm `clip`. Numbers of samples become 1, because they
would tell something of the client as well. Noise is N(0, (noise · clip)²) on each number of the release.

In a simulation the noise comes from the task's key, so a run can be repeated. In a deployment every client folds a
secret of its own into that key: the seed of the run is no secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import Message
from potluck.release import Release, release_of, vector, with_numbers, with_vector


@dataclass(frozen=True)
class Guard:
    """What happens to each update before it leaves the client."""

    releases: Mapping[type, Release]
    clip: float
    noise: float = 0.0  # in units of `clip`; 0: the noise goes on the sum

    def __call__(self, update: Message, task: Message, key: Tensor) -> Message:
        release = release_of(self.releases, update)
        values = bounded(vector(update, task, release), self.clip)
        if self.noise and len(values):
            values = values + self.noise * self.clip * keys.normal(key, values.shape)
        return with_numbers(with_vector(update, task, release, values), release, 1.0)


def bounded(values: Tensor, most: float) -> Tensor:
    """The vector, shortened to the norm `most` if it is longer.

    Rounding may leave a norm a few parts in a million above the bound, which the division by a larger norm prevents.
    """
    norm = torch.linalg.vector_norm(values.double()) * (1.0 + 1e-6)
    short: Tensor = values * (most / norm.clamp_min(most)).to(values.dtype)
    return short
