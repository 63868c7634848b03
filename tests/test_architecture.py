"""Who may know whom, read from the imports, and a few things no file may do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

SOURCE = Path(__file__).parents[1] / "src" / "potluck"
FILES = sorted(SOURCE.rglob("*.py"))

LONGEST = 350  # lines: what a person reads in one sitting


def module_of(path: Path) -> str:
    """`potluck.engines.local.fleet`; a package is its `__init__`."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in FILES}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


NAMED = re.compile(r"potluck(?:\.\w+)+")


def named(path: Path) -> Iterator[str]:
    """Modules of potluck that a string names: for importlib, an entry point, a Flower app, `python -m`.

    They are imports too, only later, so the same rules hold for them. Docstrings do not count.
    """
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            for name in NAMED.findall(node.value):
                whole = next((m for m in (name, name.rpartition(".")[0]) if m in MODULES and m != "potluck"), None)
                if whole is not None:
                    yield whole


def imports(path: Path) -> Iterator[str]:
    """Every module of potluck that a file imports: also inside functions, for types only, and named in strings."""
    yield from named(path)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "potluck")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written out in full"
            if node.module and node.module.split(".")[0] == "potluck":
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield whole if whole in MODULES else node.module


def part_of(module: str) -> str:
    """The part of the house a module belongs to: `engines`, `methods`, `fleet`, …"""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


GROUND = {"errors", "files", "keys", "metrics", "plugins", "sizes", "units"}  # known to all
LEARNING = {
    "fleet",
    "learn",
    "release",
    "privacy",
    "secure",
    "tensors",
    "_fused",
    "models",
    "tasks",
    "settings",
    "spaces",
    "needs",
}

# What each part may know, besides itself and the ground. style.md: cli -> runs -> {methods, engines, data, models,
# devices}; methods never know an engine, a run, data or devices; engines never know a method or a run.
MAY_KNOW: dict[str, set[str]] = {
    "errors": set(),
    "plugins": set(),
    "keys": {"compiled"},
    "units": set(),
    "metrics": set(),
    "tasks": set(),
    "files": set(),
    "sizes": set(),
    "fleet": set(),
    "settings": set(),
    "spaces": set(),
    "needs": set(),
    "unforeseen": set(),
    "_flops": set(),
    "_peak": set(),
    "_merging": {"compiled"},
    "rows": {"compiled"},
    "tensors": {"fleet", "rows", "_merging"},
    "models": {"fleet", "settings", "tasks"},
    "_whole": set(),
    "_batches": {"fleet", "_whole", "compiled"},
    "_descent": {"fleet", "_batches"},
    "_first_layer": set(),
    "_fused": {"fleet", "models", "_descent", "_first_layer", "_whole", "compiled"},
    "_recurrent": {"fleet", "models", "_descent", "_whole", "compiled"},
    "_convolved": {"fleet", "models", "_descent", "_whole", "compiled"},
    "_planes": {"compiled"},
    "_outputs": {"fleet", "models", "tasks", "rows", "compiled", "_convolved", "_whole"},
    "compiled": set(),
    "_few_labels": {"fleet", "models", "tasks", "_batches"},
    "learn": {
        "fleet",
        "models",
        "tasks",
        "_few_labels",
        "_convolved",
        "_fused",
        "_recurrent",
        "_batches",
        "_descent",
        "_dpsgd",
        "tensors",
    },
    "wire": {"fleet", "rows"},
    "devices": set(),
    "data": {"tasks", "compiled"},
    "methods": {"fleet", "learn", "release", "tasks", "tensors", "models", "spaces", "needs", "unforeseen", "_peak"}
    | {"_planes", "_convolved", "_outputs", "compiled", "rows", "_whole"},
    "release": {"fleet"},
    "secure": {"devices"},
    "privacy": {"fleet", "release", "tensors", "learn", "models"},
    "_dpsgd": {"fleet", "_batches", "_descent"},
    "engines": {"fleet", "rows", "wire", "devices", "learn", "models", "compiled"}
    | {"_merging", "_peak", "_flops", "_whole"},
    "firmware": {"fleet", "learn", "tasks", "methods", "models", "engines", "devices"},
    "report": {"runs"},
    "runs": {"firmware", "methods", "engines", "data", "devices", "wire", "_outputs", "compiled", *LEARNING},
    "demo": {"runs", "report", "methods", "data"},
    "deploy": {"firmware", "runs", "report", "methods", "engines", "data", "devices", "wire", *LEARNING},
    "tune": {"runs", "methods", "data", *LEARNING},
    "choose": {"runs", "report", "methods", "engines", "data", "devices"},
    "planner": {
        "compiled",
        "choose",
        "runs",
        "report",
        "tune",
        "methods",
        "engines",
        "data",
        "devices",
        "unforeseen",
        "wire",
        *LEARNING,
    },
    "studies": {"runs", "methods", "engines", "data", "devices", *LEARNING},
    "watch": {"runs", "report"},
    "export": {"runs", "report", "models", "fleet", "tasks"},
    "cli": {"demo", "firmware", "runs", "report", "studies", "deploy", "methods", "data", "devices", *LEARNING}
    | {"watch", "export", "testing", "tune", "choose", "lab", "planner", "calibrate"},
    # The public battery makes runs of a method on the local engine and, in one process, on the Flower engine.
    "testing": {"runs", "deploy", "methods", "engines", "data", "wire", *LEARNING},
    "lab": {"testing", "runs", "deploy", "methods", "engines", "fleet"},
    "": {"report", "runs", "deploy", "planner"},  # `import potluck`: run, resume, plan, and which engines there are
    "sklearn": {"runs"},
    "calibrate": {"runs", "deploy", "engines", "fleet", "devices", "wire", "compiled", "_peak", "_batches"},
    "__main__": {"cli"},
}
# Exceptions, each with its reason.
ALLOWED = {
    ("potluck.report.pictures.centaur", "potluck.methods.parts.centaur.mobility"),  # the day that its picture draws
    ("potluck.methods", "potluck.settings"),  # the list of methods fills a Config from plain settings
    ("potluck.methods", "potluck.wire.classes"),  # and finds the messages a method's file declares
}


def test_each_part_knows_only_what_it_may() -> None:
    wrong = []
    for path in FILES:
        module = module_of(path)
        part = part_of(module)
        assert part in MAY_KNOW, f"{module}: say in this test whom the new part {part!r} may know"
        for other in imports(path):
            if (module, other) in ALLOWED or part_of(other) in {part, *MAY_KNOW[part], *GROUND}:
                continue
            if other == "potluck" and part in ("cli", "report", "deploy"):  # the version
                continue
            wrong.append(f"{module} imports {other}")
    assert not wrong


def test_the_fleet_knows_nobody() -> None:
    assert list(imports(SOURCE / "fleet.py")) == []


def knows(folder: str) -> set[str]:
    """The parts that the files of a folder import."""
    return {part_of(other) for path in (SOURCE / folder).rglob("*.py") for other in imports(path)}


def test_a_method_knows_neither_engine_nor_run() -> None:
    """Said apart, because it is the one idea: the same file runs on every engine."""
    assert not knows("methods") & {"engines", "runs", "data", "devices", "cli", "report"}


def test_an_engine_knows_no_method() -> None:
    assert not knows("engines") & {"methods", "runs", "data", "cli", "report"}


ENGINES = ("local", "flower", "serial")


def test_an_engine_knows_no_other_engine() -> None:
    """What engines share is in `potluck.engines` itself, and that knows none of them."""
    wrong = []
    for path in (SOURCE / "engines").rglob("*.py"):
        own = path.relative_to(SOURCE / "engines").parts[0]
        others = tuple(f"potluck.engines.{engine}" for engine in ENGINES if engine != own)
        wrong += [f"{module_of(path)} imports {other}" for other in imports(path) if other.startswith(others)]
    assert not wrong


def test_imports_named_in_strings_are_seen() -> None:
    """`potluck run` starts other processes by the names of modules: an arrow like any other."""
    assert "potluck.engines.local.worker_process" in named(SOURCE / "engines" / "local" / "workers.py")
    assert "potluck.deploy.server.app" in named(SOURCE / "deploy" / "server" / "control.py")
    assert not list(named(SOURCE / "fleet.py"))  # its docstrings name modules too


def test_imports_go_round_in_no_circle() -> None:
    """Imports at the top of files; a few inside functions break circles on purpose."""
    wants = {
        module_of(path): {
            whole if (whole := f"{node.module}.{alias.name}") in MODULES else str(node.module)
            for node in tree(path).body
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "potluck"
            for alias in node.names
        }
        for path in FILES
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join([*trail[trail.index(module) :], module])
        if module not in done:
            for other in wants.get(module, ()):
                if other != module:
                    visit(other, (*trail, module))
            done.add(module)

    for module in wants:
        visit(module, ())


def test_a_file_is_short_enough_to_read() -> None:
    lines = {module_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert not {module: count for module, count in lines.items() if count > LONGEST}


def test_a_module_says_what_it_is() -> None:
    assert not [module_of(path) for path in FILES if tree(path).body and not ast.get_docstring(tree(path))]


def names_used(path: Path) -> Iterator[tuple[int, str]]:
    """Dotted names that are called or passed on, with their lines: `torch.manual_seed`, `np.random.seed`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id


UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def unpickling(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names.append(str(node.module))
        yield from (name for name in names if name.split(".")[0] in UNPICKLERS)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            yield "torch.load"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield "allow_pickle"


def test_nothing_is_unpickled() -> None:
    """But the demo's data file, whose hash is checked and whose unpickler can build arrays only, and public traces of
    availability, whose unpickler can build no class at all."""
    found = {module_of(path): used for path in FILES if (used := set(unpickling(path)))}
    assert found == {"potluck.data.exercises": {"pickle"}, "potluck.devices.imports.availability": {"pickle"}}


# PyTorch's initialisers know the global generator only: models set it from a key, under a lock, and put it back.
GLOBAL_RANDOMNESS_ALLOWED = {"potluck.models.model": {"torch.manual_seed"}}
DRAWING = {
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson",
    "rand_like", "randn_like", "randint_like", "manual_seed", "seed", "dropout",
}  # fmt: skip
KEYED = {"Generator", "Philox", "SeedSequence", "BitGenerator"}  # of numpy.random: no state that anybody shares


def drawing(path: Path) -> Iterator[str]:
    """Uses of a global generator."""
    for line, name in names_used(path):
        head, _, last = name.rpartition(".")
        if (
            (head in ("torch", "torch.random", "F", "torch.nn.functional") and last in DRAWING)
            or (head in ("np.random", "numpy.random") and last not in KEYED)
            or head == "random"
        ) and name not in GLOBAL_RANDOMNESS_ALLOWED.get(module_of(path), ()):
            yield f"{module_of(path)}, line {line}: {name}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import) and "random" in {alias.name for alias in node.names}:
            yield f"{module_of(path)}, line {node.lineno}: import random"


def test_nobody_draws_from_a_global_generator() -> None:
    """Whoever needs randomness takes a key (potluck.keys)."""
    assert not [use for path in FILES for use in drawing(path)]


def test_no_machine_of_ours_is_named() -> None:
    """Paths of one machine have no place in the package; the optional data lie at ../shared/datasets."""
    ours = ("/home/", "/root/", "/Users/", "/work/", "/tmp/")
    texts = [
        f"{module_of(path)}: {node.value}"
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(ours)
    ]
    assert not texts


def test_every_tested_module_exists() -> None:
    """tests/ mirrors src/potluck/: folders have the same names."""
    here = Path(__file__).parent
    for folder in (path for path in here.rglob("*") if path.is_dir() and any(path.glob("test_*.py"))):
        assert (SOURCE / folder.relative_to(here)).is_dir(), folder
