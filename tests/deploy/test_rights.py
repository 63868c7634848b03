"""Keys that are revoked, replaced or expire, and what the supervisor does about them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr", reason="needs the extra flower")

from potluck.cli import app
from potluck.deploy import commands, rights
from potluck.deploy.layout import Deployment
from potluck.deploy.server.control import flower_key
from potluck.deploy.server.supervisor import Supervisor
from potluck.errors import BadInput


class Flower:
    """Stands for the SuperLink: a key that was taken away is never taken again."""

    def __init__(self) -> None:
        self.there: dict[bytes, tuple[int, str]] = {}
        self.gone: set[bytes] = set()

    def keys(self) -> dict[bytes, tuple[int, str]]:
        return dict(self.there)

    def register(self, name: str, key: bytes) -> None:
        assert key not in self.there
        assert key not in self.gone
        self.there[key] = (len(self.there) + len(self.gone), name)

    def unregister(self, node: int) -> None:
        key = next(key for key, (number, _) in self.there.items() if number == node)
        del self.there[key]
        self.gone.add(key)


def deployed(folder: Path) -> tuple[Deployment, Flower, Supervisor]:
    place = Deployment(folder)
    commands.make(place, ["a", "b"])
    return place, Flower(), Supervisor(place, lambda sentence: None)


def tended(place: Deployment, flower: Flower, supervisor: Supervisor) -> list[str]:
    supervisor._register(flower, rights.allowed(place))  # type: ignore[arg-type]
    return sorted(name for _, name in flower.there.values())


def test_a_revoked_key_is_taken_away_and_a_new_one_let_in(tmp_path: Path) -> None:
    place, flower, supervisor = deployed(tmp_path)
    assert tended(place, flower, supervisor) == ["a", "b"]
    rights.revoke(place, "a")
    assert tended(place, flower, supervisor) == ["b"]
    assert len(json.loads((place.server / "known_keys.json").read_text())) == 1
    old = (place.client("a") / "key").read_bytes()
    rights.rotate(place, "a")
    assert (place.client("a") / "key").read_bytes() != old
    assert (place.client("a") / "key").stat().st_mode & 0o077 == 0
    assert tended(place, flower, Supervisor(place, lambda sentence: None)) == ["a", "b"]  # also after a restart
    assert flower_key((place.client("a") / "key.pub").read_bytes()) in flower.there


def test_a_key_is_replaced_while_it_is_valid(tmp_path: Path) -> None:
    place, flower, supervisor = deployed(tmp_path)
    tended(place, flower, supervisor)
    before = flower_key((place.client("b") / "key.pub").read_bytes())
    rights.rotate(place, "b", days=2)
    assert tended(place, flower, supervisor) == ["a", "b"]
    assert before in flower.gone


def test_a_key_expires(tmp_path: Path) -> None:
    place, _, _ = deployed(tmp_path)
    rights.rotate(place, "a", days=2)
    now = datetime.datetime.now(datetime.UTC)
    assert sorted(rights.allowed(place, now)) == ["a", "b"]
    assert sorted(rights.allowed(place, now + datetime.timedelta(days=3))) == ["b"]


def test_a_folder_that_was_moved_away_keeps_its_key(tmp_path: Path) -> None:
    place, flower, supervisor = deployed(tmp_path)
    tended(place, flower, supervisor)
    place.client("a").rename(tmp_path / "elsewhere")
    assert tended(place, flower, supervisor) == ["a", "b"]


def test_the_commands(tmp_path: Path) -> None:
    deployed(tmp_path)
    run, here = CliRunner(), ["--folder", str(tmp_path)]
    assert run.invoke(app, ["deploy", "revoke", "a", *here]).exit_code == 0
    assert run.invoke(app, ["deploy", "rotate", "b", "--days", "90", *here]).exit_code == 0
    told = json.loads(run.invoke(app, ["deploy", "keys", "--json", *here]).stdout)
    assert told["a"]["state"] == "revoked"
    assert told["b"]["state"] == "valid"
    assert told["b"]["until"]
    assert "revoked" in run.invoke(app, ["deploy", "keys", *here]).stdout


def test_what_cannot_be(tmp_path: Path) -> None:
    place, _, _ = deployed(tmp_path)
    with pytest.raises(BadInput, match="client"):
        rights.revoke(place, "nobody")
    with pytest.raises(BadInput, match="--days: must be 1 to 3650"):
        rights.rotate(place, "a", days=0)
    with pytest.raises(BadInput, match="has no keys"):
        rights.revoke(Deployment(tmp_path, insecure=True), "a")


def test_keys_of_a_new_deployment_can_end_by_themselves(tmp_path: Path) -> None:
    """Clients that were there before keep theirs."""
    folder = ["--folder", str(tmp_path / "d")]
    assert CliRunner().invoke(app, ["deploy", "init", "--client", "a", *folder]).exit_code == 0
    assert CliRunner().invoke(app, ["deploy", "init", "--client", "b", "--days", "30", *folder]).exit_code == 0
    place = Deployment.read(tmp_path / "d")
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=31)
    assert set(rights.allowed(place)) == {"a", "b"}
    assert set(rights.allowed(place, later)) == {"a"}


@pytest.mark.parametrize(("more", "said"), [(["--days", "0"], "1 to 3650"), (["--days", "9", "--insecure"], "no keys")])
def test_days_that_make_no_sense_are_refused_before_anything_is_written(
    more: list[str], said: str, tmp_path: Path
) -> None:
    ended = CliRunner().invoke(app, ["deploy", "init", "--client", "a", "--folder", str(tmp_path / "d"), *more])
    assert ended.exit_code == 2
    assert said in ended.output
    assert not (tmp_path / "d").exists()
