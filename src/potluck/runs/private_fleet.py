"""The fleet as a method sees it under `[privacy]` and `[secure]`: noisy sums, or sums that hide their terms,
in place of single updates.

A method that needs only sums (`potluck.release`) gets, for each client that answered, the mean of all who did. It
merges these as it would merge the updates themselves, with the same result. So noise on the sum needs no line in a
method. A method that needs each update by itself gets each with noise of its own.

Charges are written here, before anything is handed to the method. A device whose budget is spent is not idle any more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from potluck import keys
from potluck.engines.log import Event
from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, FleetEmpty, Lost, Message
from potluck.privacy import tree
from potluck.privacy.account import Charge
from potluck.privacy.plan import COUNTED, Plan
from potluck.release import Release, release_of, vector, with_numbers, with_vector
from potluck.runs.protection import Protection

SPENT = "privacy: the budget of epsilon {:g} is spent"


class OpenFleet:
    """A fleet without privacy and secure sums, as it is."""

    def __init__(self, fleet: Any) -> None:
        self._fleet = fleet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    def yielded(self, state: Any) -> None: ...
    def record(self) -> dict[str, Any]:
        return {}

    def summary(self, clusters: Mapping[ClientId, int]) -> dict[str, Any]:
        return {}

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, saved: Mapping[str, Any], state: Any) -> None: ...


def guarded(fleet: Any, protection: Protection | None, state: Any) -> OpenFleet | PrivateFleet:
    """The fleet that a method gets."""
    return OpenFleet(fleet) if protection is None else PrivateFleet(fleet, protection, state)


class PrivateFleet:
    """A fleet whose answers are sums, with noise, within the budget of each device."""

    def __init__(self, fleet: Any, protection: Protection, state: Any) -> None:
        self._fleet = fleet
        self._by = protection
        self._plan: Plan = protection.plan
        self._state = state
        self.ledger = self._plan.ledger()
        self._number = 0  # releases so far
        self._pool: list[ClientId] = []  # who could have been drawn for the round that begins
        self._stand_in: ClientId | None = None  # asked because nobody was drawn; its answer is left out
        self._held: list[Arrival] = []  # wait until enough are there for a sum
        self._ready: deque[Arrival] = deque()  # summed, and not handed out yet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    def yielded(self, state: Any) -> None:
        self._state = state

    @property
    def _noisy(self) -> bool:
        """Whether noise goes on sums, and on single updates, here."""
        return self._plan.unit == "client" and self._plan.noise_at == "sum"

    # -- whom a method may ask -----------------------------------------------------------------------------------------

    @property
    def idle(self) -> Sequence[ClientId]:
        """Who may be asked; with `privacy.rate` those that were drawn, each by itself (Poisson sampling)."""
        if self._ready:  # parts of one sum: no task goes out between them
            return ()
        plan = self._plan
        idle: Sequence[ClientId] = self._fleet.idle
        able = idle if plan.epsilon is None else [client for client in idle if self._affords(client)]
        if plan.rate >= 1.0:
            return able
        self._pool, self._stand_in = list(able), None
        draws = keys.rng(self._by.seed, self._by.secret, "round", self._number).random(len(self._pool))
        drawn = [client for client, draw in zip(self._pool, draws, strict=True) if draw < plan.rate]
        if self._pool and not drawn:  # the accounting assumes a release in every round, here of noise alone
            self._stand_in = self._pool[int(draws.argmin())]
            return [self._stand_in]
        return drawn

    def _affords(self, client: ClientId) -> bool:
        """Whether a client may take part once more, beside its updates that wait for their sum."""
        if self._plan.unit == "sample":
            return self.ledger.affords(client, *self._trained(self._by.recipe, client))
        parts = 1 + sum(one.client == client for one in self._held)
        if self._plan.height:
            return self.ledger.affords(client, times=parts, leaf=self._number)
        return self.ledger.affords(client, self._often(parts))

    @property
    def _each(self) -> Charge:
        """What one release costs. Clusters that clients choose are released with their noisy sizes."""
        plan = self._plan
        counted = any(release.by for release in self._by.releases.values()) and plan.noise_at == "sum"
        return Charge(plan.noise / (1.0 + COUNTED**2) ** 0.5 if counted else plan.noise, plan.rate)

    def _often(self, parts: int) -> Charge:
        """What one release costs a client that is in it so often: so many times the sensitivity."""
        return replace(self._each, noise=self._each.noise / parts)

    def _trained(self, recipe: Any, client: ClientId, legs: int = 1) -> tuple[Charge, int]:
        """What training with noisy steps costs: one release for each step, in which each sample may be drawn."""
        samples = max(1, int(self._fleet.clients[client].samples))
        batch = min(int(recipe.batch), samples)
        return Charge(self._plan.noise, batch / samples), -(-samples // batch) * int(recipe.epochs) * legs

    # -- traffic -------------------------------------------------------------------------------------------------------

    def send(self, task: Message, to: ClientId, legs: int = 1) -> None:
        self._before(task, to, legs)
        self._fleet.send(task, to, legs)

    def gather(self, tasks: Mapping[ClientId, Message], until: float | None = None) -> list[Arrival]:
        if not tasks:
            self._raise_if_spent()
        for client, task in tasks.items():
            self._before(task, client)
        return self._released(list(self._fleet.gather(tasks, until)), tasks)

    def receive(self, until: float | None = None) -> Arrival | Lost | None:
        if self._ready:
            return self._ready.popleft()
        self._raise_if_spent()
        found: Arrival | Lost | None = self._fleet.receive(until)
        if not isinstance(found, Arrival):
            return found
        release = release_of(self._by.releases, found.update)
        self._held.append(found)
        if release.vectors and self._sums(release) and len(self._held) < release.together:
            return None
        held, self._held = self._held, []
        self._ready.extend(self._released(held, {}))
        return self._ready.popleft() if self._ready else None

    def _before(self, task: Message, client: ClientId, legs: int = 1) -> None:
        """Charge what a client releases by itself: with noise of its own, or by training with noise."""
        if self._noisy or self._plan.unit == "none":
            return
        charge, times = self._own(task, client, legs)
        if not self.ledger.affords(client, charge, times):
            raise FleetEmpty(SPENT.format(self._plan.epsilon))
        self.ledger.charge([client], charge, times)

    def _own(self, task: Message, client: ClientId, legs: int = 1) -> tuple[Charge, int]:
        if self._plan.unit == "client":
            return self._each, 1
        return self._trained(getattr(task, "recipe", self._by.recipe), client, legs)

    def _raise_if_spent(self) -> None:
        """Raise FleetEmpty where clients are here and none of them has any budget left."""
        if self._plan.epsilon is None or self._fleet.at_work:
            return
        here = self._fleet.idle
        if len(here) and not any(self._affords(client) for client in here):
            raise FleetEmpty(SPENT.format(self._plan.epsilon))

    # -- releases ------------------------------------------------------------------------------------------------------

    def _sums(self, release: Release) -> bool:
        return (self._noisy or self._by.adder.hides) and not release.single

    def _released(self, found: list[Arrival], tasks: Mapping[ClientId, Message]) -> list[Arrival]:
        """What the method gets for these arrivals, in their order."""
        out: dict[int, Arrival] = {}
        groups: dict[Any, list[Arrival]] = {}
        for arrival in found:
            release = release_of(self._by.releases, arrival.update)
            if not release.vectors:
                self._refund(arrival, tasks)
                out[arrival.task] = arrival
            elif self._sums(release):
                base = _start(tasks.get(arrival.client), release)
                groups.setdefault(int(getattr(arrival.update, release.by)) if release.by else base, []).append(arrival)
            else:
                out[arrival.task] = self._alone(arrival, release)
        if groups and self._plan.rate < 1.0:
            self._charge_all_drawn(groups)
        for place, (label, group) in enumerate(groups.items()):
            release = release_of(self._by.releases, group[0].update)
            done = self._summed(group, tasks, release, label if release.by else place)
            out |= {one.task: one for one in done}
        self._number += bool(groups)
        return [out[arrival.task] for arrival in found if arrival.task in out]

    def _charge_all_drawn(self, groups: Mapping[Any, Sequence[Arrival]]) -> None:
        """Charge everyone who could have been drawn. A round that the accounting does not know raises BadInput."""
        if not self._pool:
            raise BadInput(Code.PRIVACY, "privacy.rate: must be 1 with a method that asks twice in a round.")
        by = any(release.by for release in self._by.releases.values())
        if len(groups) > 1 and not by:
            raise BadInput(Code.PRIVACY, "privacy.rate: must be 1 with a method that sends clients unlike models.")
        self.ledger.charge(self._pool, self._each)

    def _refund(self, arrival: Arrival, tasks: Mapping[ClientId, Message]) -> None:
        """An update without a release was charged when its task was sent, and told nothing."""
        task = tasks.get(arrival.client)
        if task is not None and not self._noisy and self._plan.unit != "none":
            charge, times = self._own(task, arrival.client)
            self.ledger.charge([arrival.client], charge, -times)

    def _alone(self, arrival: Arrival, release: Release) -> Arrival:
        """One update with noise of its own, where the client did not add it."""
        if not self._noisy:
            return arrival
        self._charge([arrival.client])
        raw = replace(release, models=(), changes=release.vectors, directions=())
        values = vector(arrival.update, None, raw)
        values = values + self._noise(len(values), "alone", arrival.task)
        self._number += 1
        return replace(arrival, update=with_vector(arrival.update, None, raw, values))

    def _summed(
        self, group: list[Arrival], tasks: Mapping[ClientId, Message], release: Release, label: int
    ) -> list[Arrival]:
        """The noisy mean of a group in place of each of its updates; nothing for a group that is too small."""
        plan = self._plan
        shares = [1.0 if release.share is None else release.share(self._state, one.update) for one in group]
        shares = [0.0 if one.client == self._stand_in else share for one, share in zip(group, shares, strict=True)]
        found = self._by.adder(self._fleet, group, [tasks.get(one.client) for one in group], release, shares)
        if found is None:
            self._say(f"the sum of {len(group)} clients is lost: too many of them went away during it")
            return []
        total, weight, group = found.total, found.weight, found.group
        number = weight / len(group)
        if self._noisy:
            total, weight, number = *self._noised(total, weight, group, release, label), 1.0
        if weight < plan.smallest:
            self._say(f"a sum of {weight:.3g} clients is not released: privacy.smallest is {plan.smallest}")
            return []
        first = with_vector(group[0].update, tasks.get(group[0].client), release, total / max(number, weight))
        pooled = {name: getattr(first, name) for name in release.vectors}
        return [replace(one, update=with_numbers(replace(one.update, **pooled), release, number)) for one in group]

    def _noised(
        self, total: Tensor, weight: float, group: Sequence[Arrival], release: Release, label: int
    ) -> tuple[Tensor, float]:
        """The sum with noise, charged, and what it is divided by: a number that is noisy, or that tells nothing."""
        plan = self._plan
        if plan.rate >= 1.0:
            self._charge([one.client for one in group])
        if release.by:
            weight += plan.noise / COUNTED * float(keys.normal(self._key("count", label)))
        elif plan.rate < 1.0:
            weight = plan.rate * len(self._pool)
        return total + self._noise(len(total), "sum", label), weight

    def _charge(self, clients: Sequence[ClientId]) -> None:
        if not self._plan.height:
            for client, parts in Counter(clients).items():
                self.ledger.charge([client], self._often(parts))
            return
        for client in clients:
            self.ledger.took_part(client, self._number)

    def _key(self, *what: int | str) -> Tensor:
        return keys.key(self._by.seed, self._by.secret, "release", self._number, *what)

    def _noise(self, size: int, what: str, label: int) -> Tensor:
        plan = self._plan
        if plan.height:
            key = keys.key(self._by.seed, self._by.secret, "tree", 0 if what == "alone" else label)
            return plan.noise * plan.clip * tree.noise(key, self._number, plan.height, size)
        return plan.noise * plan.clip * keys.normal(self._key(what, label), (size,))

    def _say(self, detail: str) -> None:
        self._fleet.log.events.append(Event(self._fleet.now, "privacy", "", detail))

    # -- what a run needs ----------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to continue with the same bits, beside what the engine saves."""
        return {
            "number": self._number,
            "ledger": self.ledger.snapshot(),
            "held": [dict(vars(one)) for one in self._held],
            "ready": [dict(vars(one)) for one in self._ready],
            "about": dict(self._by.adder.about),
        }

    def restore(self, saved: Mapping[str, Any], state: Any) -> None:
        self._state = state
        self._number = saved["number"]
        self._by.adder.about.update(saved["about"])
        self.ledger.restore(saved["ledger"])
        self._held = [Arrival(**one) for one in saved["held"]]
        self._ready = deque(Arrival(**one) for one in saved["ready"])

    def record(self) -> dict[str, Any]:
        """The largest epsilon of a device so far, for run.db."""
        return {} if self._plan.unit == "none" else {"epsilon": max(self._spent().values(), default=0.0)}

    def _spent(self) -> dict[ClientId, float]:
        return self.ledger.epsilons(sorted(self.ledger.charged.keys() | self.ledger.leaves.keys()))

    def summary(self, clusters: Mapping[ClientId, int]) -> dict[str, Any]:
        """What was promised and what was spent, for summary.json."""
        about: dict[str, Any] = {"secure_sum": dict(self._by.adder.about)} if self._by.adder.hides else {}
        if self._plan.unit == "none":
            return about
        spent = self._spent()
        by_cluster: dict[str, float] = {}
        for client, cluster in clusters.items():
            by_cluster[str(cluster)] = max(by_cluster.get(str(cluster), 0.0), spent.get(client, 0.0))
        told: dict[str, Any] = {**self._plan.about, "spent": max(spent.values(), default=0.0)}
        told |= {"releases": self._number, "per_client": spent}
        return about | {"privacy": told | ({"per_cluster": by_cluster} if by_cluster else {})}


def _start(task: Message | None, release: Release) -> tuple[int, ...]:
    """What tells groups apart: the tensors that a client starts from. Sub-models of one width are one group."""
    if task is None or release.base is not None:
        return ()
    return tuple(id(value) for name in release.models for value in getattr(task, name).values())
