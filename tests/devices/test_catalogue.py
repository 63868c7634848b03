import math
import re
from pathlib import Path

import pytest

from potluck.devices import KINDS, Mix, catalogue, device, link, links, read_devices
from potluck.errors import BadInput

DEVICE_FIGURES = ["macs_per_second", "memory", "storage", "active_watts", "idle_watts", "sleep_watts"]
LINK_FIGURES = ["up", "down", "latency", "up_watts", "down_watts"]
MAY_BE_ZERO = ["jitter", "dropout"]


@pytest.mark.parametrize("name", catalogue())
def test_every_device_figure_is_positive_and_sourced(name):
    entry = device(name)
    assert entry.kind in KINDS
    assert entry.link in links()
    assert set(entry.sources) == {*DEVICE_FIGURES, "battery"}
    assert entry.battery is not None
    assert entry.battery >= 0
    assert len(entry.sources["battery"]) > 10
    for figure in DEVICE_FIGURES:
        assert getattr(entry, figure) > 0
        assert len(entry.sources[figure]) > 10
    assert entry.idle_watts < entry.active_watts
    assert entry.sleep_watts <= entry.idle_watts


@pytest.mark.parametrize("name", links())
def test_every_link_figure_is_positive_and_sourced(name):
    entry = link(name)
    for figure in LINK_FIGURES:
        assert getattr(entry, figure) > 0
    for figure in [*LINK_FIGURES, *MAY_BE_ZERO]:
        assert 0 <= getattr(entry, figure) < math.inf
        assert len(entry.sources[figure]) > 5
    if entry.availability is not None:
        assert {"on_share", "period"} <= set(entry.sources)
    if entry.trace is not None:
        assert entry.trace.title.startswith("synthetic")


def test_every_kind_and_every_sort_of_link_is_there():
    assert {entry.kind for entry in catalogue().values()} == set(KINDS)
    assert {"ethernet", "wifi", "lte", "5g", "ble", "uart", "echopfl", "centaur-ucd", "centaur-ap"} <= set(links())
    assert link("5g").down == 10 * link("5g").up


def test_echopfl_boards_have_the_stated_relative_times():
    relative = {"jetson-orin-nano": 1, "jetson-agx-xavier": 1.2, "jetson-xavier-nx": 1.6, "jetson-nano": 4}
    pi = device("raspberry-pi-4").macs_per_second
    for name, time in relative.items():
        assert device(name).macs_per_second / pi == pytest.approx(10 / time)


def test_fedcfc_boards_take_their_printed_time():
    # Table 4: milliseconds per round, bytes of the int8 network; 125 steps, forward and backward.
    printed = {
        "arduino-nano-33-ble-sense": (373.13, 6700),
        "arduino-nano-esp32": (202.47, 6800),
        "adafruit-m4-express": (311.37, 4600),
        "stm32f303": (287.92, 3700),
    }
    for name, (milliseconds, parameters) in printed.items():
        seconds = parameters * 125 * 3 / device(name).macs_per_second
        assert 1000 * seconds == pytest.approx(milliseconds, rel=2e-3)


def test_shares_of_the_peak_are_the_stated_ones():
    assert device("raspberry-pi-4").macs_per_second / (4 * 4 * 1.5e9) == pytest.approx(0.144, abs=0.0005)
    peaks = {
        "jetson-orin-nano": 640e9,
        "jetson-agx-xavier": 705e9,
        "jetson-xavier-nx": 422.4e9,
        "jetson-nano": 118e9,
    }
    shares = [device(name).macs_per_second / peak for name, peak in peaks.items()]
    assert sum(shares) / 4 == pytest.approx(0.055, abs=0.0005)


def test_like_inherits_and_says_so():
    small, large = device("raspberry-pi-4-1gb"), device("raspberry-pi-4")
    assert small.memory < large.memory
    assert small.macs_per_second == large.macs_per_second
    assert small.sources["storage"] == "as raspberry-pi-4: Centaur sec. 3: 32 GB"


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(BadInput, match="device: 'jetson-nanu' is not known, did you mean 'jetson-nano'"):
        device("jetson-nanu")
    with pytest.raises(BadInput, match="link: 'wify' is not known, did you mean 'wifi'"):
        link("wify")


def test_the_catalogue_cannot_be_changed():
    for shipped in (catalogue(), links()):
        with pytest.raises(TypeError):
            shipped["new"] = None
        assert len(shipped) == len(list(shipped)) > 0


def test_the_example_of_the_manual(tmp_path, monkeypatch, capsys):
    manual = (Path(__file__).parents[2] / "docs" / "devices.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", manual, flags=re.S)
    own = next(text for language, text in blocks if language == "toml" and "greenhouse" in text)
    program = next(text for language, text in blocks if language == "python")
    (tmp_path / "my-devices.toml").write_text(own, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "docs/devices.md", "exec"), {})
    assert capsys.readouterr().out.strip() in {"greenhouse-node lora-mast", "office-pi wifi-upstairs"}

    devices, own_links = read_devices(tmp_path / "my-devices.toml")
    assert set(devices) == {"greenhouse-node", "office-pi"}
    assert devices["greenhouse-node"].sources["memory"] == "given in my-devices.toml"
    assert devices["office-pi"].memory == 1_500_000_000
    assert devices["office-pi"].macs_per_second == device("raspberry-pi-4").macs_per_second
    assert own_links["lora-mast"].availability.on_share == 0.9
    assert own_links["wifi-upstairs"].trace.factors == (1.0, 0.5, 0.2)
    mix = Mix.parse({"greenhouse-node": 0.8, "office-pi": 0.2}, devices=devices, links=own_links)
    assert sorted(mix.all(5)) == ["greenhouse-node"] * 4 + ["office-pi"]


def test_the_manual_names_every_preset():
    from potluck.devices import PRESETS

    manual = (Path(__file__).parents[2] / "docs" / "devices.md").read_text(encoding="utf-8")
    assert [name for name in PRESETS if f"`{name}`" not in manual] == []
