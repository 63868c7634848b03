"""Write docs/reference/ and the list of errors: the command line from its own help, the experiment from the classes
that check it, the errors from their codes.

python scripts/reference.py           write these pages
python scripts/reference.py --check   say which page is out of date, and write nothing
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo
from typer.main import get_command

from potluck import methods, models
from potluck.cli import app
from potluck.cli.settings import Setting, groups_of, settings_of
from potluck.data.spec import PARTITIONS, SPLITS, PartitionSpec
from potluck.engines.local.faults import Faults
from potluck.errors import FAMILIES, Code
from potluck.runs.experiment import Experiment
from potluck.runs.sections import Section

FOLDER = Path(__file__).resolve().parents[1] / "docs"
WRITTEN = "<!-- Written by scripts/reference.py; change the code it describes, then run it again. -->\n"

COMMAND_LINE = """\
# The command line

Results go to standard output, progress and notes to standard error. So `potluck run --json > result.json` gets the
figures and nothing else. On a terminal, progress is one live line; in a log, it is a plain line every few seconds.

| exit status | means |
|---|---|
| 0 | done |
| 1 | an unexpected error; `POTLUCK_DEBUG=1` shows where |
| 2 | a file, a flag or a setting cannot be used; one sentence on standard error says which, with its code \
(`potluck explain`, [all codes](../errors/index.md)) |
| 130 | stopped by Ctrl-C; the last line says how to continue |

The first Ctrl-C stops after the present round and leaves a complete run. A second one stops at once. Either way
`potluck resume` continues the run, which ends bit-identical to an uninterrupted one.

Flags override the file, and `--set` overrides both. Values of `--set` are read as TOML (`0.1`, `true`, `[64]`,
`"a text"`). Anything else is taken as text, so quotes are rarely needed. If `--method` or `--model` names another one
than the file does, settings that the new one does not have are dropped, and a note says so.
"""

COMPARISON = """\
## How to read a comparison

Under one seed, every method gets the same clients, samples, devices, links and first weights. Each seed draws all of
that again.

* **accuracy** is the mean over clients of each client's personal model on its own test rows. **worst tenth** is the
  mean of the tenth of the clients with the lowest accuracy. `±` is the standard deviation over seeds.
* **virtual time, bytes, energy** are those of a whole run: all clients, up and down, training and sending.
* **time to x %** is the virtual time at which the mean accuracy first reached a target. The target is `--target`, or
  the highest multiple of 5 % that more than half of the methods reached under every seed. A method that missed it
  under any seed shows *not reached*, because a mean over the other seeds would flatter it.
* **against the best** is the difference in accuracy to the method with the highest mean, taken seed by seed. From
  three seeds on it has the 95 % interval of the paired t-test. If the interval contains 0, the difference is *not
  larger than the noise*. With one or two seeds there are *too few seeds to tell*. The intervals are not corrected for
  the number of methods, and the best was chosen by its mean. They warn about small differences and prove nothing.

A client whose device has too little memory does not train. It is scored with the last model it received: the shared
one, or an untrained one if nothing is shared.

`--set fedprox:method.mu=0.1` sets something for one method; that may also be its model or its stop rule. Everything
else is the same for all. A setting for all, `--set method.recipe.momentum=0.9`, goes to the methods that have it; a
note names the others. A setting that no method has is an error.

Below the table, up to three sentences say which differences are more than noise, how many clients gain and lose, and
how many more seeds a close pair needs. The report explains them under
[which differences are real](../report.md#which-differences-are-real).

`comparison.json` in the folder holds all figures: `rows` are the table, `pairs` every pair of methods, `per_client` the
clients that gain and lose, `ranks` the average ranks, `seeds_needed` the seeds for every pair.

After Ctrl-C, or to add seeds, give the same command with
`--resume`. It keeps the finished runs of the newest folder of that name and continues the others. Runs with other
settings are an error.

## The demo

`potluck demo` is the comparison in `src/potluck/demo.toml`: its settings, and the command that chose them, are there.
[The demo](../demo.md) explains its result.
"""


def command_line() -> str:
    group: Any = get_command(app)
    parts = [COMMAND_LINE, WRITTEN]
    for name, command in _leaves(group):
        parts.append(f"## `potluck {name}`\n\n{_text(command.help)}\n")
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option"]
        rows = [[f"`{p.metavar}`", _argument(p), ""] for p in arguments]
        rows += [[f"`{_flag(p)}`", p.help or "", _default(p)] for p in options]
        parts.append(_table(("", "", "default"), rows) if rows else "")
        example = (command.epilog or "").removeprefix("Example: ")
        parts.append(f"    {example}\n")
    return "\n".join([*parts, COMPARISON])


def _leaves(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command, also those of a group of commands, by its whole name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _text(docstring: str) -> str:
    return "\n".join(line.strip() for line in docstring.strip().splitlines())


def _argument(parameter: Any) -> str:
    many = "; several are allowed" if parameter.nargs == -1 else ""
    optional = "" if parameter.required else "; may be left out"
    return f"{parameter.help}{many}{optional}"


def _flag(parameter: Any) -> str:
    flag = ", ".join(parameter.opts)
    return f"{flag} {parameter.metavar}" if parameter.metavar else flag


def _default(parameter: Any) -> str:
    value = parameter.default
    return "" if value in (None, False, []) or callable(value) else f"`{value}`"


EXPERIMENT = """\
# The experiment

One TOML file defines a run, and Potluck checks all of it before anything runs. An unknown key is an error that names
the nearest one. You may leave out any section and any key. Every run keeps its own complete copy, `experiment.toml`;
running that file again gives the same bits.

    [data]
    source = "made"

    [partition]
    kind = "dirichlet"
    alpha = 0.1
    clients = 30

    [method]
    name = "fedprox"
    mu = 0.1

    [stop]
    rounds = 40
"""

MEANINGS = {
    "stop.rounds": "rounds of the server",
    "stop.virtual_seconds": "on the fleet's clock",
    "run.seed": "every random choice follows from it",
    "partition.kind": "how rows are assigned to clients, see below",
    "partition.clients": "how many; default: all subjects, the length of `sizes`, five for a scenario, else ten",
    "partition.alpha": "dirichlet: the smaller, the more the clients differ",
    "partition.classes_per_client": "classes: how many each",
    "partition.gamma": "gamma: the share of classes that two clients have in common",
    "partition.scenario": "scenario: A, B, C or D",
    "partition.seed": "of the partition alone (default: the run's seed)",
    "partition.split": "which rows are for testing, see below",
    "partition.test_share": "of each client's rows",
    "partition.gap": "tail: rows left out before the test part (default: as many as overlap)",
    "faults.late_factor": "how many times as long a late update takes",
}


def experiment() -> str:
    parts = [EXPERIMENT, WRITTEN]
    comments = {f"faults.{each.name}": each.meaning for each in settings_of(Faults)}
    for name, field in Experiment.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            parts += _sections(name, field.annotation, comments)
        else:
            parts.append({"partition": _partition, "model": _models, "method": _methods}[name]())
    return "\n".join(parts)


def _sections(name: str, section: type[Section], comments: Mapping[str, str], level: str = "##") -> Iterator[str]:
    """The table of a section, then those of the sections inside it."""
    rows = [
        [f"`{key}`", _shown(inner), _meaning(f"{name}.{key}", inner, comments)]
        for key, inner in section.model_fields.items()
    ]
    about = (section.__doc__ or "").strip()
    yield f"{level} `[{name}]`\n\n{about}\n\n{_table(('key', 'default', 'meaning'), rows)}"
    for key, inner in section.model_fields.items():
        for kind in get_args(inner.annotation):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from _sections(f"{name}.{key}", kind, comments, f"{level}#")


def _shown(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    return "not set" if value is None or value == {} else f"`{_toml(value)}`"


def _meaning(key: str, field: FieldInfo, comments: Mapping[str, str]) -> str:
    text = field.description or comments.get(key) or MEANINGS.get(key, "")
    bounds = []
    for limit in field.metadata:
        for mark, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
            if (bound := getattr(limit, mark, None)) is not None:
                bounds.append(f"{words} {bound:g}")
    return "; ".join(part for part in (text, " and ".join(bounds)) if part)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _partition() -> str:
    kinds = _table(("kind", "which client gets what"), [[f"`{name}`", text] for name, text in PARTITIONS.items()])
    splits = _table(("split", "test rows"), [[f"`{name}`", text] for name, text in SPLITS.items()])
    rows = [
        [f"`{each.name}`", _code(each.default), MEANINGS.get(f"partition.{each.name}", each.meaning)]
        for each in settings_of(PartitionSpec)
    ]
    settings = _table(("key", "default", "meaning"), rows)
    return f"## `[partition]`\n\nHow the data is assigned to clients and split.\n\n{settings}\n{kinds}\n{splits}"


def _models() -> str:
    rows = []
    for name, info in models.catalogue().items():
        settings = ", ".join(f"`{key} = {_toml(value)}`" for key, value in info.settings.items() if value is not None)
        rows.append([f"`{name}`", f"{info.about} Takes {info.takes}.", settings])
    table = _table(("name", "what it is", "settings"), rows)
    text = "`name` and the settings of that model. Without a name, a small one that suits the data."
    return f"## `[model]`\n\n{text} Your own model: `package.module:Class`.\n\n{table}"


def _methods() -> str:
    parts = [
        "## `[method]`\n\n`name` and the settings of that method. Your own method: `mine.py` or `package.module`.\n"
    ]
    for name in methods.METHODS:
        method = methods.load(name)
        settings = settings_of(method.config)
        known = {each.name for each in settings}
        key = ", ".join(f"`{one}`" for one in method.key_settings if one in known)
        parts.append(f"### `{name}`\n\n{method.summary}\n\nMost important: {key}.\n")
        parts.append(_settings([each for each in settings if not each.group]))
        for group, about in groups_of(method.config).items():
            members = [each for each in settings if each.group == group]
            if members:
                parts += [f"`{group}`: {about}\n", _settings(members)]
    return "\n".join(parts)


def _settings(settings: Iterable[Setting]) -> str:
    rows = [[f"`{each.name}`", _code(each.default), each.meaning] for each in settings]
    return _table(("key", "default", "meaning"), rows)


def _code(default: str) -> str:
    return default if default in ("not set", "must be given") else f"`{default}`"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


ERRORS = """\
# Errors

Every error is one sentence: what is wrong, where, and what is allowed, with the nearest name if a name is unknown.
A code stands at its end:

```console
$ potluck run --data made --set stop.round=5
potluck: stop.round: 'round' is not known, did you mean 'rounds'? Allowed: ... [potluck explain PL-102]
```

`potluck explain PL-102` shows the page of that code without a network. `potluck explain` lists all codes.

In Python, every such error is a `potluck.errors.BadInput`, with the sentence as its text and the code as `.code`. A
missing package, program or dataset is a `potluck.errors.Missing`, a kind of `BadInput`. Updates that a server refuses
carry their code in the run's table `tasks` (`reason`), in its events, its report and its live page.

A code never changes its meaning. `potluck doctor` finds many causes in advance.
"""


def errors() -> str:
    parts = [ERRORS, WRITTEN]
    for begins, family in FAMILIES.items():
        rows = [[f"[{code}]({code}.md)", code.title] for code in Code if str(code).startswith(begins)]
        parts.append(f"## {family}\n\n{_table(('code', 'error'), rows)}")
    return "\n".join(parts)


PAGES = {
    "reference/command_line.md": command_line,
    "reference/experiment.md": experiment,
    "errors/index.md": errors,
}


def main(check: bool) -> int:
    stale = [name for name, page in PAGES.items() if not _same(FOLDER / name, page())]
    if check:
        for name in stale:
            print(f"docs/{name} is out of date: run `python scripts/reference.py`")
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
