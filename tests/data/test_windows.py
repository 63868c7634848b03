"""Recordings cut into windows: no window crosses a client, a recording, a pause or a label, and no split leaks."""

import csv
from pathlib import Path

import numpy as np
import pytest

from potluck.data import card
from potluck.data.federate import federate
from potluck.data.intake.spec import Columns, Intake, Window
from potluck.data.load import load
from potluck.data.spec import PartitionSpec
from potluck.errors import BadInput
from potluck.units import percent

HEADER = ["time", "ax", "ay", "label"]


def write(path: Path, rows, header=HEADER) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def recording(seconds: float = 40, rate: float = 10, t: np.ndarray | None = None) -> list[list[object]]:
    """ax tells the time (see `when`), so that a test sees where a value comes from; a label lasts ten seconds."""
    stamps = np.arange(0, seconds, 1 / rate) if t is None else t
    return [[round(float(s), 4), 100 - float(s), -2 * float(s), ["sit", "walk"][int(s // 10) % 2]] for s in stamps]


def when(data) -> np.ndarray:
    """The time of every step: falling values, as a rising column would be a clock."""
    return 100 - data.x[..., 0]


def people(folder: Path, count: int = 3) -> str:
    for person in range(count):
        write(folder / f"person{person}.csv", recording())
    return str(folder)


def test_a_folder_of_recordings_becomes_windows_of_clients(tmp_path):
    data = load(people(tmp_path), Intake(window=Window(seconds=2)))
    assert (data.kind, data.sample_shape) == ("series", (20, 2))
    assert data.natural_clients()[1] == ("person0", "person1", "person2")
    assert len(data) == 3 * 4 * 9  # nine windows of two seconds, half overlapping, in each ten seconds of one label
    assert data.overlap == 1
    assert data.t is None  # regular in time
    assert len(np.unique(data.group)) == 12
    np.testing.assert_allclose(when(data)[1], np.arange(10, 30) / 10, atol=1e-4)
    assert "1200 readings, one every 0.1 s became 108 windows of 20 steps" in " ".join(data.notes)
    for split in ("auto", "group", "tail"):
        assert federate(data, PartitionSpec(split=split)).check.leak.touching == 0


def test_folders_of_clients_and_a_client_column(tmp_path):
    for person in ("ann", "bob"):
        (tmp_path / "nested" / person).mkdir(parents=True)
        for take in ("morning", "evening"):
            write(tmp_path / "nested" / person / f"{take}.csv", recording(20))
    data = load(str(tmp_path / "nested"), Intake(window=Window(samples=20, overlap=0)))
    assert data.natural_clients()[1] == ("ann", "bob")
    assert len(np.unique(data.group)) == 4  # the files are the recordings
    flat = tmp_path / "flat"
    flat.mkdir()
    for k in range(4):
        write(flat / f"{k}.csv", [[*row, f"u{k % 2}"] for row in recording(20)], [*HEADER, "user"])
    data = load(str(flat), Intake(window=Window(seconds=2)))
    assert data.natural_clients()[1] == ("u0", "u1")
    assert len(np.unique(data.group)) == 4
    write(flat / "4.csv", recording(20))
    with pytest.raises(BadInput, match=r"4\.csv: must have the columns of 0\.csv, but 'user' is in one"):
        load(str(flat))


def test_no_window_spans_a_pause_a_label_or_a_clock_that_restarts(tmp_path):
    rows = recording()
    del rows[30:60]  # three seconds are gone
    write(tmp_path / "t.csv", [*rows, *recording()])
    data = load(str(tmp_path / "t.csv"), Intake(window=Window(seconds=1)))
    np.testing.assert_allclose(when(data)[:, -1] - when(data)[:, 0], 0.9, atol=1e-4)
    assert ((when(data)[:, 0] + 0.01) // 10 == (when(data)[:, -1] + 0.01) // 10).all()
    assert "1 pauses of more than 0.5 s (data.window.gap) and where the time goes back (1 times)" in " ".join(
        data.notes
    )
    patient = load(str(tmp_path / "t.csv"), Intake(window=Window(samples=10, gap=5)))
    assert len(patient) > len(data)


@pytest.mark.parametrize(("rule", "label"), [("majority", "sit"), ("last", "walk")])
def test_label_rules(tmp_path, rule, label):
    write(tmp_path / "t.csv", recording(20))
    data = load(str(tmp_path / "t.csv"), Intake(window=Window(samples=40, overlap=0, label=rule)))
    assert len(data) == 5
    mixed = load(str(tmp_path / "t.csv"), Intake(window=Window(samples=50, overlap=0.4, label=rule)))
    at = int(
        np.flatnonzero(np.isclose(when(mixed)[:, 0], 6.0, atol=1e-3))[0]
    )  # six to eleven seconds: four of sit, one of walk
    assert mixed.class_names[mixed.y[at]] == label
    pure = load(str(tmp_path / "t.csv"), Intake(window=Window(samples=50, overlap=0.4)))
    assert not np.isclose(when(pure)[:, 0], 6.0, atol=1e-3).any()


@pytest.mark.parametrize(("rate", "steps"), [(5.0, 10), (10.0, 20), (40.0, 80)])
def test_resampling(tmp_path, rate, steps):
    write(tmp_path / "t.csv", recording())
    data = load(str(tmp_path / "t.csv"), Intake(window=Window(seconds=2, rate=rate)))
    assert data.sample_shape == (steps, 2)
    rises = np.diff(when(data), axis=1)
    assert np.median(rises) == pytest.approx(1 / rate, rel=1e-2)
    assert (rises > -1e-4).all()


def test_irregular_stamps_are_kept_and_windows_are_padded(tmp_path):
    draw = np.random.default_rng(3)
    t = np.cumsum(draw.exponential(0.1, size=400).clip(0.01, 0.45))
    write(tmp_path / "t.csv", recording(t=t))
    data = load(str(tmp_path / "t.csv"), Intake(window=Window(seconds=2)))
    assert data.t is not None
    assert data.length is not None
    assert len(set(data.length.tolist())) > 1
    for row in range(len(data)):
        end = int(data.length[row])
        np.testing.assert_allclose(when(data)[row, :end] - when(data)[row, 0], data.t[row, :end], atol=1e-3)
        assert data.t[row, end - 1] <= 2
        assert (data.x[row, end:] == 0).all()
    assert "irregular in time: their stamps are kept" in " ".join(data.notes)
    counted = load(str(tmp_path / "t.csv"), Intake(window=Window(samples=16)))
    assert counted.t.shape == (len(counted), 16)
    assert counted.length is None
    assert load(str(tmp_path / "t.csv"), Intake(window=Window(seconds=2, rate=10))).t is None


def test_a_reading_alone_between_two_pauses_is_left_out(tmp_path):
    draw = np.random.default_rng(3)
    t = np.cumsum(draw.exponential(0.1, size=400).clip(0.01, 0.45))
    t = np.concatenate([t[t < 8], [30.0], 60 + t[t < 8]])
    write(tmp_path / "t.csv", [[*row[:3], ["sit", "walk"][row[0] >= 60]] for row in recording(t=t)])
    data = load(str(tmp_path / "t.csv"), Intake(window=Window(seconds=2, gap=5)))
    assert len(np.unique(data.group)) == 2
    assert data.x.shape[1] > 20  # the padded length: a stretch need not be as long in readings
    assert f"1 of 3 stretches, with {percent(1 / len(t))} of the readings, are too short" in " ".join(data.notes)


def test_missing_readings(tmp_path):
    rows = recording()
    for k in (25, 26, 253):
        rows[k][1] = ""
    write(tmp_path / "t.csv", rows)
    path = str(tmp_path / "t.csv")
    with pytest.raises(BadInput, match=r"3 missing values in 1 of 2 columns \(ax 3\), in 3 of 400 rows"):
        load(path, Intake(window=Window(seconds=2)))
    straight = load(path, Intake(missing="interpolate", window=Window(seconds=2)))
    np.testing.assert_allclose(when(straight), -straight.x[..., 1] / 2, atol=1e-3)
    dropped = load(path, Intake(missing="drop", window=Window(seconds=2)))
    assert np.isfinite(dropped.x).all()
    assert np.allclose(np.diff(when(dropped), axis=1), 0.1, atol=1e-3)  # no window spans the hole
    marked = load(path, Intake(missing="mask", window=Window(seconds=2)))
    assert marked.channel_names == ("ax", "ay", "ax measured")
    x, *_ = federate(marked, PartitionSpec(clients=1)).materialise(0)
    assert np.isfinite(x).all()


@pytest.mark.parametrize(
    ("name", "factor", "unit"), [("time_ms", 1e3, "auto"), ("time", 1e3, "ms"), ("timestamp", 1e6, "us")]
)
def test_units_of_the_time(tmp_path, name, factor, unit):
    rows = [[round(row[0] * factor), *row[1:]] for row in recording()]
    write(tmp_path / "t.csv", rows, [name, *HEADER[1:]])
    assert load(str(tmp_path / "t.csv"), Intake(window=Window(seconds=2, unit=unit))).sample_shape == (20, 2)


def test_nanoseconds_since_1970_and_dates(tmp_path):
    start = 1_760_000_000_000_000_000
    write(tmp_path / "t.csv", [[start + round(row[0] * 1e9), *row[1:]] for row in recording()])
    assert load(str(tmp_path / "t.csv"), Intake(window=Window(seconds=2))).sample_shape == (20, 2)
    dates = [
        str(np.datetime64("2026-05-01T12:00:00.000") + np.timedelta64(round(row[0] * 1e3), "ms")) for row in recording()
    ]
    write(tmp_path / "t.csv", [[date, *row[1:]] for date, row in zip(dates, recording(), strict=True)])
    assert load(str(tmp_path / "t.csv"), Intake(window=Window(seconds=2))).sample_shape == (20, 2)


def test_readings_in_an_npz_and_a_given_split(tmp_path):
    y = np.repeat([0, 1, 0, 1], 100)
    split = np.repeat([0, 0, 1, 1], 100)
    np.savez(
        tmp_path / "r.npz", x=np.zeros((400, 3)) + np.arange(400)[:, None], y=y, t=np.arange(400) / 10, split=split
    )
    data = load(str(tmp_path / "r.npz"), Intake(window=Window(seconds=2)))
    assert data.sample_shape == (20, 3)
    assert data.split.tolist() == [0] * 18 + [1] * 18
    assert federate(data, PartitionSpec(clients=1)).test_sizes.sum() == 18


@pytest.mark.parametrize(
    ("window", "sentence"),
    [
        ({"seconds": 90}, "no stretch of readings is long enough for a window of 90 s. The longest has 100 readings"),
        ({"seconds": 0.05}, "must be two readings or more, which come every 0.1 s, got 0.05"),
        ({"seconds": 2, "samples": 3}, "data.window: must be given seconds or samples, one of them, got both"),
        ({}, "must be given seconds or samples, one of them, got neither"),
        ({"seconds": 2, "label": "first"}, "data.window.label: 'first' is not known"),
        ({"seconds": 5, "rate": 1e6, "overlap": 0.99}, "would hold .* numbers, more than"),
    ],
)
def test_windows_that_cannot_be(tmp_path, window, sentence):
    write(tmp_path / "t.csv", recording())
    with pytest.raises(BadInput, match=sentence):
        load(str(tmp_path / "t.csv"), Intake(window=Window(**window)))


def test_what_cannot_be_cut(tmp_path):
    write(tmp_path / "t.csv", [row[1:] for row in recording()], HEADER[1:])
    with pytest.raises(BadInput, match=r"data\.window\.seconds needs a column with times"):
        load(str(tmp_path / "t.csv"), Intake(Columns(features=("ax", "ay")), window=Window(seconds=2)))
    assert load(str(tmp_path / "t.csv"), Intake(Columns(features=("ax",)), window=Window(samples=20))).sample_shape == (
        20,
        1,
    )
    np.savez(tmp_path / "w.npz", x=np.zeros((4, 5, 2)), y=np.arange(4) % 2)
    with pytest.raises(BadInput, match="its rows are windows"):
        load(str(tmp_path / "w.npz"), Intake(window=Window(samples=2)))
    shuffled = np.random.default_rng(0).permutation(400)
    write(tmp_path / "t.csv", [recording()[k] for k in shuffled])
    with pytest.raises(BadInput, match=r"the time goes back in \d+ of 399 steps. Sort the rows"):
        load(str(tmp_path / "t.csv"), Intake(window=Window(seconds=2)))


def test_the_picture_shows_windows(tmp_path):
    folder = tmp_path / "people"
    folder.mkdir()
    federation = federate(load(people(folder), Intake(window=Window(seconds=2))), PartitionSpec())
    with_windows = card.picture(federation, tmp_path / "a.png").stat().st_size
    assert with_windows > 20_000


def test_a_clock_in_milliseconds_is_asked_about(tmp_path):
    rows = [[1000 * row[0], *row[1:]] for row in recording()]
    write(tmp_path / "one.csv", rows, ["timestamp", *HEADER[1:]])
    with pytest.raises(BadInput, match=r"come every 100 s, got 2. .* if they are milliseconds, set data.window.unit"):
        load(str(tmp_path / "one.csv"), Intake(window=Window(seconds=2)))
    assert load(str(tmp_path / "one.csv"), Intake(window=Window(seconds=2, unit="ms"))).sample_shape == (20, 2)
