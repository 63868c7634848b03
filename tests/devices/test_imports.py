import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.devices import link, read_devices
from potluck.devices.imports import fedscale, flash, flash_speed, guess, habits, lumos5g, mahimahi, power_5g, ucc5g
from potluck.errors import BadInput


def test_lumos5g_has_a_value_per_line(tmp_path):
    path = tmp_path / "4g_trace_driving_1"
    path.write_text("".join(f"{k} {10.0 * (1 + k % 2)}\n" for k in range(20)))
    found = lumos5g(path)
    assert guess(path) == "lumos5g"
    assert found.mean("down") == 15
    assert found.up is None
    assert found.factors[:2] == (0.6667, 1.3333)


def test_ucc5g_averages_the_rows_of_a_second(tmp_path):
    path = tmp_path / "B.csv"
    rows = [f"2019.12.16_13.40.{k // 2:02d},{1000 * (1 + k % 2)},{500},-100,D" for k in range(30)]
    path.write_text("Timestamp,DL_bitrate,UL_bitrate,RSRP,State\n" + "\n".join(rows) + "\n")
    found = ucc5g(path)
    assert guess(path) == "ucc5g"
    assert len(found.down) == 15
    assert (found.mean("down"), found.mean("up")) == (1.5, 0.5)


def test_mahimahi_counts_packets(tmp_path):
    path = tmp_path / "drive.up"
    path.write_text("\n".join(str(1000 * k) for k in range(12) for _ in range(k)) + "\n")
    found = mahimahi(path)
    assert guess(path) == "mahimahi"
    assert found.down is None
    assert found.up[3] == pytest.approx(3 * 1500 * 8 / 1e6)
    assert found.up[0] == 0


def power_table(path):
    """Rows whose power is a straight line, another one for strong signals."""
    rng = np.random.default_rng(0)
    lines = ["nr_ssRsrp,hardware_power,downlink_Mbps,uplink_Mbps"]
    for k in range(200):
        signal, down, up = (-95, -75)[k % 2], *rng.uniform(0, 100, 2)
        base = 4000 if signal == -95 else 2000
        lines.append(f"{signal},{base + 2 * down + 10 * up},{down},{up}")
    path.write_text("\n".join([*lines, "-80,,1,1"]) + "\n")  # and an incomplete one
    return path


def test_power_by_throughput_and_signal(tmp_path):
    path = power_table(tmp_path / "mn-combined_all.csv")
    whole, weak, strong = power_5g(path)
    assert guess(path) == "power5g"
    assert (whole.signal, whole.rows, weak.rows, strong.rows) == (None, 200, 100, 100)
    for one, base in ((weak, 4.0), (strong, 2.0)):
        assert (one.base, one.down, one.up) == pytest.approx((base, 0.002, 0.010))
        assert one.error == pytest.approx(0, abs=1e-9)
    assert strong.watts(50, up=True) == pytest.approx(2.5)


def test_flash_gives_intervals_of_charging(tmp_path):
    def day(k):
        return f"2020-01-{k:02d} 23:00:00\tbattery_charged_on\n2020-01-{k + 1:02d} 06:00:00\tbattery_charged_off\n"

    lines = "".join(day(k) for k in range(1, 8)) + "2020-01-03 12:00:00\tscreen_on\nbroken line\n"
    path = tmp_path / "state_traces.json"
    path.write_text(json.dumps({"u1": {"messages": lines}, "u2": {"messages": "2020-01-01 10:00:00\tscreen_on"}}))
    users = flash(path)
    assert guess(path) == "flash"
    assert list(users) == ["u1"]
    assert users["u1"][0] == (23 * 3600, 30 * 3600)
    found = habits(users, clock=True)
    assert found.on_share == pytest.approx(7 / 24)
    assert found.period == 86_400
    assert (found.opens, found.closes) == (23.0, 6.0)


def test_fedscale_is_read_without_running_anything(tmp_path):
    path = tmp_path / "client_behave_trace"  # as it is called there
    one = {"active": [0, 100, 200], "inactive": [50, 150, 260], "finish_time": 300, "duration": 160, "model": "x"}
    path.write_bytes(pickle.dumps({1: one}))
    assert guess(path) == "fedscale"
    users = fedscale(path)
    assert users == {"1": [(0, 50), (100, 150), (200, 260)]}
    assert habits(users, clock=False).on_share == pytest.approx(0.5)

    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "touched",)

    path.write_bytes(pickle.dumps({1: Evil()}))
    with pytest.raises(BadInput, match="plain numbers"):
        fedscale(path)
    assert not (tmp_path / "touched").exists()


def test_speeds_of_users_become_one_link(tmp_path):
    def user(mean):
        return {"down_u": 4 * mean, "down_sigma": 2.0 * mean, "up_u": mean, "up_sigma": 0.5 * mean}

    path, out = tmp_path / "speed_distri.json", tmp_path / "wlan.toml"
    path.write_text(json.dumps({"a": user(1000), "b": user(4000.0)}))
    found = flash_speed(path)
    assert guess(path) == "flash-speed"
    assert (found.users, found.up, found.down) == (2, pytest.approx(2000 * 8192), pytest.approx(8000 * 8192))
    assert found.jitter == pytest.approx(np.sqrt(np.log(1.25)))  # a standard deviation of half the mean
    assert found.spread == pytest.approx(np.log(2))
    done = CliRunner().invoke(app, ["traces", str(path), "--name", "wlan", "--like", "wifi", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert read_devices(out).links["wlan"].jitter == pytest.approx(0.472)


def test_a_file_that_is_not_there_is_named(tmp_path):
    done = CliRunner().invoke(app, ["traces", str(tmp_path / "nosuch")])
    assert done.exit_code == 2
    assert "there is no file" in done.output
    assert "Errno" not in done.output


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (lumos5g, "0 fast\n", "line 1: must be a number, got 'fast'"),
        (lumos5g, "0 5\n", "must have 10 to"),
        (lumos5g, "0 0\n" * 20, "nothing was ever sent"),
        (ucc5g, "a,b\n1,2\n", "must have the columns"),
        (power_5g, "a,b\n1,2\n", "must have the columns"),
        (mahimahi, "", "must have milliseconds"),
        (flash, "[]", "must be an object"),
        (flash, "{", "must be JSON"),
        (fedscale, "no pickle", "must be a pickle"),
        (flash_speed, "{}", "a user per entry"),
        (flash_speed, '{"a": {"up_u": 0}}', "user 'a' must have up_u"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(read, content, message, tmp_path):
    path = tmp_path / "x.down"
    path.write_text(content)
    with pytest.raises(BadInput, match=message):
        read(path)


def test_the_command_writes_a_link_that_can_be_used(tmp_path):
    trace, out = tmp_path / "drive", tmp_path / "links.toml"
    trace.write_text("".join(f"{k} {5.0 + k % 3}\n" for k in range(30)))
    done = CliRunner().invoke(app, ["traces", str(trace), "--name", "bus", "--like", "lte", "--out", str(out)])
    assert done.exit_code == 0, done.output
    found = read_devices(out).links["bus"]
    assert found.down == pytest.approx(6e6)
    assert found.up == link("lte").up
    assert len(found.trace.factors) == 30
    assert "Lumos5G" in found.sources["down"]
    again = CliRunner().invoke(app, ["traces", str(trace), "--out", str(out)])
    assert again.exit_code != 0

    power = tmp_path / "power.toml"
    done = CliRunner().invoke(
        app, ["traces", str(power_table(tmp_path / "p.csv")), "--name", "phone", "--out", str(power)]
    )
    assert done.exit_code == 0, done.output
    assert read_devices(power).links["phone"].up_watts == pytest.approx(3.0 + 0.010 * 20, abs=0.2)


@pytest.mark.parametrize(("name", "sigma", "correlation"), [("5g-moving", 1.3, 0.85), ("lte-drive", 0.95, 0.905)])
def test_the_shipped_traces_have_the_statistics_of_the_measured_ones(name, sigma, correlation):
    logs = np.log(link(name).trace.factors)
    assert np.std(logs) == pytest.approx(sigma, rel=0.15)  # the ceiling takes some of it
    assert np.corrcoef(logs[:-1], logs[1:])[0, 1] == pytest.approx(correlation, abs=0.05)
