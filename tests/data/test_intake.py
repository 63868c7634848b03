"""What each array or column of people's own files is taken for: said, and changed by settings."""

import csv
from pathlib import Path

import numpy as np
import pytest

from potluck.data.federate import federate
from potluck.data.intake.spec import Columns, Intake
from potluck.data.load import load
from potluck.data.spec import PartitionSpec
from potluck.errors import BadInput

DRAW = np.random.default_rng(0)
N = 96
Y = np.arange(N) % 3
BYTES = DRAW.integers(0, 255, size=(N, 128, 3)).astype(np.uint8)


def table(path: Path, header: list[str], rows: list[list[object]]) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def npz(path: Path, **arrays: object) -> str:
    np.savez(path / "own.npz", **arrays)
    return str(path / "own.npz")


def roles(data) -> dict[str, str]:
    return {one.name: one.role for one in data.taken}


def test_wrist_windows_of_bytes_with_user_and_recording(tmp_path):
    """The review's set B: bytes of shape (128, 3), `user` and `recording`."""
    arrays = {"x": BYTES, "y": Y, "user": np.repeat(np.arange(4), 24), "recording": np.tile(np.arange(8), 12)}
    data = load(npz(tmp_path, **arrays, place=np.zeros(N)))
    assert (data.kind, data.sample_shape) == ("series", (128, 3))
    assert roles(data) == {
        "x": "features",
        "y": "label",
        "user": "client",
        "recording": "recording",
        "place": "ignored",
    }
    assert len(data.natural_clients()[1]) == 4
    assert len(np.unique(data.group)) == 32  # each of four users has its own eight recordings
    notes = " ".join(data.notes)
    for words in ("'user' is taken for the client", "'recording' is taken for the recording", "Not used: place"):
        assert words in notes
    assert "Bytes of shape (128, 3) are read as a series" in notes
    federation = federate(data, PartitionSpec())
    assert federation.check.leak.touching == 0
    assert set(data.notes) <= set(federation.notes)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((28, 28), "image"), ((36, 36), "image"), ((128, 3), "series"), ((64, 16), "series"), ((64, 17), "image")],
)
def test_bytes_with_few_channels_over_time_are_a_series(tmp_path, shape, kind):
    path = npz(tmp_path, x=np.zeros((4, *shape), np.uint8), y=np.arange(4) % 2)
    assert load(path).kind == kind
    assert f"{shape}" in " ".join(load(path).notes)
    asked = load(path, Intake(kind="image"))
    assert asked.kind == "image"
    assert not any("Bytes" in note for note in asked.notes)


def test_bytes_with_times_or_lengths_are_a_series(tmp_path):
    x, y = np.zeros((4, 30, 20), np.uint8), np.arange(4) % 2
    assert load(npz(tmp_path, x=x, y=y)).kind == "image"
    assert load(npz(tmp_path, x=x, y=y, length=np.full(4, 9))).kind == "series"
    assert load(npz(tmp_path, x=x, y=y, t=np.zeros((4, 30)))).kind == "series"


def test_labels_that_look_like_a_measurement_are_said_to_be_classes(tmp_path):
    data = load(npz(tmp_path, x=DRAW.normal(size=(120, 3)), y=np.arange(120)))
    assert "each of its 120 values counts as a class" in " ".join(data.notes)
    assert not any("counts as a class" in note for note in load(npz(tmp_path, x=BYTES, y=Y)).notes)


def test_labels_that_are_whole_numbers_as_floats_may_be_classes(tmp_path):
    arrays = {"x": np.ones((N, 4)), "y": Y.astype(float), "subject": np.repeat(np.arange(4), 24)}
    data = load(npz(tmp_path, **arrays))
    assert "They are 3 whole numbers: if they are classes, set task.name = classification." in data.notes
    assert "3 whole numbers" not in " ".join(load(npz(tmp_path, **arrays | {"y": Y + 0.5})).notes)


def test_numbers_with_a_decimal_comma_are_refused(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("ax;ay;label\n" + "".join(f"0,{k % 7};{k};{'ab'[k % 2]}\n" for k in range(20)))
    with pytest.raises(BadInput, match=r"column 'ax': numbers must have a decimal point, got '0,0' with a comma\."):
        load(str(path))


def test_a_table_without_a_header_is_asked_for_one(tmp_path):
    with pytest.raises(BadInput, match=r"If these are values, give the file a header\."):
        load(table(tmp_path / "own.csv", ["1.5", "2.5", "0"], [[k / 7, k % 3, k % 2] for k in range(20)]))


def test_a_clock_among_unnamed_features_is_named(tmp_path):
    x = DRAW.normal(size=(60, 3))
    x[:, 1] = np.arange(60) / 50
    assert "Column 1 of x goes up row by row" in " ".join(load(npz(tmp_path, x=x, y=np.arange(60) % 2)).notes)


@pytest.mark.parametrize("name", ["user", "participant", "person_id", "Participant-ID", "userId", "device"])
def test_near_names_of_the_client(tmp_path, name):
    rows = [[f"p{k % 3}", k % 2, DRAW.normal()] for k in range(12)]
    data = load(table(tmp_path / "t.csv", [name, "activity", "ax"], rows))
    assert data.natural_clients()[1] == ("p0", "p1", "p2")
    assert roles(data) == {name: "client", "activity": "label", "ax": "features"}
    assert sum("because of its name" in note for note in data.notes) == 2


def test_two_near_names_are_a_question(tmp_path):
    path = table(tmp_path / "t.csv", ["user", "device", "label", "a"], [[k % 2, k % 3, k % 2, k * k] for k in range(9)])
    with pytest.raises(BadInput, match=r"'user' and 'device' could be the client; .*data\.columns\.client=NAME"):
        load(path)
    data = load(path, Intake(Columns(client=("user",))))
    assert roles(data)["device"] == "ignored"
    both = load(path, Intake(Columns(client=("user", "device"))))
    assert len(both.natural_clients()[1]) == 6
    alone = load(path, Intake(Columns(client=("none",))))
    assert alone.subject is None
    assert "Nothing says whose each row is" in " ".join(federate(alone, PartitionSpec(clients=2)).notes)
    with pytest.raises(BadInput, match=r"data\.columns\.client: 'usr' is not known, did you mean 'user'"):
        load(path, Intake(Columns(client=("usr",))))
    with pytest.raises(BadInput, match=r"data\.columns\.client: 'label' is the label already"):
        load(path, Intake(Columns(client=("label",), label=("label",))))


def readings(people: int = 3, seconds: int = 40) -> list[list[object]]:
    """timestamp, subject, label, ax, ay, az at 10 Hz; the label changes every ten seconds."""
    rows: list[list[object]] = []
    for person in range(people):
        for k in range(seconds * 10):
            label = ["walk", "run"][k // 100 % 2]
            rows.append([round(1000 * person + k / 10, 1), f"p{person}", label, *DRAW.normal(size=3).round(3)])
    return rows


HEADER = ["timestamp", "subject", "label", "ax", "ay", "az"]


def test_the_clock_of_a_raw_series_is_no_feature_and_rows_are_not_independent(tmp_path):
    data = load(table(tmp_path / "raw.csv", HEADER, readings()))
    assert data.channel_names == ("ax", "ay", "az")
    assert roles(data)["timestamp"] == "time"
    assert len(np.unique(data.group)) == 12  # four stretches of one label for each of three people
    federation = federate(data, PartitionSpec())
    assert federation.check.leak.touching == 0
    assert "cut windows: data.window.seconds=2" in " ".join(federation.notes)
    asked = load(str(tmp_path / "raw.csv"), Intake(Columns(features=("timestamp", "ax"), time=("none",))))
    assert asked.sample_shape == (2,)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ([0.1 * k for k in range(60)], "it goes up row by row"),
        (list(range(60)), "it goes up row by row"),
        ([f"2026-05-01 12:00:{k:02d}" for k in range(60)], "it holds dates"),
        (["left", "right"] * 30, "it holds text"),
    ],
)
def test_a_column_that_looks_like_a_clock_is_no_feature(tmp_path, column, why):
    rows = [[k % 4, k % 2, DRAW.normal(), value] for k, value in enumerate(column)]
    data = load(table(tmp_path / "t.csv", ["subject", "label", "ax", "foo"], rows))
    assert (data.channel_names, roles(data)["foo"]) == (("ax",), "ignored")
    assert f"The column 'foo' is not a feature: {why}" in " ".join(data.notes)


def test_a_column_t_that_does_not_go_up_is_a_feature(tmp_path):
    rows = [[k % 2, 20 + DRAW.normal()] for k in range(40)]
    assert load(table(tmp_path / "t.csv", ["label", "t"], rows)).channel_names == ("t",)


@pytest.mark.parametrize(
    ("header", "label", "features"),
    [
        (["x", "y", "z", "activity"], "activity", ("x", "y", "z")),
        (["x", "y", "z", "label"], "label", ("x", "y", "z")),
        (["X", "Y", "target"], "target", ("X", "Y")),
        (["x", "x2", "y"], "y", ("x", "x2")),
    ],
)
def test_y_beside_x_may_be_an_axis(tmp_path, header, label, features):
    """Accelerometers write x, y, z: there `y` is no label, and the note says so."""
    rows = [[*DRAW.normal(size=len(header) - 1).round(3), k % 3] for k in range(30)]
    data = load(table(tmp_path / "t.csv", header, rows))
    assert (roles(data)[label], data.channel_names, data.asks) == ("label", features, "")
    axis = any("is an axis" in note for note in data.notes)
    assert axis == (label != "y")
    asked = load(str(tmp_path / "t.csv"), Intake(Columns(label=(header[1],))))
    assert roles(asked)[header[1]] == "label"


def test_three_axes_without_a_label_are_asked_about(tmp_path):
    rows = DRAW.normal(size=(9, 3)).round(3).tolist()
    with pytest.raises(BadInput, match=r"label.* is missing. Found: 'x', 'y', 'z'. Name it with"):
        load(table(tmp_path / "t.csv", ["x", "y", "z"], rows))


def test_a_given_split_is_honoured_or_its_neglect_is_said(tmp_path):
    x = DRAW.normal(size=(60, 4))
    split = np.repeat([0, 1], [50, 10])
    data = load(npz(tmp_path, x=x, y=np.arange(60) % 2, split=split))
    federation = federate(data, PartitionSpec(clients=3))
    assert (federation.sizes.sum(), federation.test_sizes.sum()) == (50, 10)
    by_person = load(npz(tmp_path, x=x, y=np.arange(60) % 2, split=split, subject=np.arange(60) // 10))
    notes = " ".join(federate(by_person, PartitionSpec()).notes)
    assert "(50 training rows, 10 test rows) is not used, because it leaves clients without" in notes
    recordings = {"split": np.arange(60) % 2, "group": np.arange(60) // 20}
    mixed = load(npz(tmp_path, x=x, y=np.arange(60) // 2 % 2, subject=np.arange(60) // 20, **recordings))
    assert "it has recordings on both sides" in " ".join(federate(mixed, PartitionSpec()).notes)


def test_pairs_of_train_and_test_arrays_are_joined(tmp_path):
    x, y = DRAW.normal(size=(30, 4)), np.arange(30) % 2
    parts = {"X_train": x[:20], "y_train": y[:20], "X_test": x[20:], "y_test": y[20:]}
    data = load(npz(tmp_path, **parts, user_train=y[:20], user_test=y[20:]))
    np.testing.assert_allclose(data.x, x)
    assert data.split.tolist() == [0] * 20 + [1] * 10
    assert len(data.natural_clients()[1]) == 2
    assert "Joined X_train (20 rows), X_test (10 rows)" in data.notes[0]
    federation = federate(data, PartitionSpec())
    assert federation.test_sizes.sum() == 10
    with pytest.raises(BadInput, match="'X_test' has no partner for 'y_train'"):
        load(npz(tmp_path, **{key: value for key, value in parts.items() if key != "y_test"}))
    with pytest.raises(BadInput, match="y_test has 9 rows, X_test has 10"):
        load(npz(tmp_path, **{**parts, "y_test": y[21:]}))
    folder = tmp_path / "loose"
    folder.mkdir()
    for key, value in parts.items():
        np.save(folder / f"{key}.npy", value)
    assert load(str(folder)).split.sum() == 10


def test_a_folder_with_a_train_and_a_test_file(tmp_path):
    rows = [[k % 2, f"p{k % 3}", *DRAW.normal(size=2)] for k in range(30)]
    table(tmp_path / "train.csv", ["label", "subject", "a", "b"], rows[:20])
    table(tmp_path / "test.csv", ["label", "subject", "a", "b"], rows[20:])
    data = load(str(tmp_path))
    assert data.natural_clients()[1] == ("p0", "p1", "p2")
    assert data.split.sum() == 10


HOLES = np.where(DRAW.random((60, 5)) < 0.1, np.nan, DRAW.normal(size=(60, 5)) + np.arange(5) * 5)
HOLES[:, 3:] = DRAW.normal(size=(60, 2))


def with_holes(path: Path) -> str:
    rows = [["" if np.isnan(v) else v for v in row] + [k % 2, k % 3] for k, row in enumerate(HOLES)]
    return table(path / "t.csv", ["a", "b", "c", "d", "e", "label", "client"], rows)


def test_missing_values_are_counted_by_column(tmp_path):
    total, rows = int(np.isnan(HOLES).sum()), int(np.isnan(HOLES).any(axis=1).sum())
    with pytest.raises(BadInput, match=f"{total} missing values in 3 of 5 columns .*in {rows} of 60 rows") as refusal:
        load(with_holes(tmp_path))
    for name, count in zip("abc", np.isnan(HOLES).sum(axis=0), strict=False):
        assert f"{name} {count}" in str(refusal.value)
    dropped = load(str(tmp_path / "t.csv"), Intake(missing="drop"))
    assert len(dropped) == 60 - rows
    with pytest.raises(BadInput, match="'interpolate' works inside windows"):
        load(str(tmp_path / "t.csv"), Intake(missing="interpolate"))


@pytest.mark.parametrize("standardise", ["client", "global", "none"])
def test_means_come_from_the_training_rows_of_the_client_alone(tmp_path, standardise):
    data = load(with_holes(tmp_path), Intake(missing="mean"))
    federation = federate(data, PartitionSpec(), standardise=standardise)
    plain = federate(data, PartitionSpec(), standardise="none")
    for i in range(3):
        mean = np.nanmean(HOLES[federation.train_rows(i)], axis=0)
        x, *_ = plain.materialise(i, "test")
        filled = np.where(np.isnan(HOLES), mean, HOLES)[federation.test_rows(i)]
        np.testing.assert_allclose(x, filled, rtol=1e-4)
        got, *_ = federation.materialise(i, "test")
        scale = federation.scale(i)
        np.testing.assert_allclose(got, filled if scale is None else (filled - scale[0]) * scale[1], atol=1e-4)


def test_a_mask_says_what_was_measured(tmp_path):
    data = load(with_holes(tmp_path), Intake(missing="mask"))
    assert data.channel_names == ("a", "b", "c", "d", "e", "a measured", "b measured", "c measured")
    x, *_ = federate(data, PartitionSpec(), standardise="none").materialise(0)
    assert np.isfinite(x).all()
    assert set(np.unique(x[:, 5:])) == {0.0, 1.0}


def test_interpolation_stays_inside_a_window(tmp_path):
    x = np.tile(np.arange(5.0)[:, None], (6, 1, 2)).reshape(6, 5, 2)
    x[0, 2, 0] = x[1, 0, 1] = np.nan
    x[2, :, 0] = np.nan
    data = load(npz(tmp_path, x=x, y=np.arange(6) % 2), Intake(missing="interpolate"))
    assert data.x[0, 2, 0] == 2.0
    assert data.x[1, 0, 1] == 1.0  # held at the ends
    assert np.isnan(data.x[2, :, 0]).all()  # nothing to interpolate: the client's mean
    got, *_ = federate(data, PartitionSpec(clients=1)).materialise(0)
    assert np.isfinite(got).all()


def test_named_sets_have_their_own_form():
    with pytest.raises(BadInput, match=r"data\.missing: works with files of your own; the dataset 'made' has its own"):
        load("made", Intake(missing="mean"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"missing": "fill"}, r"data\.missing: 'fill' is not known"),
        ({"kind": "sound"}, r"data\.kind: 'sound' is not known"),
    ],
)
def test_settings_of_the_reading_are_checked(settings, sentence):
    with pytest.raises(BadInput, match=sentence):
        Intake(**settings)
