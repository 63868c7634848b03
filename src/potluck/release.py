"""What an update tells the server of a client's samples: each method declares it, privacy and secure sums go by it.

A method's file has one line for each class of update, such as

    RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True)}

or a function `releases(cfg)` where it depends on the settings. A text in its place says why a method's updates can be
neither bounded nor added up. Together the fields named in `models` and `changes` are
one vector, the **release**. Its length is what `privacy.clip` bounds, and noise goes on it. What stays on the client
(private state, personal layers) is no part of it, and costs no privacy.

A method that needs only sums gives the same result if every update of a sum is replaced by their weighted mean.
`tests/test_release.py` checks that for each method that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import Message

Base = Callable[[Any, Any], Mapping[str, Tensor]]  # (task, update) -> the model that the client started from
Share = Callable[[Any, Any], float]  # (state, update) -> what the update counts in its sum, at most 1


@dataclass(frozen=True)
class Release:
    """The fields of an update by what they tell."""

    models: tuple[str, ...] = ()  # models: released is their change against the same field of the task
    changes: tuple[str, ...] = ()  # released as they are: changes, gradients, losses
    directions: tuple[str, ...] = ()  # only the direction of each and the mean length count: released are both
    base: Base | None = None  # what `models` are compared with, if not the same field of the task
    weight: str = ""  # the number of samples that weighs the update in the mean; without it all count the same
    counts: tuple[str, ...] = ()  # other numbers of samples
    open: tuple[str, ...] = ()  # what does not depend on the samples
    by: str = ""  # the field by which updates are kept apart, such as the cluster that the client chose
    share: Share | None = None  # what a late update counts
    together: int = 0  # arrivals that make one sum; 0: those of one `gather`
    single: str = ""  # why the method needs each update by itself; empty: it needs only sums
    by_fit: bool = False  # all that is released comes from `learn.fit`

    @property
    def vectors(self) -> tuple[str, ...]:
        return (*self.models, *self.changes, *self.directions)

    @property
    def numbers(self) -> tuple[str, ...]:
        return (*((self.weight,) if self.weight else ()), *self.counts)

    def unnamed(self, update: type) -> list[str]:
        """The fields of an update that the declaration forgets."""
        known = {*self.vectors, *self.numbers, *self.open, self.by}
        return [field.name for field in fields(update) if field.name not in known]


def releases_of(module: Any, config: Any) -> dict[type, Release] | str:
    """What a method's file declares, or why its updates can be neither bounded nor added up."""
    decide = getattr(module, "releases", None)
    found: Mapping[type, Release] | str = (
        getattr(module, "RELEASES", "it does not declare what its updates tell") if decide is None else decide(config)
    )
    if isinstance(found, str):
        return found
    rule = getattr(getattr(config, "merge", None), "rule", "mean")
    why = "" if rule == "mean" else f"method.merge.rule = {rule} compares updates"
    return {kind: replace(release, single=release.single or why) for kind, release in found.items()}


def release_of(releases: Mapping[type, Release], update: Message) -> Release:
    """The declaration of an update. One without a declaration raises BadInput."""
    found = releases.get(type(update))
    if found is None:
        kind = type(update).__name__
        raise BadInput(Code.METHOD_OWN, f"RELEASES: must name every update of the method, got none for {kind}.")
    return found


def vector(update: Message, task: Message, release: Release) -> Tensor:
    """The release of an update, as one vector."""
    parts = [part.reshape(-1) for part in _parts(update, task, release)]
    return torch.cat(parts) if parts else torch.zeros(0)


def with_vector(update: Message, task: Message, release: Release, values: Tensor) -> Message:
    """The same update with this vector as its release."""
    place = 0

    def next_like(old: Tensor, base: Tensor | None) -> Tensor:
        nonlocal place
        part = values[place : place + old.numel()].reshape(old.shape).to(old.dtype)
        place += old.numel()
        return part if base is None else base + part

    new: dict[str, Any] = {}
    for name in release.models:
        bases = _bases(update, task, release, name)
        new[name] = {
            key: next_like(old, bases.get(key)) if old.is_floating_point() else old
            for key, old in getattr(update, name).items()
        }
    for name in release.changes:
        new[name] = _mapped(getattr(update, name), lambda old: next_like(old, None))
    for name in release.directions:
        new[name] = _mapped(getattr(update, name), lambda old: _joined(next_like(old, None), next_like(old[:1], None)))
    return replace(update, **new)


def _parts(update: Message, task: Message, release: Release) -> Iterator[Tensor]:
    for name in release.models:
        bases = _bases(update, task, release, name)
        for key, value in getattr(update, name).items():
            if value.is_floating_point():
                yield value - bases[key] if key in bases else value
    for name in release.changes:
        yield from _leaves(getattr(update, name))
    for name in release.directions:
        for leaf in _leaves(getattr(update, name)):
            length = torch.linalg.vector_norm(leaf).reshape(1)[: leaf.numel()]
            yield leaf / length.clamp_min(1e-12)
            yield length


def _joined(direction: Tensor, length: Tensor) -> Tensor:
    """A vector with this direction and length; zero where the directions cancel."""
    unit: Tensor = direction / torch.linalg.vector_norm(direction).clamp_min(1e-12)
    return unit * length.clamp_min(0.0)


def _bases(update: Message, task: Message, release: Release, name: str) -> Mapping[str, Tensor]:
    if release.base is not None:
        return release.base(task, update)
    found: Mapping[str, Tensor] = getattr(task, name)
    return found


def _leaves(value: Any) -> Iterator[Tensor]:
    found: list[Tensor] = []

    def note(leaf: Tensor) -> Tensor:
        found.append(leaf)
        return leaf

    _mapped(value, note)
    yield from found


def _mapped(value: Any, visit: Callable[[Tensor], Tensor]) -> Any:
    """The value with `visit` applied to each floating-point tensor in it, in their order."""
    if isinstance(value, Tensor):
        return visit(value) if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {key: _mapped(one, visit) for key, one in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return replace(value, **{field.name: _mapped(getattr(value, field.name), visit) for field in fields(value)})
    return value


def with_numbers(update: Message, release: Release, number: float) -> Message:
    """The same update with this number in place of each number of samples."""
    new = {name: torch.full_like(torch.as_tensor(getattr(update, name)), number) for name in release.numbers}
    return replace(update, **new) if new else update
