"""Local `handover`: Centaur's devices and access points inside a composed method.

A device with an access point gets Centaur's `Collect`: it selects, trains the classifier, and hands samples over. Its
access point gets `Retrain` once there is something to train on. Both messages are Centaur's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from potluck.fleet import Arrival, ClientId, Fleet, Params
from potluck.learn import Recipe
from potluck.methods import centaur
from potluck.methods.centaur import Collect, Collected, Retrain, Retrained
from potluck.methods.parts.centaur import pairs, samples
from potluck.methods.parts.centaur.handover import Handover, sample_bytes
from potluck.methods.parts.centaur.samples import Counts, Samples
from potluck.methods.parts.cohort import awaited
from potluck.methods.parts.compose.settings import HandOver
from potluck.methods.parts.selection import Rule


@dataclass(frozen=True)
class Pairs:
    """What became of the samples, and which access points have something to train on."""

    waiting: dict[ClientId, float] = field(default_factory=dict)  # device that handed over -> share it had gathered
    unused: dict[ClientId, bool] = field(default_factory=dict)  # devices whose last samples were of no use
    samples: Samples = field(default_factory=Samples)
    times: dict[ClientId, int] = field(default_factory=dict)  # rounds of each device, where nobody waits


class Rules:
    """The settings as Centaur has them, and its tasks: equal ones are one object, which the engine prices once."""

    def __init__(self, fleet: Fleet, recipe: Recipe, rule: Rule, how: HandOver, seed: int) -> None:
        self.cfg = centaur.Config(recipe, 0, how.storage_kb, rule, how.connection, how.encoder, seed=seed)
        self.names = fleet.home.model.split(how.encoder.split).classifier
        self.sample = sample_bytes(fleet.home.data)
        self._devices = how.devices
        self._collect: dict[Any, Collect] = {}
        self._retrain: dict[Any, Retrain] = {}

    def hands_over(self, fleet: Fleet, client: ClientId) -> bool:
        """Whether a client is a device that hands over, or an access point."""
        profile = fleet.clients[client]
        return profile.kind == pairs.AP or not self._devices or profile.device in self._devices

    def device(self, fleet: Fleet, state: Any, client: ClientId, at: Any, model: Params, pair: int) -> Collect:
        """The task of a device with this model, which is known by `at`."""
        profile = fleet.clients[client]
        here = profile.partner is not None and profile.partner in set(fleet.idle)
        offline = self.cfg.connection.offline(self.cfg.seed, client, pair)
        room = pairs.storage(self.cfg.storage_kb, profile, self.sample)
        how = (pair, here, client in state.pairs.unused, room)
        known_by = (at, offline, how)
        if known_by not in self._collect:
            conditions = Handover.of(*how)
            self._collect[known_by] = Collect.of(centaur.State(model), self.cfg, self.names, offline, conditions)
        return self._collect[known_by]

    def access_point(self, state: Any, device: ClientId, at: Any, model: Params) -> Retrain:
        more = self.cfg.connection.units(state.pairs.waiting[device])
        if (at, more) not in self._retrain:
            self._retrain[at, more] = Retrain.of(centaur.State(model), self.cfg, more)
        return self._retrain[at, more]

    def forget(self) -> None:
        """A new step: models of earlier ones are not needed any more."""
        self._collect.clear()
        self._retrain.clear()


def asked(fleet: Fleet, state: Any, cohort: int, seed: int) -> list[ClientId]:
    """Whom a round asks: devices and their access points in turn (Algorithm 1)."""
    if state.round % 2 == 0:
        return pairs.devices(fleet, cohort, seed, state.round // 2)
    partners = [fleet.clients[client].partner for client in state.pairs.waiting]
    awaited(fleet, [ap for ap in partners if ap is not None])
    present = set(fleet.idle)
    return [ap for ap in partners if ap is not None and ap in present]


def brought(update: Collected | Retrained) -> Params:
    """The layers that an update has."""
    return {**update.classifier, **update.buffers} if isinstance(update, Collected) else update.weights


def counted(state: Any, came: Sequence[Arrival], rules: Rules, in_rounds: bool) -> Any:
    """What became of the samples after these answers."""
    own: Pairs = state.pairs
    counts = {a.client: Counts.unpacked(a.update.counts) for a in came if isinstance(a.update, Collected)}
    trained = {a.client: a.update for a in came if isinstance(a.update, Retrained)}
    devices = {state.partners[ap] for ap in trained}
    if counts or not in_rounds:
        waiting, unused = samples.taken(own.unused, counts, rules.cfg.connection.gathered)
        waiting = waiting if in_rounds else {**own.waiting, **waiting}
        total = samples.added(own.samples, list(counts.values()), rules.sample) if counts else own.samples
        own = replace(own, waiting=waiting, unused=unused, samples=total)
    if trained or (in_rounds and not counts):
        failed = {client: True for client in own.waiting if client not in devices} if in_rounds else {}
        steps = own.samples.ap_steps + sum(float(update.trained) for update in trained.values())
        waiting = {} if in_rounds else own.waiting
        own = replace(own, waiting=waiting, unused=own.unused | failed, samples=replace(own.samples, ap_steps=steps))
    times = {client: own.times.get(client, 0) + 1 for client in counts}
    return replace(state, pairs=replace(own, times={**own.times, **times} if not in_rounds else own.times))


def at_work(state: Any, device: ClientId) -> Any:
    """The access point of a device has its samples now: it gets no other task before the device hands over again."""
    waiting = {name: share for name, share in state.pairs.waiting.items() if name != device}
    return replace(state, pairs=replace(state.pairs, waiting=waiting))


def in_vain(state: Any, client: ClientId) -> Any:
    """An access point was lost with its task: its device's samples were of no use."""
    device = state.partners.get(client)
    if device is None:
        return state
    return replace(state, pairs=replace(state.pairs, unused={**state.pairs.unused, device: True}))
