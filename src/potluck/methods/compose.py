"""Compose: a method made of parts. Six questions, one answer each: pace, grouping, shape, local, share, merge.

`parts/compose/choice.py` lists the parts, what each gives and needs, and why two do not fit; `potluck compose` shows
it. The answers of FedAvg, FedBuff, FedPer, IFCA, HeteroFL, EchoPFL, ClusterFL, FedConv and Centaur give those methods
again (tests/methods/test_compose_identities.py). Behind the shape, everything is in the coordinates of a group's model:
an upload is a model that may lack layers and channels (`parts/held.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, cast

from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import Arrival, ClientId, Fleet, Local, Message, Params
from potluck.learn import Recipe
from potluck.methods.centaur import Collect, Collected, Mine, Retrain, Retrained, collect, retrain
from potluck.methods.parts import checks, held, layers
from potluck.methods.parts.centaur import costs
from potluck.methods.parts.centaur import pairs as centaur_pairs
from potluck.methods.parts.clusterfl import probe as probing
from potluck.methods.parts.clusterfl.probe import Offer, Offered, Probe
from potluck.methods.parts.clusterfl.relation import Relation
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.compose import choice, client, convolved, figures, fits, groups, kit, paces, pairs
from potluck.methods.parts.compose.declared import KEY_SETTINGS, NEEDS, PAIRS, SPACE, releases
from potluck.methods.parts.compose.figures import useful
from potluck.methods.parts.compose.groups import Groups
from potluck.methods.parts.compose.kit import TOGETHER, Kit, Sub, kit_of
from potluck.methods.parts.compose.messages import Bind, Carry, Change, Kept, Note, Train, Trained, Turned
from potluck.methods.parts.compose.pairs import Pairs
from potluck.methods.parts.compose.received import base
from potluck.methods.parts.compose.relations import Related
from potluck.methods.parts.compose.settings import (
    Bound,
    Buffered,
    Couple,
    Deadline,
    Distil,
    Given,
    HandOver,
    HeadFirst,
    Mean,
    Module,
    Points,
    Proximal,
    Several,
    Stale,
    Tuning,
)  # fmt: skip
from potluck.methods.parts.compose.shapes import Learned
from potluck.methods.parts.echopfl import tempo
from potluck.methods.parts.echopfl.broadcast import BroadcastRules
from potluck.methods.parts.echopfl.clusters import ClusterRules, Grouping, newest_of
from potluck.methods.parts.echopfl.tempo import Tempo
from potluck.methods.parts.fedconv.declared import check_forms
from potluck.methods.parts.merge import Merge
from potluck.methods.parts.selection import Rule
from potluck.methods.parts.submodels.fitting import FittedSizes
from potluck.methods.parts.submodels.kernels import Kernels
from potluck.methods.parts.submodels.mixing import Mix
from potluck.methods.parts.submodels.tuning import ServerRows
from potluck.methods.parts.submodels.widths import plan_of

__all__ = [
    "KEY_SETTINGS",
    "NEEDS",
    "PAIRS",
    "SPACE",
    "Carry",
    "Collected",
    "Mine",
    "Note",
    "Retrained",
    "releases",
    "useful",
]  # of the parts


@dataclass(frozen=True)
class Config:
    pace: Literal["rounds", "deadline", "arrivals", "buffered", "points"] = "rounds"
    grouping: Literal["one", "given", "choice", "clusters", "relation"] = "one"
    shape: Literal["one", "slices", "rolling", "fedconv", "per-group"] = "one"
    local: Literal["all", "select", "handover", "proximal", "head", "distil"] = "all"
    share: Literal["all", "all-but-head", "module", "gradient"] = "all"
    merge: Literal["mean", "learned", "latest", "stale", "robust"] = "mean"
    parts: str = ""  # all six in one text: arrivals/clusters/slices/all/all/latest
    use: Literal["auto", "received", "own"] = "auto"  # what a client infers with; auto: own with a shape or a relation
    recipe: Recipe = Recipe(epochs=2)
    cohort: int = 0  # clients per round; 0: all
    deadline: Deadline = Deadline()
    arrivals: tempo.Pace = tempo.Pace()
    buffered: Buffered = Buffered()
    points: Points = Points()
    given: Given = Given()
    choice: Several = Several()
    clusters: ClusterRules = ClusterRules()
    broadcast: BroadcastRules = BroadcastRules()
    legs: int = 2  # of an epoch, with grouping clusters: a client reads notes between two legs
    relation: Relation = Relation()
    couple: Couple = Couple()
    probe: Probe = Probe()
    sizes: FittedSizes = FittedSizes()
    kernels: Kernels = Kernels()
    tuning: Tuning = Tuning()
    server: ServerRows = ServerRows()
    select: Rule = Rule()
    handover: HandOver = HandOver()
    proximal: Proximal = Proximal()
    head: HeadFirst = HeadFirst()
    distil: Distil = Distil()
    layers: int = 1  # of share all-but-head: how many stay, counted from the output
    module: Module = Module()
    gradient: Bound = Bound()
    mean: Mean = Mean()
    mix: Mix = Mix()
    stale: Stale = Stale()
    robust: Merge = Merge("median")
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, "cohort", 0)
        checks.at_least(self, "legs", 1)
        checks.at_least(self, "layers", 1)
        for axis, name in choice.spelled(self.parts).items() if self.parts else ():
            if getattr(self, axis) not in (name, next(iter(choice.PARTS[axis]))):
                raise BadInput(
                    Code.SETTINGS_CLASH, f"{axis}: must be {name!r}, as parts says, got {getattr(self, axis)!r}."
                )
            object.__setattr__(self, axis, name)
        why = choice.refused(self.chosen, ("server rows", "access points"))
        if why:
            raise BadInput(Code.SETTINGS_CLASH, why)
        fits.check(self)

    @property
    def chosen(self) -> dict[str, str]:
        return {axis: getattr(self, axis) for axis in choice.AXES}

    @property
    def uses_own(self) -> bool:
        """Whether a client infers with its own model as training left it."""
        own = self.shape != "one" or self.grouping == "relation" or self.share == "gradient"
        return self.use == "own" or (self.use == "auto" and own)


@dataclass(frozen=True)
class State:
    first: Params  # the model that all clients begin with
    book: Groups | Grouping | Related | None = None  # of the grouping; none before the first step
    learned: Learned = field(default_factory=Learned)  # of the shape
    given: dict[str, Sub] = field(default_factory=dict)  # group/width -> the sub-model that was made last
    known: dict[ClientId, float] = field(default_factory=dict)  # clients that have answered, and their widths
    widths: dict[ClientId, float] = field(default_factory=dict)  # of the last task of each client; 1 where not named
    pairs: Pairs = field(default_factory=Pairs)
    partners: dict[ClientId, ClientId] = field(default_factory=dict)  # access point -> device
    gradients: dict[ClientId, Tensor] = field(default_factory=dict)  # newest of each bound client
    tempo: Tempo = field(default_factory=Tempo)
    private: tuple[str, ...] = ()
    use: str = "received"
    step: int = 0
    arrivals: int = 0
    round: int = 0
    staleness: tuple[int, int] = (0, 0)  # summed over all uploads, and the largest
    did: dict[str, Any] = field(default_factory=dict)  # what each part did, for the record
    events: tuple[tuple[str, str, str], ...] = ()


def start(weights: Params, cfg: Config) -> State:
    return State(weights, use="own" if cfg.uses_own else "received")


def check(cfg: Config, home: Local) -> None:
    """Raise BadInput, before anything runs, for parts that do not fit the model or the server's rows."""
    beside: list[choice.Fact] = ["access points"]
    if len(home.data.y):
        beside.append("server rows")
    why = choice.refused(cfg.chosen, beside)
    if why:
        raise BadInput(Code.METHOD_NEEDS, f"method.{why} Set server.share above 0.")
    if cfg.share == "all-but-head":
        layers.check(home, cfg.layers)
    if cfg.shape != "one":
        plan_of(home.model)
    if cfg.merge == "learned":
        check_forms(cfg.kernels, cfg.mix)
    if cfg.share != "all" and cfg.grouping == "relation" and cfg.relation.similarity == "kl":
        raise BadInput(
            Code.SETTINGS_CLASH,
            "method.relation.similarity: must be weights where layers stay on the clients, got kl: no model answers.",
        )


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """One step: the pace says whom to ask and when to act, the shape lifts what came, the grouping merges it."""
    state = replace(opened(fleet, state, cfg), events=())
    parts = kit_of(fleet, state, cfg)
    while True:
        state, came = taken(fleet, state, parts)
        state, uploads = kit.lifted(parts, state, came)
        if parts.rules is not None:
            state = pairs.counted(state, came, parts.rules, cfg.pace in TOGETHER)
        if uploads or cfg.pace in TOGETHER:
            state = parts.grouping.take(fleet, state, uploads)
        state = figures.counted(fleet, state, cfg, came, uploads)
        if parts.shape.now is not None:
            parts.shape.now["state"] = state
        yield state
        state = replace(state, events=())


def opened(fleet: Fleet, state: State, cfg: Config) -> State:
    """The state before the first step: groups, partners, and a first model trained on the server rows (FedConv)."""
    if state.book is not None:
        return state
    first = state.first
    if cfg.shape == "fedconv" or cfg.merge == "learned":
        own = convolved.server_side(fleet, cfg.sizes, cfg.kernels, cfg.mix, cfg.server, cfg.recipe, kit.SPEED, cfg.seed)
        first = own.tuner.trained(first, "pre-training", cfg.server.pretrain_epochs, cfg.recipe)
    return replace(
        state,
        first=first,
        book=kit.book_of(fleet, first, cfg),
        partners=kit.partners_of(fleet),
        private=kit.private_of(cfg, fleet.home.model),
    )


def taken(fleet: Fleet, state: State, parts: Kit) -> tuple[State, Sequence[Arrival]]:
    """The arrivals of one step, by the pace."""
    cfg, aside = parts.cfg, parts.grouping.begin(fleet, state)
    if parts.rules is not None:
        parts.rules.forget()
    tasks: dict[Any, Message] = {}  # of this step

    def give(now: State, who: ClientId) -> tuple[State, Message, int]:
        now, task, legs = cast("tuple[State, Message, int]", kit.task_for(fleet, parts, now, aside, tasks, who))
        return figures.given(now, who, task), task, legs

    if cfg.pace in TOGETHER:
        if parts.rules is not None:
            chosen = pairs.asked(fleet, state, cfg.cohort, cfg.seed)
        elif state.partners:
            chosen = centaur_pairs.devices(fleet, cfg.cohort, cfg.seed, state.round)
        else:
            chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        seconds = cfg.deadline.seconds if cfg.pace == "deadline" else 0.0
        return paces.together(fleet, state, chosen, give, seconds)
    may = partial(may_work, parts)
    count = {"arrivals": 1, "buffered": cfg.buffered.size, "points": 0}[cfg.pace]
    until = (int(fleet.now / cfg.points.period) + 1) * cfg.points.period if cfg.pace == "points" else None
    return paces.one_by_one(fleet, state, give, parts.grouping, may, count, until)


def may_work(parts: Kit, state: State, who: ClientId) -> bool:
    """Whether an idle client gets a task: an access point does when its device handed something over."""
    device = state.partners.get(who)
    return device is None or (parts.rules is not None and device in state.pairs.waiting)


PROGRAMS = {Train: client.train, Bind: client.bind, Collect: collect, Retrain: retrain, Offer: probing.offer}
WORK = {Collect: costs.device_round, Retrain: costs.ap_round}
MESSAGES = (Train, Trained, Change, Note, Bind, Turned, Collect, Collected, Retrain, Retrained, Offer, Offered)


def uses(cfg: Config) -> tuple[str, ...]:
    return figures.resources(cfg)


def headline(cfg: Config) -> str:
    if cfg.uses_own:
        return "mixed" if cfg.local == "handover" else "own"  # a device that hands over keeps no model
    return "mixed" if cfg.share != "all" or cfg.gradient.devices else "received"


def improves(cfg: Config) -> bool:
    return cfg.grouping not in ("clusters", "relation")  # these make their models anew from the uploads


def improved(state: State, train: Callable[[Params], Params]) -> State:
    """The models of the groups after `train` (`server.epochs`)."""
    if not isinstance(state.book, Groups):
        return replace(state, first=train(state.first))
    return replace(state, book=groups.improved(state.book, train))


def shared(state: State) -> Params | None:
    """The one model for all, where there is one group and every layer is shared."""
    book = state.book
    if book is None:
        return state.first
    alone = isinstance(book, Groups) and len(book.groups) == 1 and not state.private and not state.gradients
    return book.groups[0].weights if isinstance(book, Groups) and alone else None


def received(state: State, client: ClientId) -> Params | None:
    """The model that the server has for a client, at its width as it was last made; None where layers are its own."""
    return None if state.private else base(state, client)


def personal(state: State, client: ClientId, mine: Any) -> Params:
    """The client's own model, or its group's with the layers that are its own."""
    own = mine.weights if isinstance(mine, Kept) else {}
    if own and (state.use == "own" or client in state.gradients):
        return dict(own)
    if isinstance(state.book, Grouping) and not state.private and state.known.get(client, 1.0) == 1.0:
        return newest_of(state.book, client).weights
    has = base(state, client)
    return {**has, **{name: held.fitted(value, has[name]) for name, value in own.items() if name in state.private}}


def visible(state: State, client: ClientId) -> dict[str, Any]:
    """What a client may see of the state: the model that it would be sent, and nothing of others."""
    blank = State(personal(state, client, None))
    shown = ("private", "use", "round", "step")
    return {one.name: getattr(state if one.name in shown else blank, one.name) for one in fields(State)}


def clusters(state: State) -> Mapping[ClientId, int]:
    book = state.book
    several = book is not None and not (isinstance(book, Groups) and len(book.groups) == 1)
    return kit.clusters_of(book) if several else {}


def record(state: State) -> dict[str, Any]:
    return figures.record(state)


def events(state: State) -> tuple[tuple[str, str, str], ...]:
    return state.events
