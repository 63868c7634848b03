"""`potluck data` on people's own files, and the same settings in `potluck run`."""

import csv
import json

import numpy as np

DRAW = np.random.default_rng(0)


def write(name: str, header: list[str], rows: list[list[object]]) -> None:
    with open(name, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def test_the_card_says_what_each_column_was_taken_for(potluck, here):
    rows = [[k / 10, f"w{k // 40}", k // 10 % 2, *DRAW.normal(size=2).round(3)] for k in range(160)]
    write("t.csv", ["moment", "wearer_tag", "state", "ax", "ay"], rows)
    flags = ["--client", "wearer_tag", "--label", "state", "--time", "moment"]
    result = potluck("data", "t.csv", *flags)
    assert result.exit_code == 0, result.output
    for words in ("taken for", "data.columns.client says so", "ax, ay", "w0", "w3"):
        assert words in result.stdout
    assert "--set 'data.columns.client=" in result.stdout
    card = json.loads(potluck("data", "t.csv", *flags, "--set", "data.window.samples=5", "--json").stdout)
    assert {one["name"]: one["role"] for one in card["taken"]} == {
        "state": "label",
        "wearer_tag": "client",
        "moment": "time",
        "ax": "features",
        "ay": "features",
    }
    assert card["sample_shape"] == [5, 2]
    assert card["clients"] == 4
    refused = potluck("data", "t.csv", "--label", "stat")
    assert refused.exit_code == 2
    assert "did you mean 'state'" in refused.stderr


def test_a_run_takes_the_same_settings_and_says_what_it_decided(potluck, here):
    (here / "people").mkdir()
    for person in range(3):
        rows = [[k / 10, *DRAW.normal(size=2).round(3) + k // 50 % 2, k // 50 % 2] for k in range(200)]
        write(f"people/p{person}.csv", ["time", "ax", "ay", "activity"], rows)
    settings = ["--set", "data.window.seconds=1", "--model", "softmax", "--fleet", "pc", "--rounds", "1"]
    result = potluck("run", "--data", "people", *settings, "--name", "r")
    assert result.exit_code == 0, result.output
    assert "'activity' is taken for the label" in result.stderr
    assert "600 readings, one every 0.1 s became" in result.stderr
    again = potluck("run", "runs/r/experiment.toml", "--name", "again")
    assert again.exit_code == 0, again.output
    first, second = (json.loads((here / "runs" / name / "summary.json").read_text()) for name in ("r", "again"))
    assert first["accuracy"] == second["accuracy"]


def test_more_devices_than_clients_is_said(potluck, here):
    small = ["--data", "made", "--model", "softmax", "--method", "local", "--rounds", "1"]
    result = potluck("run", *small, "--set", "fleet.devices={raspberry-pi-4=40}", "--name", "forty")
    assert result.exit_code == 0, result.output
    said = "fleet.devices names 40 devices, but the data has 12 clients: 12 run"
    assert said in result.stderr
    assert any(said in note for note in json.loads((here / "runs/forty/summary.json").read_text())["notes"])
    assert "fleet.devices names" not in potluck("run", *small, "--set", "fleet.devices={raspberry-pi-4=12}").stderr


def test_a_fleet_may_be_a_file_of_devices(potluck, here):
    (here / "mine.toml").write_text('[devices.badge]\nlike = "raspberry-pi-4"\n')
    small = ["--data", "made", "--model", "softmax", "--method", "local", "--rounds", "1"]
    result = potluck("run", *small, "--fleet", "mine.toml", "--name", "own")
    assert result.exit_code == 0, result.output
    text = (here / "runs/own/experiment.toml").read_text()
    assert 'file = "mine.toml"' in text
    assert "badge = 1.0" in text
    assert "did you mean 'mine.toml'" in potluck("run", *small, "--fleet", "min.toml").stderr


def test_every_command_that_reads_data_takes_the_same_flags(potluck, here):
    rows = [[k / 10, f"w{k // 40}", k // 10 % 2, *DRAW.normal(size=2).round(3)] for k in range(160)]
    write("t.csv", ["moment", "wearer_tag", "state", "ax", "ay"], rows)
    flags = ["--client", "wearer_tag", "--label", "state", "--time", "moment", "--window", "0.5s"]
    result = potluck(
        "run", "--data", "t.csv", *flags, "--model", "softmax", "--fleet", "pc", "--rounds", "1", "--name", "r"
    )
    assert result.exit_code == 0, result.output
    summary = json.loads((here / "runs" / "r" / "summary.json").read_text())
    assert summary["clients"] == 4
    assert any("160 readings" in note for note in summary["notes"])  # the notes of the intake are kept
    fits = potluck("fit", "mlp", "--device", "raspberry-pi-4", "--data", "t.csv", *flags, "--json")
    assert fits.exit_code == 0, fits.output
    encoder = potluck("pretrain", "e.safetensors", "--data", "t.csv", *flags, "--model", "mlp", "--epochs", "1")
    assert encoder.exit_code == 0, encoder.output
    refused = potluck("run", "--data", "t.csv", "--window", "two")
    assert refused.exit_code == 2
    assert "--window: must be seconds, such as 2.5, got 'two'." in refused.stderr
    nothing = potluck("fit", "mlp", "--device", "raspberry-pi-4", "--label", "state")
    assert "--data: must name the file" in nothing.stderr
