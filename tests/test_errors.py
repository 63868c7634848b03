"""Every refusal has a code, every code a page, and what the page shows really happens."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from potluck import errors
from potluck.cli import app
from potluck.errors import FAMILIES, BadInput, Code, Missing, install, install_extra, nearest, no_file, retold, unknown

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "errors"
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"\n]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHOUT = re.compile(r"<!-- without: (.+?) -->")
NEEDS = re.compile(r"<!-- needs: (.+?) -->")
PROGRAM = re.compile(r"<!-- needs-program: (.+?) -->")


def page(code: Code) -> str:
    return (FOLDER / f"{code}.md").read_text(encoding="utf-8")


def test_a_code_is_used_and_only_codes_are() -> None:
    source = ROOT / "src" / "potluck"
    files = [path for path in source.rglob("*.py") if path != source / "errors.py"]
    used = {name for path in files for name in re.findall(r"\bCode\.([A-Z_]+)\b", path.read_text(encoding="utf-8"))}
    assert used == set(Code.__members__)


def test_numbers_are_in_order_and_in_a_family() -> None:
    numbers = [str(code) for code in Code]
    assert numbers == sorted(set(numbers))
    assert {number[:4] for number in numbers} == set(FAMILIES)


def test_a_refusal_without_a_code_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        BadInput("stop.rounds: -1 given.")  # type: ignore[call-arg, arg-type]
    with pytest.raises(TypeError, match="needs one of the codes"):
        BadInput("PL-103", "stop.rounds: -1 given.")  # type: ignore[arg-type]


def test_a_refusal_says_its_sentence_and_knows_its_code() -> None:
    error = Missing(Code.EXTRA, "ray: not installed.")
    assert (str(error), error.code, error.told) == ("ray: not installed.", Code.EXTRA, "ray: not installed. [PL-901]")
    assert error.__notes__ == ["potluck explain PL-901"]
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - as between the processes of one run
    assert (type(again), str(again), again.code) == (Missing, str(error), Code.EXTRA)


def test_a_refusal_of_another_machine_keeps_its_code() -> None:
    for told in ("port 80 is taken. [PL-804]", "port 80 is taken. [potluck explain PL-804]\n"):
        error = retold(told, Code.DEPLOY_SERVER)
        assert (str(error), error.code) == ("port 80 is taken.", Code.PORT)
    for told in ("port 80 is taken. [PL-000]", "port 80 is taken."):
        assert retold(told, Code.DEPLOY_SERVER).code is Code.DEPLOY_SERVER
        assert str(retold(told, Code.DEPLOY_SERVER)) == told


def test_an_unknown_name_is_told_the_nearest() -> None:
    error = unknown(Code.MODEL_UNKNOWN, "model", "mpl", ("softmax", "mlp"))
    assert str(error) == "model: 'mpl' is not known, did you mean 'mlp'? Allowed: mlp, softmax."
    assert error.code is Code.MODEL_UNKNOWN


def test_a_file_that_is_not_there_is_told_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text("")
    (tmp_path / "notes.txt").write_text("")
    close = no_file(Code.EXPERIMENT_FILE, "experiment", tmp_path / "experimnt.toml")
    assert str(close).endswith(f"experimnt.toml', did you mean {str(tmp_path / 'experiment.toml')!r}?")
    for path in (tmp_path / "mine.csv", tmp_path / "nowhere" / "experiment.toml"):
        assert str(no_file(Code.DATA_FILE, "data", path)) == f"data: there is no file {str(path)!r}."


def test_a_remedy_is_for_the_python_that_runs_and_for_the_place_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pasted into the shell where the refusal was seen, it works: also where no environment is active."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    assert install("scipy>=1.11") == ".venv/bin/python -m pip install 'scipy>=1.11'"
    assert install_extra("ray") == f".venv/bin/python -m pip install -e '{ROOT}[ray]'"
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "src" / "potluck" / "errors.py"))
    assert install_extra("ray") == ".venv/bin/python -m pip install 'potluck[ray]'"  # no checkout around it
    (tmp_path / "pyproject.toml").write_text("")
    assert install_extra("ray") == ".venv/bin/python -m pip install -e '.[ray]'"
    monkeypatch.chdir(tmp_path.parent)
    assert install_extra("ray").endswith(f" -e './{tmp_path.name}[ray]'")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert install("flwr") == "/usr/bin/python3 -m pip install flwr"


def test_every_code_has_a_page_in_the_site() -> None:
    there = {path.stem for path in FOLDER.glob("PL-*.md")}
    assert there == {str(code) for code in Code}
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [code for code in Code if f"errors/{code}.md" not in site] == []


@pytest.mark.parametrize("code", Code, ids=str)
def test_a_page_has_its_parts(code: Code) -> None:
    text = page(code)
    assert text.startswith(f"# {code}: {code.title}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Why", "What to do"]
    links = re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", text)
    assert links
    assert [link for link in links if not (FOLDER / link).is_file()] == []
    assert any(kind in ("console", "pycon") for kind, _, _ in FENCE.findall(text))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page's example is tried."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("my_data", "my_model"):  # several pages have one
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def hide(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page's reader does not have: public data, programs, or a package."""
    if what == "public data":
        monkeypatch.setattr("potluck.data.load.roots", list)
    elif what == "programs":
        monkeypatch.setenv("PATH", "")
    else:
        for name in [name for name in sys.modules if name.split(".")[0] == what or name == "potluck.watch.app"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, what, None)


@pytest.mark.parametrize("code", Code, ids=str)
def test_what_a_page_shows_really_happens(code: Code, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page(code)
    for needed in NEEDS.findall(text):
        for name in needed.split(", "):
            pytest.importorskip(name, reason=f"{code} is about {name}, which is not installed")
    for program in PROGRAM.findall(text):
        if shutil.which(program) is None:
            pytest.skip(f"{code} is about {program}, which is not on this machine")
    for what in WITHOUT.findall(text):
        hide(what, monkeypatch)
    shown = 0
    for kind, file, body in FENCE.findall(text):
        if file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(body, encoding="utf-8")
        elif kind in ("console", "pycon"):
            wanted, got = (in_a_terminal if kind == "console" else in_python)(body)
            assert re.fullmatch(re.escape(wanted).replace(r"\.\.\.", ".*"), got), (
                f"{code} shows\n{wanted}\nand got\n{got}"
            )
            assert str(code) in got
            assert [line for line in got.splitlines() if "PL-" in line] == [got.splitlines()[-1]]
            shown += 1
    assert shown == 1


def in_a_terminal(body: str) -> tuple[str, str]:
    """The output that is shown after the last of the commands, and what that command gives."""
    *before, (command, wanted) = commands(body)
    for earlier, _ in before:
        done = given(earlier)
        assert done.exit_code == 0, done.output
    done = given(command)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert len(said) == 1, "one sentence"
    return wanted, said[0]


def commands(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ potluck ", body, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.strip()


def given(command: str) -> Any:
    return CliRunner().invoke(app, shlex.split(command))


def in_python(body: str) -> tuple[str, str]:
    """What is shown below the statements, and what they print or raise, as Python's own prompt tells it."""
    statements, wanted = [], []
    for line in body.splitlines():
        if line.startswith(">>> "):
            statements.append(line[4:])
        elif line.startswith("... "):
            statements[-1] += f"\n{line[4:]}"
        else:
            wanted.append(line)
    space: dict[str, Any] = {"__name__": "page"}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            for statement in statements:
                exec(compile(statement, "page", "exec"), space)
    except BadInput as error:
        return "\n".join(wanted), "\n".join([f"potluck.errors.{type(error).__name__}: {error}", *error.__notes__])
    return "\n".join(wanted), printed.getvalue().strip()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("pi4", "raspberry-pi-4"), ("nano33", "arduino-nano-33-ble-sense"), ("pixel4", "pixel-4a"),
        ("PIXEL-6", "pixel-6"), ("raspbery-pi-4", "raspberry-pi-4"), ("jetson-nanoo", "jetson-nano"),
        ("zzz", None), ("4", None),
    ],
)  # fmt: skip
def test_the_nearest_name_may_be_much_longer(given: str, meant: str | None) -> None:
    names = ["arduino-nano-33-ble-sense", "jetson-nano", "pixel-4a", "pixel-6", "raspberry-pi-4", "raspberry-pi-4-8gb"]
    assert nearest(given, names) == meant


def test_a_slip_of_the_pen_comes_before_a_longer_name() -> None:
    assert nearest("rounds", ["virtual_rounds", "round"]) == "round"
