"""Bad input by class: settings out of range, files that lie about their size, damaged runs. One sentence, status 2.

Every case asserts the same: exit status 2, one sentence with a code on standard error, no traceback, and a run folder
that is as it was before.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from potluck import files

from .conftest import SMALL, Potluck

X = np.arange(48, dtype=np.float32).reshape(12, 4) % 7
Y = np.arange(12) % 2
SUBJECT = np.arange(12) // 6


def sentence(found: Result) -> str:
    """The refusal, after checking its form."""
    said = found.stderr.strip()
    assert found.exit_code == 2, f"status {found.exit_code}: {said or found.output}"
    assert "\n" not in said, said
    assert "[potluck explain PL-" in said
    assert "unexpected" not in said
    return said


# -- settings ----------------------------------------------------------------------------------------------------------

SETTINGS = {
    "seconds without end": ("stop.virtual_seconds=inf", "stop.virtual_seconds"),
    "seconds that are no number": ("stop.virtual_seconds=nan", "stop.virtual_seconds"),
    "rounds beyond every counter": (f"stop.rounds={10**30}", "stop.rounds"),
    "a batch beyond every counter": (f"method.recipe.batch={2**70}", "method.recipe.batch"),
    "epochs beyond every counter": (f"method.recipe.epochs={10**30}", "method.recipe.epochs"),
    "an infinite learning rate": ("method.recipe.lr=inf", "method.recipe.lr"),
    "a learning rate that is no number": ("method.recipe.lr=nan", "method.recipe.lr"),
    "infinite clipping": ("method.recipe.clip=inf", "method.recipe.clip"),
    "infinitely late": ("faults.late_factor=inf", "faults.late_factor"),
    "infinite noise": ("wire.noise=inf", "wire.noise"),
    "a limit that no update meets": ("wire.limit_bytes=1", "wire.limit_bytes"),
    "joins at no moment": ("fleet.joins={s01=nan}", "fleet.joins"),
    "leaves at no moment": ("fleet.leaves={s01=nan}", "fleet.leaves"),
    "an infinite floor": ("fleet.floor_mbps=inf", "fleet.floor_mbps"),
    "infinite passes": ("fleet.passes=inf", "fleet.passes"),
    "drift at no moment": ("drift.at=[nan]", "drift.at"),
    "an infinite budget": ("budget.joules=inf", "budget.joules"),
    "a seed beyond every counter": (f"run.seed={10**30}", "run.seed"),
    "checkpoints never": ("run.checkpoint_seconds=nan", "run.checkpoint_seconds"),
    "a name with a zero byte": ('run.name="a\\u0000b"', "run.name"),
    "a name that no folder can have": (f'run.name="{"a" * 300}"', "run.name"),
    "more clients than memory": (f"partition.clients={10**9}", "partition.clients"),
    "more memory than an integer": (f"run.memory_mb={10**30}", "run.memory_mb"),
    "a hidden layer beyond memory": (f"model.hidden=[{10**9}]", "model"),
    "a hidden layer beyond every counter": (f"model.hidden=[{10**30}]", "model"),
    "a number of 5000 digits": (f"stop.rounds={'9' * 5000}", "--set"),
    "nesting without end": (f"method.recipe={'[' * 3000}{']' * 3000}", "--set"),
    "a function that ends the process": ("data.source=sys:exit", "sys:exit"),
}


@pytest.mark.parametrize(("setting", "word"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting(potluck: Potluck, here: Path, setting: str, word: str) -> None:
    base = ["--data", "made"] if not setting.startswith("data.") else []
    model = ["--model", "mlp" if setting.startswith("model.") else "softmax"]
    said = sentence(potluck("run", *base, *model, "--fleet", "pc", "--rounds", 2, "--set", setting, "--quiet"))
    assert word in said
    assert len(said) < 600  # a long value is not repeated whole
    assert not (here / "runs").exists()


def test_more_clients_than_memory(potluck: Potluck, here: Path) -> None:
    args = ["--set", "partition.kind=dirichlet", "--set", f"partition.clients={10**9}"]
    assert "partition.clients" in sentence(potluck("run", *SMALL, *args, "--quiet"))


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5000 + "]" * 5000, "[stop]\nrounds = " + "9" * 5000, "[data]\nsource = '\ud800'"],
    ids=["nesting", "digits", "a lone surrogate"],
)
def test_an_experiment_file(potluck: Potluck, here: Path, text: str) -> None:
    (here / "e.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert "e.toml" in sentence(potluck("run", "e.toml", "--quiet"))


# -- data --------------------------------------------------------------------------------------------------------------


def declared(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """An .npy file that declares a shape and holds hardly anything."""
    head = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + b"\0" * 64


def archive(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)


def npy(array: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


def lies_about_size(path: Path) -> None:
    archive(path, x=declared((10**15, 4)), y=npy(Y), subject=npy(SUBJECT))


def lies_with_too_many_axes(path: Path) -> None:
    archive(path, x=declared((2**40, 2**40)), y=npy(Y), subject=npy(SUBJECT))


def bomb(path: Path) -> None:
    """A few kilobytes that declare and unpack to far more memory than the machine has."""
    archive(path, x=declared((12, 10**12 // 48)), y=npy(Y), subject=npy(SUBJECT))


def encrypted(path: Path) -> None:
    archive(path, x=npy(X), y=npy(Y), subject=npy(SUBJECT))
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1  # the flag that says: encrypted
            at = data.find(mark, at + 4)
    path.write_bytes(bytes(data))


def surrogate(path: Path) -> None:
    np.savez(path, x=X, y=Y, subject=np.where(SUBJECT == 0, "a\ud800", "b"))


def names_twice(path: Path) -> None:
    np.savez(path, x=X, y=Y, subject=SUBJECT, class_names=np.array(["walks", "walks"]))


NPZ = (lies_about_size, lies_with_too_many_axes, bomb, encrypted, surrogate, names_twice)


@pytest.mark.parametrize("make", NPZ, ids=lambda make: make.__name__)
def test_an_archive(potluck: Potluck, here: Path, make: Callable[[Path], None]) -> None:
    make(here / "mine.npz")
    for command in (
        ["run", "--data", "mine.npz", "--model", "softmax", "--rounds", 1, "--quiet"],
        ["data", "mine.npz"],
    ):
        assert "mine.npz" in sentence(potluck(*command))
    assert not (here / "runs").exists()


def test_a_folder_whose_file_lies_about_its_size(potluck: Potluck, here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "x.npy").write_bytes(declared((10**15, 4)))
    np.save(here / "mine" / "y.npy", Y)
    assert "mine" in sentence(potluck("run", "--data", "mine", "--model", "softmax", "--rounds", 1, "--quiet"))


@pytest.mark.parametrize("text", ["\n\n\n", " \n \n", ",,\n,,\n,,\n", "a,b,label\n\n\n"], ids=repr)
def test_a_csv_of_blanks(potluck: Potluck, here: Path, text: str) -> None:
    (here / "mine.csv").write_text(text)
    assert "mine.csv" in sentence(potluck("run", "--data", "mine.csv", "--model", "softmax", "--quiet"))


@pytest.mark.parametrize("kind", ["lists", "bytes", "structs"])
def test_a_table_of_odd_cells(potluck: Potluck, here: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    cells = {"lists": [[1.0, 2.0]] * 12, "bytes": [b"\xff\xfe"] * 12, "structs": [{"a": 1}] * 12}[kind]
    table = pa.table({"a": cells, "label": list(Y), "subject": list(SUBJECT)})
    parquet.write_table(table, here / "mine.parquet")
    assert "mine.parquet" in sentence(potluck("run", "--data", "mine.parquet", "--model", "softmax", "--quiet"))


# -- deployments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["", " ", "küche", "not a host", "a" * 300, "-x", "host:80", "a..b"])
def test_a_host_that_is_none(potluck: Potluck, here: Path, host: str) -> None:
    pytest.importorskip("flwr")
    assert "--host" in sentence(potluck("deploy", "init", "--host", host, "--client", "s01"))
    assert not (here / "deploy").exists()


# -- damaged runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(potluck: Potluck, here: Path) -> Path:
    """A run of three rounds that was told to stop after them, so that it can go on."""
    np.savez(here / "mine.npz", x=np.tile(X, (4, 1)), y=np.tile(Y, 4), subject=np.repeat(np.arange(4), 12))
    args = ["--data", "mine.npz", "--model", "softmax", "--fleet", "pc", "--rounds", 3, "--quiet"]
    found = potluck("run", *args, "--set", "run.checkpoint_seconds=0", "--name", "r")
    assert found.exit_code == 0, found.output
    return here / "runs" / "r"


def sql(*statements: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        with sqlite3.connect(run / "run.db") as db:
            for statement in statements:
                db.execute(statement)
        db.close()

    return change


def replaced(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes(data) and None


def cut(name: str, share: float) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        data = (run / name).read_bytes()
        (run / name).write_bytes(data[: int(len(data) * share)])

    return change


def a_folder(name: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / name).unlink()
        (run / name).mkdir()

    return change


def edited(old: str, new: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / "experiment.toml").read_text()
        assert old in text
        (run / "experiment.toml").write_text(text.replace(old, new))

    return change


def other_data(run: Path) -> None:
    with np.load("mine.npz") as held:
        arrays = dict(held)
    arrays["x"] = arrays["x"] + np.float32(0.5)
    np.savez("mine.npz", **arrays)


def fewer_clients(run: Path) -> None:
    with np.load("mine.npz") as held:
        arrays = {name: value[:36] for name, value in held.items()}
    np.savez("mine.npz", **arrays)


CHECKPOINT = "checkpoint/state.safetensors"
DAMAGE = {
    "no database": (lambda run: (run / "run.db").unlink(), "run.db"),
    "an empty database": (replaced("run.db", b""), "run.db"),
    "a database of noise": (replaced("run.db", b"no database at all" * 300), "run.db"),
    "half a database": (cut("run.db", 0.5), "run.db"),
    "a database without its last step": (
        sql("DELETE FROM steps WHERE step = 3", "DELETE FROM tasks WHERE step = 3"),
        "run.db",
    ),
    "a database without a table": (sql("DROP TABLE tasks"), "run.db"),
    "a database with another table": (sql("DROP TABLE tasks", "CREATE TABLE tasks (step, number)"), "run.db"),
    "a database with other figures": (sql("UPDATE steps SET bytes_up = bytes_up + 1 WHERE step = 2"), "run.db"),
    "a database that is a folder": (a_folder("run.db"), "run.db"),
    "a checkpoint that is a folder": (a_folder(CHECKPOINT), "checkpoint"),
    "an empty checkpoint": (replaced(CHECKPOINT, b""), "checkpoint"),
    "a checkpoint of noise": (replaced(CHECKPOINT, b"\xff" * 4000), "checkpoint"),
    "half a checkpoint": (cut(CHECKPOINT, 0.5), "checkpoint"),
    "an empty experiment": (replaced("experiment.toml", b""), "experiment"),
    "an experiment of noise": (replaced("experiment.toml", b"\xff\xfe"), "experiment"),
    "an experiment that is a folder": (a_folder("experiment.toml"), "experiment"),
    "another model": (edited('name = "softmax"', 'name = "mlp"'), "experiment"),
    "another seed": (edited("seed = 0", "seed = 1"), "experiment"),
    "another method": (edited('name = "fedavg"', 'name = "fedprox"'), "experiment"),
    "other numbers in the data": (other_data, "mine.npz"),
    "fewer clients in the data": (fewer_clients, "mine.npz"),
}


def contents(folder: Path) -> dict[str, str]:
    """Every file of a run by its hash; what SQLite leaves beside a database while it is open does not count."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-wal", "-shm", ".lock"))
    }


@pytest.mark.parametrize(("damage", "word"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_run_is_not_continued_nor_changed(
    potluck: Potluck, run: Path, damage: Callable[[Path], None], word: str
) -> None:
    damage(run)
    before = contents(run)
    assert word in sentence(potluck("resume", run, "--rounds", 5, "--quiet"))
    assert contents(run) == before


READERS = (["report"], ["export", "--to", "csv"], ["figures"])
SHOWN = [(command, what) for command in (*READERS, ["log"]) for what in ("a database of noise", "half a database")]
SHOWN += [(command, "a database without a table") for command in READERS]  # `log` does not read the tasks


@pytest.mark.parametrize(("command", "what"), SHOWN, ids=lambda one: one if isinstance(one, str) else one[0])
def test_a_damaged_run_is_not_shown(potluck: Potluck, run: Path, command: list[str], what: str) -> None:
    DAMAGE[what][0](run)
    sentence(potluck(command[0], run, *command[1:]))


@pytest.mark.parametrize("summary", ["[]", "3", "{", "{}", '{"ended": 3}', '{"accuracy": 3}', "\xff"])
def test_runs_are_listed_beside_a_damaged_one(potluck: Potluck, run: Path, summary: str) -> None:
    shutil.copytree(run, run.with_name("well"))
    (run / "summary.json").write_text(summary, encoding="latin-1")
    found = potluck("runs", run.parent, "--json")
    assert found.exit_code == 0, found.output
    assert {row["run"]: row["accuracy"] is not None for row in json.loads(found.stdout)}["well"]


def test_a_disk_that_cannot_be_written(potluck: Potluck, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes, **options: bool) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "write_bytes", full)
    assert "No space left" in sentence(potluck("resume", run, "--rounds", 5, "--quiet"))
