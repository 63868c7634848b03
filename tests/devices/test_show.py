import pytest
from rich.console import Console

from potluck.devices import PRESETS, catalogue, details, links, read_devices, table, units
from potluck.errors import BadInput


def printed(renderable):
    console = Console(width=200, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_the_table_has_every_name_and_marks_estimates():
    text = printed(table())
    for name in [*catalogue(), *links(), *PRESETS]:
        assert name in text
    assert "~18.3 GMAC/s" in text
    assert " 50 MMAC/s" in text  # Centaur's own figure, no estimate


def test_details_show_each_source():
    text = printed(details("stm32f303"))
    assert "4.82 MMAC/s" in text
    assert "FedCFC Table 4" in text
    assert "FedCFC sec. 6.2" in text


def test_details_of_a_link_show_trace_and_absences():
    text = printed(details("lte-moving"))
    assert "synthetic" in text
    assert "0.85" in text
    assert "600 s" in text


def test_ones_own_devices_stand_first(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('[devices.my-pi]\nlike = "raspberry-pi-4"\n', encoding="utf-8")
    devices, own_links = read_devices(path)
    text = printed(table(devices, own_links))
    assert text.index("my-pi") < text.index("arduino-nano-33-ble-sense")
    assert "as raspberry-pi-4" in printed(details("my-pi", devices))


def test_unknown_entry():
    with pytest.raises(BadInput, match="did you mean 'jetson-nano'"):
        details("jetson-nan")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.watts(0.005), "5 mW"),
        (units.watts(7e-6), "7 µW"),
        (units.watts(322.0), "322 W"),
        (units.nbytes(999_999), "1 MB"),
        (units.nbytes(512), "512 B"),
        (units.bits(92160), "92.2 kbit/s"),
        (units.macs(5.28e11), "528 GMAC/s"),
        (units.seconds(0.0), "0 µs"),
    ],
)
def test_units(text, expected):
    assert text == expected
