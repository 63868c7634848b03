import pytest
from typer.testing import CliRunner

from potluck.calibrate import measure as measuring
from potluck.calibrate.plan import Network
from potluck.cli import app
from potluck.devices import read_devices

SMALL = (Network("softmax", {"name": "softmax"}, 64), Network("mlp-8", {"name": "mlp", "hidden": [8]}, 32))


def test_each_network_is_timed_by_the_clock_that_it_is_given(monkeypatch):
    """Every step takes two seconds of a clock that stands still otherwise."""
    at = iter(range(10_000))
    speed, tasks = measuring.measure(5.0, SMALL, now=lambda: 2.0 * next(at))
    assert [task.network for task in tasks] == ["softmax", "mlp-8"]
    assert all(task.worked == 2.0 for task in tasks)
    assert all(task.ops > 0 and task.moved > 0 and task.macs > 0 for task in tasks)
    assert [speed.seconds(task) for task in tasks] == pytest.approx([2.0, 2.0], rel=0.1)


def test_the_command_writes_a_device_with_its_uncertainty(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "NETWORKS", SMALL)
    monkeypatch.setattr(measuring.measure, "__defaults__", (5.0, SMALL, *measuring.measure.__defaults__[2:]))
    out = tmp_path / "here.toml"
    done = CliRunner().invoke(app, ["measure", "here", "--like", "pixel-4a", "--seconds", "0.01", "--out", str(out)])
    assert done.exit_code == 0, done.output
    found = read_devices(out).devices["here"]
    assert found.op_seconds >= 0
    assert "left out of the fit" in found.sources["op_seconds"]
    assert found.sources["active_watts"].startswith("as pixel-4a")
    assert "median error on a network left out of the fit" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["x", "--seconds", "0"], "--seconds"), (["x", "--like", "nothing"], "device: 'nothing' is not known")],
)
def test_wrong_words_are_refused_before_anything_runs(arguments, message):
    done = CliRunner().invoke(app, ["measure", *arguments])
    assert done.exit_code != 0
    assert message in str(done.exception) + done.output
