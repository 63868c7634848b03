"""Groups of clients with one model each (grouping `one`, `given`, `choice`), and how uploads become that model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from potluck.fleet import ClientId, Fleet, Params
from potluck.methods.parts import held
from potluck.methods.parts.compose import convolved
from potluck.methods.parts.compose.settings import Given, Mean, Stale
from potluck.methods.parts.compose.shapes import Learned, Shape, Upload
from potluck.methods.parts.merge import MEAN, Merge, merged
from potluck.methods.parts.shared_map import SharedMap, share
from potluck.methods.parts.staleness import polynomial
from potluck.methods.parts.submodels import widths
from potluck.methods.parts.submodels.widths import Plan
from potluck.tensors import each, zeros_like


@dataclass(frozen=True)
class Group:
    """One group: its model, and the samples behind each entry where the newest models count."""

    weights: Params
    version: int = 0
    mass: Params | None = None


@dataclass(frozen=True)
class Newest:
    """A client's newest upload, while it counts in its group."""

    weights: Params
    examples: float
    number: int


@dataclass(frozen=True)
class Groups:
    """All groups, who is in which, and the newest upload of each client where it counts."""

    groups: dict[int, Group]
    members: SharedMap[int] = field(default_factory=SharedMap)
    newest: SharedMap[Newest] = field(default_factory=SharedMap)

    def __post_init__(self) -> None:
        share(self, "members", "newest")


def improved(book: Groups, train: Callable[[Params], Params]) -> Groups:
    """The groups with `train` done to each model; what counts behind its entries stays."""
    return replace(
        book, groups={number: replace(one, weights=train(one.weights)) for number, one in book.groups.items()}
    )


Step = Callable[[Learned, Group, Sequence[Upload]], tuple[Learned, Group]]  # of one group, with its uploads


def given_to(fleet: Fleet, how: Given) -> Callable[[ClientId], int]:
    """The group of each client, where groups are known."""
    if how.by == "list":
        return lambda client: how.groups.get(client, 0)
    names = sorted({getattr(profile, how.by) for profile in fleet.clients.values()})
    number = {name: place for place, name in enumerate(names)}

    def of(client: ClientId) -> int:
        profile = fleet.clients.get(client)
        return 0 if profile is None else number.get(getattr(profile, how.by), 0)

    return of


def placed(
    book: Groups, learned: Learned, uploads: Sequence[Upload], number_of: Callable[[Upload], int], step: Step,
    newest: bool,
) -> tuple[Groups, Learned]:  # fmt: skip
    """The groups after uploads: each goes to its group, and every group that got some merges them."""
    groups, members, known = dict(book.groups), book.members, book.newest
    if newest:
        for one in uploads:
            groups, known = _exchanged(groups, known, one, number_of(one))
            members = members.put(one.client, number_of(one))
        return Groups(groups, members, known), learned
    by_group: dict[int, list[Upload]] = {}
    for one in uploads:
        if number_of(one) in groups:  # the number comes from the client, where it chooses
            by_group.setdefault(number_of(one), []).append(one)
            members = members.put(one.client, number_of(one))
    for number, ones in by_group.items():
        learned, groups[number] = step(learned, groups[number], ones)
    return Groups(groups, members, known), learned


def level(book: Groups) -> Groups:
    """All groups at one version: a client that may choose is sent all models, cut at one version, and answers to it."""
    version = max(group.version for group in book.groups.values())
    return replace(book, groups={number: replace(group, version=version) for number, group in book.groups.items()})


def _exchanged(
    groups: Mapping[int, Group], known: SharedMap[Newest], one: Upload, number: int
) -> tuple[dict[int, Group], SharedMap[Newest]]:
    """The groups after a client's newest upload replaced its older one, in whichever group that was."""
    after, before = dict(groups), known.get(one.client)
    into = (_copied(one.weights), one.examples)
    if before is not None and before.number != number:
        after[before.number] = _changed(after[before.number], (before.weights, before.examples), None)
        before = None
    out = None if before is None else (before.weights, before.examples)
    after[number] = _changed(after[number], out, into)
    return after, known.put(one.client, Newest(*into, number))


def _changed(group: Group, out: tuple[Params, float] | None, into: tuple[Params, float] | None) -> Group:
    mass = held.uniform(group.weights, 0.0) if group.mass is None else group.mass
    weights, mass = held.exchanged(group.weights, mass, out, into)
    return Group(weights, group.version + 1, mass)


def _copied(weights: Params) -> Params:
    """A copy of its own: the upload may be a row of a large stack."""
    return {name: value.clone() for name, value in weights.items()}


def by_mean(plan: Plan | None, how: Mean, rule: Merge = MEAN) -> Step:
    """The mean of each entry over its holders, or a robust rule where every upload holds everything."""

    def step(learned: Learned, group: Group, uploads: Sequence[Upload]) -> tuple[Learned, Group]:
        counts: list[float | Tensor] = [
            1.0 if how.by == "clients" else torch.as_tensor(one.update.examples) for one in uploads
        ]
        useful = [(one, n) for one, n in zip(uploads, counts, strict=True) if float(n) > 0 and one.weights]
        if not useful:
            return learned, replace(group, version=group.version + 1)
        ones, counts = [one for one, _ in useful], [n for _, n in useful]
        names = ones[0].weights.keys()
        like = {name: value for name, value in group.weights.items() if name in names}
        if all(one.indices is None and held.is_whole(one.weights, like) for one in ones):
            new = merged([one.weights for one in ones], counts, rule, like)
        elif plan is not None and all(one.indices is not None and one.weights.keys() == names for one in ones):
            parts = [(one.weights, one.indices or {}, n) for one, n in zip(ones, counts, strict=True)]
            new = widths.merged(like, plan, parts)
        else:
            new = held.mean(group.weights, [(one.weights, float(n)) for one, n in zip(ones, counts, strict=True)])
        return learned, Group({**group.weights, **new}, group.version + 1)

    return step


def by_learned(shape: Shape) -> Step:
    """FedConv, eq. (4)."""

    def step(learned: Learned, group: Group, uploads: Sequence[Upload]) -> tuple[Learned, Group]:
        assert shape.tuner is not None
        shape.tuner.tuner.begin(group.version)
        made = convolved.mixed(shape.tuner, group.weights, uploads)
        return learned.after(shape.tuner), Group(made.weights, group.version + 1)

    return step


def by_change(how: Stale, plan: Plan | None) -> Step:
    """FedBuff: the mean of the changes, an old one counts less; a change of a sub-model moves what it holds."""

    def step(learned: Learned, group: Group, uploads: Sequence[Upload]) -> tuple[Learned, Group]:
        total = zeros_like(group.weights)
        for one in uploads:
            portion = polynomial(one.age, how.power)
            part = one.weights if one.indices is None else _spread(one, group.weights, plan)
            total = _moved(total, part, portion)
        weights = _moved(group.weights, total, how.global_lr / len(uploads))
        return learned, Group(weights, group.version + 1)

    return step


def _spread(one: Upload, like: Params, plan: Plan | None) -> Params:
    assert plan is not None
    assert one.indices is not None
    zero = zeros_like({name: like[name] for name in one.weights})
    return widths.merged(zero, plan, [(one.weights, one.indices, 1.0)])


def _moved(value: Params, change: Params, portion: float) -> Params:
    if held.is_whole(change, value):
        return each(lambda v, d: v + portion * d if v.is_floating_point() else v, value, change)
    zero = zeros_like(value)
    return _moved(value, held.whole(change, zero), portion)
