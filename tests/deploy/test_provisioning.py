"""Forty clients from a table, and services that systemd accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from potluck.deploy import commands
from potluck.deploy.layout import ClientFolder, Deployment, Start
from potluck.deploy.table import read_clients
from potluck.deploy.units import unit
from potluck.errors import BadInput

TABLE = "name,data,device,access_point\n" + "\n".join(f"pi{k:02d},/srv/rows.npz,raspberry-pi-4," for k in range(40))


def test_forty_clients_from_a_table(tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text(TABLE)
    place = Deployment(tmp_path / "deploy", "192.0.2.7")
    fresh = commands.make(place, ["extra"], table=read_clients(tmp_path / "clients.csv")[0])
    assert len(fresh) == 41
    one = ClientFolder.read(place.client("pi07"))
    assert one.start == Start("/srv/rows.npz", "raspberry-pi-4", "")
    assert one.server == "192.0.2.7:9092"
    assert (place.client("pi07") / "key").stat().st_mode & 0o077 == 0
    keys = {(place.client(name) / "key").read_bytes() for name in place.names}
    assert len(keys) == 41
    again = commands.make(place, ["pi07"])  # a later init keeps what the table said
    assert again == []
    assert ClientFolder.read(place.client("pi07")).start.device == "raspberry-pi-4"


def test_what_is_registered_is_written_for_the_server(tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text("name,rows\na,120\nb,\n")
    table, most = read_clients(tmp_path / "clients.csv")
    place = Deployment(tmp_path / "deploy")
    commands.make(place, ["c"], table=table, rows=most | {"c": 7})
    assert {name: one["rows"] for name, one in commands.registered(place).items()} == {"a": 120, "c": 7}
    commands.make(place, ["d"])  # a later init keeps it
    assert commands.registered(place)["a"]["rows"] == 120


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name\n", "must be a table with a row per client"),
        ("device\npixel-4a\n", "needs a column 'name'"),
        ("name,devise\na,b\n", "did you mean 'device'"),
        ("name\na\na\n", "has 'a' twice, again in data row 2"),
        ("name,rows\na,many\n", "rows of 'a': must be a whole number"),
    ],
)
def test_a_table_with_a_mistake(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "clients.csv").write_text(text)
    with pytest.raises(BadInput, match=sentence):
        read_clients(tmp_path / "clients.csv")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [("a/b,,", "letters, digits, dots, dashes"), ("a,,raspberry-pie-4", "did you mean 'raspberry-pi-4'")],
)
def test_nothing_is_made_of_a_bad_row(tmp_path: Path, row: str, sentence: str) -> None:
    (tmp_path / "clients.csv").write_text(f"name,data,device\n{row}\n")
    with pytest.raises(BadInput, match=sentence):
        commands.make(Deployment(tmp_path / "deploy"), [], table=read_clients(tmp_path / "clients.csv")[0])
    assert not (tmp_path / "deploy").exists()


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file"):
        read_clients(tmp_path / "clients.csv")


@pytest.mark.parametrize("kind", ["server", "client"])
def test_systemd_accepts_the_unit(tmp_path: Path, kind: str) -> None:
    text = unit(kind, tmp_path, "pi07", user="root", runs=tmp_path / "runs")
    assert f"deploy {kind} --folder {tmp_path}" in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    path = tmp_path / f"potluck-{kind}.service"
    path.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
    assert path.name not in done.stderr, done.stderr


def test_a_folder_that_systemd_would_misread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="without blanks"):
        unit("client", tmp_path / "my client", "a")
