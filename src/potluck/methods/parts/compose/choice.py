"""Which parts there are, what each gives and needs, and why two of them do not fit together.

A part gives facts that other parts may need. A combination is legal where every need is met. The sentence of a refusal
is the need's own reason, so it names the culprit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from potluck.errors import Code, must_be, unknown

Fact = Literal[
    "together", "corner", "channels", "layers", "private", "newest", "plain mean", "several", "weights",
    "one program", "no pull", "server rows", "access points",
]  # fmt: skip
FACTS: dict[Fact, str] = {
    "together": "all uploads of a step come at one moment",
    "corner": "an upload holds the leading channels, or all of them",
    "channels": "every upload has all channels when it is merged",
    "layers": "every layer is shared",
    "private": "some layers stay on the client",
    "newest": "the newest model of each client counts, once",
    "plain mean": "models are merged by their mean",
    "several": "there are several groups",
    "weights": "clients send weights",
    "one program": "every client trains by one task",
    "no pull": "local training has no pull of its own",
    "server rows": "the server has rows",
    "access points": "devices have access points",
}
AXES = ("pace", "grouping", "shape", "local", "share", "merge")


@dataclass(frozen=True)
class Part:
    """One answer to one of the six questions."""

    axis: str
    name: str
    does: str
    gives: frozenset[Fact] = frozenset()
    needs: Mapping[Fact, str] = field(default_factory=dict)  # fact -> why
    settings: tuple[str, ...] = ()  # the groups of settings that belong to it


def _part(axis: str, name: str, does: str, gives: str = "", settings: str = "", **needs: str) -> Part:
    facts = frozenset(one.strip() for one in gives.split(",") if one.strip())
    why = {name.replace("_", " "): reason for name, reason in needs.items()}
    return Part(axis, name, does, facts, why, tuple(settings.split()))  # type: ignore[arg-type]


_ALL = (
    _part("pace", "rounds", "ask a cohort, wait for all of it", "together"),
    _part("pace", "deadline", "ask a cohort, go on at a deadline without the late", "together", "deadline"),
    _part("pace", "arrivals", "act on every upload, give the client its next task at once", settings="arrivals"),
    _part("pace", "buffered", "act on every K-th upload", settings="buffered"),
    _part("pace", "points", "act at fixed moments on what has come by then", settings="points"),
    _part("grouping", "one", "one group of all clients"),
    _part("grouping", "given", "groups that are known: by device, by kind, or listed", "several", "given"),
    _part(
        "grouping", "choice", "each client takes the group model of least loss (IFCA)", "several", "choice",
        one_program="a client is sent all models to choose from",
        weights="a gradient does not say which model it belongs to",
    ),
    _part(
        "grouping", "clusters", "on arrival, the nearest cluster; splits, merges, broadcasts (EchoPFL)", "several",
        "clusters broadcast legs",
        corner="distances to cluster centres are taken over the leading channels",
        newest="a cluster's model is the mean of its members' newest models",
        weights="a gradient is near to nothing, so every upload would be near every other",
    ),
    _part(
        "grouping", "relation", "each client its own model, pulled to those alike by a learned F (ClusterFL)",
        "several", "relation couple probe",
        together="F compares the models of one moment",
        channels="the rows of F's table are models of one size",
        plain_mean="F itself says how models are weighed",
        no_pull="the relation is a pull of its own",
        one_program="every row of the table is a whole model",
        weights="F compares models",
    ),
    _part("shape", "one", "one model for all", "corner, channels"),
    _part("shape", "slices", "the leading channels, as many as suit the device (HeteroFL)", "corner", "sizes"),
    _part("shape", "rolling", "a window of channels that moves on (FedRolex)", "", "sizes"),
    _part(
        "shape", "fedconv", "sub-models by learned convolution, dilated again (FedConv)", "corner, channels",
        "sizes kernels tuning server",
        server_rows="kernels are tuned on them",
        weights="a gradient of a sub-model cannot be dilated",
        one_program="what an access point trains was not compressed for it",
    ),
    _part(
        "shape", "per-group", "each group has the width that its narrowest member affords", "corner", "sizes",
        several="with one group all would have the narrowest width",
    ),
    _part("local", "all", "train on all samples", "one program, no pull"),
    _part("local", "select", "train on the samples that loss selection keeps (Centaur)", "one program, no pull",
          "select"),
    _part(
        "local", "handover", "select, train the classifier, hand the rest to an access point (Centaur)", "no pull",
        "select handover",
        access_points="samples are handed over to them",
        layers="a device trains the classifier for all",
        weights="an access point sends a model",
    ),
    _part("local", "proximal", "stay near the model that was sent (FedProx)", "one program", "proximal"),
    _part(
        "local", "head", "train the layers of its own first, then the shared ones (FedRep)", "one program", "head",
        private="there must be layers of its own",
        weights="a bound layer is trained with the rest",
    ),
    _part("local", "distil", "learn from the answers of the model that was sent, too", "one program", "distil"),
    _part("share", "all", "all layers", "layers, weights"),
    _part("share", "all-but-head", "all layers but the last ones (FedPer)", "private, weights", "layers"),
    _part("share", "module", "the named layers only", "private, weights", "module"),
    _part(
        "share", "gradient", "the gradient of one layer, which binds the others' (FedCFC)", "private", "gradient",
        corner="a client keeps its own model, whose channels must stay the same",
        no_pull="the bound terms are a pull of their own",
        one_program="a bound client keeps its whole model",
    ),
    _part(
        "merge", "mean", "the mean of each entry over its holders", "plain mean", "mean",
        together="alone, one upload would replace the model",
    ),
    _part(
        "merge", "learned", "a mean with weights tuned on the server rows (FedConv)", "", "mix server",
        together="the weights are of models of one moment",
        channels="the weights are tuned on whole models",
        server_rows="the weights are tuned on them",
        layers="the merged model must answer",
    ),
    _part("merge", "latest", "the mean of the clients' newest models", "newest", "",
          corner="a newer model must replace the same channels",
          weights="only models can be replaced"),
    _part("merge", "stale", "changes, the older the less (FedBuff)", "", "stale",
          weights="a gradient of one layer is no step of the model",
          one_program="an access point sends a model"),
    _part(
        "merge", "robust", "a rule that some liars cannot bend", "", "robust",
        together="a rule compares the uploads of one moment",
        channels="a rule compares whole models",
        one_program="devices and access points send unlike layers",
    ),
)  # fmt: skip
PARTS: dict[str, dict[str, Part]] = {axis: {one.name: one for one in _ALL if one.axis == axis} for axis in AXES}


def spelled(text: str) -> dict[str, str]:
    """The parts that `arrivals/clusters/slices/all/all/latest` names, in the order of the axes."""
    names = text.split("/")
    if len(names) != len(AXES):
        wanted = "six parts, " + "/".join(AXES)
        raise must_be(Code.SETTING_VALUE, "parts", wanted, text)
    for axis, name in zip(AXES, names, strict=True):
        if name not in PARTS[axis]:
            raise unknown(Code.SETTING_VALUE, f"parts: {axis}", name, list(PARTS[axis]))
    return dict(zip(AXES, names, strict=True))


def refused(chosen: Mapping[str, str], beside: Collection[Fact]) -> str:
    """Why these parts do not fit together; empty where they do. `beside` is what server and fleet give."""
    parts = [PARTS[axis][chosen[axis]] for axis in AXES]
    given = {fact for one in parts for fact in one.gives} | set(beside)
    lacking = _withheld(parts)
    for one in parts:
        for fact, why in one.needs.items():
            if fact in lacking or fact not in given:
                culprit = lacking.get(fact)
                who = f", which {culprit.axis} {culprit.name!r} does not give" if culprit else ""
                return f"{one.axis}: {one.name!r} needs that {FACTS[fact]}{who} ({why})."
    return ""


def _withheld(parts: Collection[Part]) -> dict[Fact, Part]:
    """Facts that an axis decides and that the part chosen on it does not give, with that part."""
    found: dict[Fact, Part] = {}
    for one in parts:
        usual = {fact for other in PARTS[one.axis].values() for fact in other.gives}
        found |= {fact: one for fact in usual - one.gives}
    return found


def legal(beside: Collection[Fact]) -> Iterator[dict[str, str]]:
    """All combinations that fit together."""
    for names in product(*(PARTS[axis] for axis in AXES)):
        chosen = dict(zip(AXES, names, strict=True))
        if not refused(chosen, beside):
            yield chosen


def unmet(one: Part, other: Part) -> str:
    """Why two parts of unlike axes never fit, whatever the others are; empty where they may."""
    for part, beside in ((one, other), (other, one)):
        withheld = _withheld([beside])
        for fact, why in part.needs.items():
            if fact in withheld:
                return f"{part.name!r} needs that {FACTS[fact]}: {why}"
    return ""
