"""The methods: one readable file each, found by name.

A method's file has, in this order: `Config`, `State`, its messages, `start`, `server`, the client programs in
`PROGRAMS`, and `shared` (one model for all clients) or `personal` (the model of each client) or both. Optional:
`private` (what a client keeps before its first task), `received` (the model that the server would send a client now)
and `HEADLINE` (what `personal` is; `Method.headline`), `ANSWER` (how its models answer, where they are more than the
weights of one network), `VISIBLE` or `visible` (what of the state a client may see; `Method.visible`), `clusters` (the
cluster of each client), `record` (the method's own figures for the run's database), `BESIDE` (those of them that stand
beside its accuracy), `KEY_SETTINGS` (the settings that matter most), `SPACE` (what `potluck tune` may choose, see
`potluck.spaces`), `NEEDS` (settings of the experiment that its system needs), `USES` or `uses` (resources beyond the
clients' rows), `PRETRAINS` (its setting for pre-training on the server rows), `RELEASES` or `releases` (what updates
tell of a client, see `potluck.release`), `UNFORESEEN` (what a plan cannot know), `CLASSES` (why it learns classes only;
`classes_for(config)` where that depends on the settings). To add a method, write that file and add it to `METHODS`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from potluck.errors import BadInput, Code, no_file, unknown
from potluck.fleet import ClientId, ClientProgram, Expectation, Local, Params, ServerProgram
from potluck.models import Model
from potluck.models.answering import Answer, Answering
from potluck.needs import Need, needs_of
from potluck.plugins import plugin, plugins
from potluck.release import Release, releases_of
from potluck.settings import fill, flat, names_of, nested
from potluck.spaces import Choice, Range, Space
from potluck.tasks import Classification, Task
from potluck.wire.classes import classes_of

METHODS: dict[str, str] = {
    "local": "potluck.methods.local",
    "centralised": "potluck.methods.centralised",
    "centralised_clusters": "potluck.methods.centralised_clusters",
    "fedavg": "potluck.methods.fedavg",
    "fedprox": "potluck.methods.fedprox",
    "scaffold": "potluck.methods.scaffold",
    "ftl": "potluck.methods.ftl",
    "fedyogi": "potluck.methods.fedyogi",
    "fedadam": "potluck.methods.fedadam",
    "fedadagrad": "potluck.methods.fedadagrad",
    "fedavgm": "potluck.methods.fedavgm",
    "fednova": "potluck.methods.fednova",
    "feddyn": "potluck.methods.feddyn",
    "moon": "potluck.methods.moon",
    "qfedavg": "potluck.methods.qfedavg",
    "ditto": "potluck.methods.ditto",
    "fedper": "potluck.methods.fedper",
    "fedrep": "potluck.methods.fedrep",
    "fedbn": "potluck.methods.fedbn",
    "lgfedavg": "potluck.methods.lgfedavg",
    "pfedme": "potluck.methods.pfedme",
    "apfl": "potluck.methods.apfl",
    "perfedavg": "potluck.methods.perfedavg",
    "fedala": "potluck.methods.fedala",
    "fedamp": "potluck.methods.fedamp",
    "fedproto": "potluck.methods.fedproto",
    "fedem": "potluck.methods.fedem",
    "knnper": "potluck.methods.knnper",
    "ifca": "potluck.methods.ifca",
    "cfl": "potluck.methods.cfl",
    "fedcfc": "potluck.methods.fedcfc",
    "fedbits": "potluck.methods.fedbits",
    "lotteryfl": "potluck.methods.lotteryfl",
    "balancefl": "potluck.methods.balancefl",
    "centaur": "potluck.methods.centaur",
    "ap": "potluck.methods.ap",
    "ucd": "potluck.methods.ucd",
    "clusterfl": "potluck.methods.clusterfl",
    "echopfl": "potluck.methods.echopfl",
    "fedasync": "potluck.methods.fedasync",
    "fedbuff": "potluck.methods.fedbuff",
    "fedsea": "potluck.methods.fedsea",
    "oort": "potluck.methods.oort",
    "fedconv": "potluck.methods.fedconv",
    "serveralone": "potluck.methods.serveralone",
    "standalone": "potluck.methods.standalone",
    "heterofl": "potluck.methods.heterofl",
    "fedrolex": "potluck.methods.fedrolex",
    "fedmd": "potluck.methods.fedmd",
    "hermes": "potluck.methods.hermes",
    "tailorfl": "potluck.methods.tailorfl",
    "compose": "potluck.methods.compose",
}
HEADLINES = ("received", "own", "mixed")  # what `personal` may be


@dataclass(frozen=True)
class Method:
    """A method's file as the run sees it."""

    name: str
    module: ModuleType

    @property
    def summary(self) -> str:
        return (self.module.__doc__ or "").strip().splitlines()[0]

    @property
    def config(self) -> type:
        return self.module.Config  # type: ignore[no-any-return]

    @property
    def settings(self) -> list[str]:
        """The dotted names of its settings, such as `cohort` and `recipe.lr`."""
        return names_of(self.config)

    def useful(self, given: Mapping[str, Any]) -> list[str]:
        """Of its settings those that have a use beside these: all, unless the file's `useful(names, given)` says."""
        return list(getattr(self.module, "useful", lambda names, given: names)(self.settings, given))

    def suited(self, section: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Of these settings those that the method has, and the dotted names of the others."""
        given, known = flat(self.config, nested(section)), set(self.settings)
        return nested({name: given[name] for name in given if name in known}), [n for n in given if n not in known]

    @property
    def key_settings(self) -> tuple[str, ...]:
        """The few settings that matter most: what the file names in `KEY_SETTINGS`, else the first ones."""
        own = [name for name in self.settings if not name.startswith(("recipe.", "cohort", "seed"))]
        return tuple(getattr(self.module, "KEY_SETTINGS", ("recipe.lr", "recipe.epochs", *own[:3])))

    @property
    def space(self) -> Space:
        """The settings that tuning may choose, each with its range or values: `SPACE` of the file; empty without."""
        given = getattr(self.module, "SPACE", {})
        if not isinstance(given, Mapping) or not all(isinstance(one, Range | Choice) for one in given.values()):
            raise BadInput(Code.METHOD_OWN, f"method {self.name!r}: SPACE must map settings to Range or Choice.")
        for name in given:
            if name not in self.settings:
                raise unknown(Code.METHOD_OWN, f"method {self.name!r}: SPACE", name, self.settings)
        return given

    @property
    def server(self) -> ServerProgram:
        return self.module.server  # type: ignore[no-any-return]

    @property
    def programs(self) -> Mapping[type, ClientProgram]:
        return self.module.PROGRAMS  # type: ignore[no-any-return]

    @property
    def work(self) -> Mapping[type, Expectation]:
        """What tasks are expected to cost whose programs decide on the way how much to do (`potluck.fleet.Work`)."""
        return getattr(self.module, "WORK", {})

    @property
    def memory(self) -> Mapping[type, Callable[[Any, Local], int]]:
        """Bytes that tasks take on a device with a client of its own, where PyTorch's peak says nothing of it."""
        return getattr(self.module, "MEMORY", {})

    @property
    def pairs(self) -> bool:
        """Whether the method's clients may be devices with an access point each (`PAIRS = True`)."""
        return bool(getattr(self.module, "PAIRS", False))

    @property
    def needs(self) -> dict[str, Need]:
        """Settings of the experiment that the method's system needs, by dotted name (`NEEDS`)."""
        return needs_of(getattr(self.module, "NEEDS", {}))

    def uses(self, config: Any) -> tuple[str, ...]:
        """The resources that it can use with this Config: `USES`, or what the function `uses(config)` returns."""
        decide: Callable[[Any], tuple[str, ...]] | None = getattr(self.module, "uses", None)
        declared: tuple[str, ...] = getattr(self.module, "USES", ()) if decide is None else decide(config)
        return declared

    @property
    def pretrains(self) -> str | None:
        """The dotted setting for its own epochs of pre-training on the server rows, where it has one."""
        found: str | None = getattr(self.module, "PRETRAINS", None)
        return found

    def releases(self, config: Any) -> dict[type, Release] | str:
        """What its updates tell of a client (`RELEASES` or `releases`), or why that cannot be bounded or added up."""
        return releases_of(self.module, config)

    @property
    def classes(self) -> dict[str, type]:
        """The dataclasses that messages and checkpoints of this method may hold, by name."""
        return classes_of(self.module, self.name)

    def start(self, weights: Params, config: Any) -> Any:
        """The state before anything happened."""
        return self.module.start(weights, config)

    def private(self, weights: Params, config: Any) -> Any:
        """What every client keeps before its first task."""
        make: Callable[[Params, Any], Any] | None = getattr(self.module, "private", None)
        return None if make is None else make(weights, config)

    def personal(self, state: Any, client: ClientId, mine: Any) -> Params:
        """The model this client would use now: the shared one, where the method has no `personal`."""
        make: Callable[[Any, ClientId, Any], Params] | None = getattr(self.module, "personal", None)
        return self.module.shared(state) if make is None else make(state, client, mine)

    def received(self, state: Any, client: ClientId) -> Params | None:
        """The model that the server would send this client now: the shared one, where the method has no `received`.

        None where it sends no model.
        """
        make: Callable[[Any, ClientId], Params | None] | None = getattr(self.module, "received", None)
        return self.shared(state) if make is None else make(state, client)

    @property
    def answer(self) -> Answer | None:
        """How the models that it makes answer; None where they are the weights of one network."""
        return getattr(self.module, "ANSWER", None)

    def answering(self, model: Model) -> Model:
        """The model that evaluates what the method makes."""
        return model if self.answer is None else Answering(model, self.answer, self.name)

    def visible(self, state: Any, client: ClientId) -> dict[str, Any] | None:
        """The fields of the server's state that this client may see, to make its `personal` model on its own machine.

        A method names fields that are the same for all clients in `VISIBLE`, or its function `visible(state, client)`
        returns fields that it reduced to one client. None where it says neither: then what `shared` is made from.
        """
        make: Callable[[Any, ClientId], Mapping[str, Any]] | None = getattr(self.module, "visible", None)
        if make is not None:
            return dict(make(state, client))
        names: tuple[str, ...] | None = getattr(self.module, "VISIBLE", None)
        return None if names is None else {name: getattr(state, name) for name in names}

    def headline(self, config: Any) -> str:
        """What `personal` is: "received", "own", or "mixed" where it is neither.

        A method says it in `HEADLINE`, or in `headline(config)` where it depends on the settings. Without either:
        "received" where there is no `personal`, "mixed" otherwise.
        """
        make: Callable[[Any], str] | None = getattr(self.module, "headline", None)
        if make is not None:
            return make(config)
        derived = "mixed" if hasattr(self.module, "personal") else "received"
        return str(getattr(self.module, "HEADLINE", derived))

    def shared(self, state: Any) -> Params | None:
        """The one model for all, where the method has one."""
        make: Callable[[Any], Params] | None = getattr(self.module, "shared", None)
        return None if make is None else make(state)

    def clusters(self, state: Any) -> Mapping[ClientId, int]:
        """Who is with whom, where the method groups its clients."""
        make: Callable[[Any], Mapping[ClientId, int]] | None = getattr(self.module, "clusters", None)
        return {} if make is None else make(state)

    def record(self, state: Any) -> Mapping[str, Any]:
        """Figures of the method's own for the run's database, as plain JSON values by name."""
        make: Callable[[Any], Mapping[str, Any]] | None = getattr(self.module, "record", None)
        return {} if make is None else make(state)

    def check(self, config: Any, home: Local) -> None:
        """Raise BadInput, before anything runs, if the settings do not fit the model or the server's data.

        A sentence that begins with the name of a setting gets its section in front, as from `__post_init__`.
        """
        look: Callable[[Any, Local], None] | None = getattr(self.module, "check", None)
        if look is None:
            return
        try:
            look(config, home)
        except BadInput as error:
            named = str(error).partition(":")[0]
            if named not in self.settings:
                raise
            raise BadInput(error.code, f"method.{error}") from None

    def learns(self, task: Task, config: Any) -> None:
        """Raise BadInput, before anything runs, if the method cannot learn this task.

        `CLASSES` of the file says why it needs classes; the function `classes_for(config)` does where that depends on
        the settings, and returns "" where it does not need them. Without either, it learns any task.
        """
        decide: Callable[[Any], str] | None = getattr(self.module, "classes_for", None)
        why = getattr(self.module, "CLASSES", "") if decide is None else decide(config)
        if why and isinstance(task, Classification) and task.unlabelled:
            raise BadInput(Code.METHOD_TASK, f"method: {self.name} needs the label of every row: {why}.")
        if why and not task.has_classes:
            raise BadInput(Code.METHOD_TASK, f"method: {self.name} needs classes, got {task.kind}: {why}.")

    def events(self, state: Any) -> Iterable[tuple[str, str, str]]:
        """What happened in the step that gave this state: kind, client, details; for the run's event log."""
        make: Callable[[Any], Iterable[tuple[str, str, str]]] | None = getattr(self.module, "events", None)
        return () if make is None else make(state)

    def configure(self, settings: Mapping[str, Any]) -> Any:
        """Make a Config from plain settings, nested or dotted; raise BadInput for an unknown name or a wrong value."""
        return fill(self.config, nested(settings), "method")


def short_name(method: str) -> str:
    """A method's name for folders, flags and tables: `mine` for `some/mine.py` and for `package.mine`."""
    return Path(method).stem if method.endswith(".py") else method.rpartition(".")[2]


def names() -> list[str]:
    """The methods that can be used by name: Potluck's own, then those of installed packages."""
    return [*METHODS, *(name for name, one in plugins("methods", METHODS).items() if not one.clash)]


def load(name: str) -> Method:
    """Load a method by its name, by the path of your own file (`mine.py`), or by an import path (`package.module`)."""
    added = plugin("methods", name, METHODS)
    if name.endswith(".py"):
        module = _from_file(Path(name))
    elif added is not None:
        module = added.load()
    else:
        if name not in METHODS and "." not in name:
            raise unknown(Code.METHOD_UNKNOWN, "method", name, names())
        try:
            module = importlib.import_module(METHODS.get(name, name))
        except Exception as error:  # whatever a file of one's own does when it is loaded
            raise BadInput(Code.METHOD_OWN, f"method: {name!r} cannot be imported ({error}).") from error
    lacking = [part for part in ("Config", "State", "PROGRAMS", "start", "server") if not hasattr(module, part)]
    if not hasattr(module, "personal") and not hasattr(module, "shared"):
        lacking.append("personal (or shared)")
    if lacking:
        raise BadInput(Code.METHOD_OWN, f"method: {name!r} has no {', '.join(lacking)}; see docs/adding_a_method.md.")
    said = getattr(module, "HEADLINE", "mixed")
    if said not in HEADLINES:
        raise BadInput(Code.METHOD_OWN, f"method: {name!r}: HEADLINE must be received, own or mixed, got {said!r}.")
    method = Method(name, module)
    _ = method.classes  # raises BadInput for two classes of one name
    return method


def _from_file(path: Path) -> ModuleType:
    name = f"potluck_method_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise no_file(Code.METHOD_OWN, "method", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their annotations up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadInput(
            Code.METHOD_OWN, f"method: {str(path)!r} cannot be loaded ({type(error).__name__}: {error})."
        ) from error
    return module
