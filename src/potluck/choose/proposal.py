"""What to compare on data that nobody prepared: methods, model, fleet and budget, each with one sentence of reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from potluck.choose.facts import Facts
from potluck.units import listed, number, percent, plural, quantity

FEWEST_TO_GROUP = 6  # clients below which there is nothing to group
UNLIKE_SPEED = 10.0  # devices this many times faster than others make the others stragglers
LONGEST_SERIES = 150  # steps of a series that a continuous-time network trains on within minutes
FEWEST_SERVER_ROWS = 30
SERVER_SHARE = 0.05
PASSES = 20  # over each client's samples, for every method


@dataclass(frozen=True)
class Reasoned:
    """One choice and why it was made."""

    what: str
    why: str


@dataclass(frozen=True)
class Proposal:
    """What `potluck choose` is going to compare."""

    methods: list[Reasoned]
    left_out: list[Reasoned]
    around: list[Reasoned]  # model, fleet, budget
    server_share: float
    passes: int

    @property
    def names(self) -> list[str]:
        return [one.what for one in self.methods]

    def without(self, name: str, why: str) -> Proposal:
        """The same, with one method left out."""
        kept = [one for one in self.methods if one.what != name]
        return Proposal(kept, [*self.left_out, Reasoned(name, why)], self.around, self.server_share, self.passes)


def propose(facts: Facts) -> Proposal:
    """Propose a comparison from what the data card and the fleet say."""
    chosen = [
        Reasoned("local", "each client trains alone: the baseline that learning together must beat."),
        Reasoned("fedavg", "one shared model by aggregation: the usual first try."),
        Reasoned("ftl", "FedAvg first, then every client fine-tunes its own copy."),
    ]
    left_out: list[Reasoned] = []
    for name, verdict in SYSTEMS.items():
        fits, why = verdict(facts)
        (chosen if fits else left_out).append(Reasoned(name, why))
    share = SERVER_SHARE if any(one.what == "fedconv" for one in chosen) else 0.0
    return Proposal(chosen, left_out, _around(facts, share), share, PASSES)


Verdict = tuple[bool, str]  # whether a method fits, and the reason either way


def _clusterfl(facts: Facts) -> Verdict:
    clients = plural(facts.clients, "client")
    if facts.clients < FEWEST_TO_GROUP:
        return False, f"{clients}: too few to look for groups."
    return True, f"{clients} may fall into groups that learn better together."


def _echopfl(facts: Facts) -> Verdict:
    if facts.clients < FEWEST_TO_GROUP:
        return False, f"{plural(facts.clients, 'client')}: too few to look for groups."
    if facts.speed_ratio < UNLIKE_SPEED:
        return False, "the devices are about equally fast, so there are no stragglers to avoid."
    ratio = number(facts.speed_ratio, 2)
    return True, f"the fastest device is {ratio} times faster than the slowest, and here no client waits for another."


def _fedconv(facts: Facts) -> Verdict:
    rows = int(SERVER_SHARE * facts.rows * facts.clients)
    if len(facts.devices) == 1:
        return False, "all devices are alike, so all can train the whole network."
    if rows < FEWEST_SERVER_ROWS:
        return False, f"it needs rows on the server, and {percent(SERVER_SHARE, 0)} of these would be {rows}."
    return True, "the devices differ in memory; each trains the width of the network that it can hold."


def _centaur(facts: Facts) -> Verdict:
    if not facts.constrained:
        return False, "no device is so small that it needs a partner."
    return True, f"{facts.constrained} of {facts.clients} devices are small; an access point near each trains with it."


def _fedcfc(facts: Facts) -> Verdict:
    if facts.kind != "series":
        return False, f"it trains on series, and the data is of kind {facts.kind}."
    if facts.steps > LONGEST_SERIES:
        return (
            False,
            f"series of {facts.steps} steps take its network too long here. Add it by name if bytes matter most.",
        )
    return True, f"series of {plural(facts.steps, 'step')}: a small network that sends only kilobytes."


SYSTEMS: dict[str, Callable[[Facts], Verdict]] = {
    "clusterfl": _clusterfl,
    "echopfl": _echopfl,
    "fedconv": _fedconv,
    "centaur": _centaur,
    "fedcfc": _fedcfc,
}


def _around(facts: Facts, share: float) -> list[Reasoned]:
    devices = [f"{count} {name}" for name, count in list(facts.devices.items())[:3]]
    if len(facts.devices) > 3:
        devices.append(plural(len(facts.devices) - 3, "other kind"))
    people = "as the data names them" if facts.natural else "dealt at random, because the data names none"
    unlike = "much alike" if facts.skew < 0.15 else "fairly unlike" if facts.skew < 0.4 else "very unlike"
    found = [
        Reasoned(
            plural(facts.clients, "client"),
            f"{people}; the median one has {plural(facts.rows, 'training row')}. Their mixes of classes are {unlike}.",
        ),
        Reasoned(
            f"model {facts.model}",
            f"the usual one for data of kind {facts.kind}: {facts.parameters:,} parameters.",
        ),
        Reasoned(
            f"fleet of {plural(len(facts.devices), 'kind')} of device",
            f"{listed(devices)}; the smallest has {quantity(facts.smallest_memory, 'B')} for training.",
        ),
        Reasoned(
            f"budget of {PASSES} passes",
            "over each client's samples, the same for every method; results are also read at equal virtual time.",
        ),
    ]
    if share:
        server = f"{percent(share)} of the rows are set aside for the server, whatever the method does with them."
        found.append(Reasoned("server rows", server))
    return found
