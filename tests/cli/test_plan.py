from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import potluck
from potluck.cli import app
from potluck.errors import BadInput

FORTY = ["plan", "--fleet", "mixed", "--clients", "40"]
QUICK = ["fedavg", "fedbuff", "--budget", "local_passes=4", "--seeds", "2"]


def test_forty_devices_of_many_kinds_without_data(tmp_path: Path) -> None:
    wish = ["--wish", "at most 1 MB per device and day", "--out", str(tmp_path / "plan.html")]
    result = CliRunner().invoke(app, [*FORTY, *QUICK, *wish, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["data"], found["clients"], set(found["methods"])) == (None, 40, {"fedavg", "fedbuff"})
    fedavg = found["methods"]["fedavg"]
    assert len(fedavg["devices"]) == len(fedavg["day"]["devices"]) > 5
    assert sum(one["clients"] for one in fedavg["devices"]) == 40
    for one in fedavg["day"]["devices"]:
        assert one["joules"]["idle"] > 0
        assert one["most_bytes"] <= 1e6 * (1 + 1e-9)
    assert fedavg["day"]["limit"] == "bytes"
    assert fedavg["unfit"] == 6
    assert "all clients can train" in fedavg["shrink"][-1]
    assert fedavg["prediction"] is None
    assert "without data" in found["recommendation"]["because"][0]
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "fedbuff" in page
    assert "http" not in page.replace("http-equiv", "")


def test_it_says_it_in_words() -> None:
    result = CliRunner().invoke(
        app, ["plan", "local", "fedavg", "--fleet", "boards", "--clients", "5", *QUICK[2:], "-q"]
    )
    assert result.exit_code == 0, result.output
    for words in ("5 clients, sizes only", "A day of fedavg, per client", "fedavg is the cheapest", "mains"):
        assert words in result.output


def test_what_cannot_run_is_said_and_left_out() -> None:
    found = potluck.plan(
        {
            "fleet": {"devices": "microcontrollers"},
            "partition": {"clients": 5},
            "model": {"name": "mlp", "hidden": [900]},
        },
        ["fedavg", "local"],
        seeds=1,
        rows=10,
    )
    assert not found.able
    assert "too little memory" in found.methods[0].why_not or "cannot hold the model" in found.methods[0].why_not
    assert found.advice.use == "No method can run here."
    assert found.json()["methods"]["fedavg"].keys() == {"why_not", "shrink"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--shape", "wide"], "--shape: must be"),
        (["--classes", "1"], "--classes: must be"),
        (["--wish", "cheap"], "--wish: must be such as"),
        (["--fleet", "moon"], "fleet.devices"),
        (["--link", "string"], "link"),
        (["--rows", "1000000"], "--rows: must be"),
        (["nomethod"], "nomethod"),
    ],
)
def test_bad_input_gets_one_sentence(given: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["plan", *given, "--json"])
    assert result.exit_code == 2
    assert said in result.output + str(result.stderr)
    assert "Traceback" not in result.output


def test_a_wish_that_means_nothing_is_refused_in_python() -> None:
    with pytest.raises(BadInput):
        potluck.plan({}, ["fedavg"], wishes=["soon"])


@pytest.mark.parametrize("flag", ["--shape=12x3", "--classes=3", "--rows=20"])
def test_sizes_beside_data_are_refused(flag: str) -> None:
    done = CliRunner().invoke(app, ["plan", "fedavg", "--data", "made", flag])
    assert done.exit_code == 2
    assert "are for plans without data" in done.output
