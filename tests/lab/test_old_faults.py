"""Faults that Potluck once had, or could have, put back by a patch of its source: the lab finds every one."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from potluck import files
from potluck.engines.flower.client import journal
from potluck.engines.flower.server import members, tasks
from potluck.lab import Lab, shrink
from potluck.runs import drive, record
from potluck.wire import codec, gate

MOST = 200  # federations until each is found


def patched(holder: Any, name: str, *changes: tuple[str, str]) -> Callable[[pytest.MonkeyPatch], None]:
    """Put other text into the source of a function; fails where the text is not there any more."""

    def put_back(monkeypatch: pytest.MonkeyPatch) -> None:
        function = getattr(holder, name)
        source = textwrap.dedent(inspect.getsource(function))
        for now, then in changes:
            assert now in source, f"{name} has changed: {now!r} is not in it"
            source = source.replace(now, then)
        space = dict(function.__globals__)
        exec(compile("from __future__ import annotations\n" + source, f"<old {name}>", "exec"), space)
        monkeypatch.setattr(holder, name, space[name])

    return put_back


def both(*all_of: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: [one(monkeypatch) for one in all_of] and None


def imported(function: Callable[[pytest.MonkeyPatch], None], source: Any, into: Any, name: str) -> Any:
    """A patch of a function that another module has imported by name."""

    def put_back(monkeypatch: pytest.MonkeyPatch) -> None:
        function(monkeypatch)
        monkeypatch.setattr(into, name, getattr(source, name))

    return put_back


no_net = patched(tasks.Tasks, "_finish", ("except Exception as error", "except ZeroDivisionError as error"))
OLD: dict[str, tuple[Any, str, str]] = {
    "rows of run.db are not flushed before the checkpoint": (
        patched(record.Recorder, "seal", ("synchronous=FULL", "synchronous=NORMAL")),
        "local",
        "fedavg",
    ),
    "files are written in place": (
        patched(files, "write_bytes", ('path.with_name(f".{path.name}.{os.getpid()}.part")', "path")),
        "local",
        "fedavg",
    ),
    "rows after the checkpoint stay": (
        patched(record.Recorder, "rewind", ("DELETE FROM {table} WHERE step > ?", "SELECT ? FROM {table}")),
        "local",
        "fedavg",
    ),
    "a resumed run forgets what its driver counted": (
        patched(drive._Drive, "restore", ('DriveState(**saved["progress"])', "DriveState(step=self.done.step)")),
        "local",
        "fedavg",
    ),
    "a tensor of eight bits ends the server": (
        both(no_net, patched(gate, "finite", ("rows.float() if rows.element_size() < 4 else rows", "rows"))),
        "wire",
        "fedavg",
    ),
    "a number of 400 digits ends the server": (
        both(
            no_net,
            imported(
                patched(codec, "decode", ("except Exception as error", "except (ValueError, KeyError) as error")),
                codec,
                tasks,
                "decode",
            ),
        ),
        "wire",
        "fedavg",
    ),
    "a greeting is not checked": (
        patched(members.Members, "_greet", ("except BadInput as error", "except ZeroDivisionError as error")),
        "wire",
        "fedavg",
    ),
    "a refused task leaves its private state": (
        patched(
            journal.Journal,
            "mine",
            ("return self.finished(ticket).mine", "return self.finished(self._index()[-1][0]).mine"),
        ),
        "wire",
        "scaffold",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", OLD)
def test_the_lab_finds(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_back, engine, method = OLD[fault]
    plain = Lab([method], [engine])
    put_back(monkeypatch)
    lab = Lab([method], [engine])
    found = next((one for one in lab.search(0, MOST) if one is not None), None)
    assert found is not None, f"not found in {MOST} federations"
    short = shrink(found.scenario, lambda scenario: lab.broken(scenario) is not None, most=40)
    assert len(short.faults) <= 3, short.line
    monkeypatch.undo()
    assert plain.broken(short) is None, "it fails without the fault, too"
