"""People's own files: what is right loads by path, what is wrong gets one sentence that names it."""

import csv
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from potluck.data.federate import federate
from potluck.data.load import load
from potluck.data.spec import PartitionSpec
from potluck.errors import BadInput, Missing

X = np.random.default_rng(0).normal(size=(12, 5, 2)).astype(np.float32)
Y = np.arange(12) % 3


def npz(folder: Path, **arrays: object) -> str:
    path = folder / "own.npz"
    np.savez(path, **{"x": X, "y": Y, **{k: v for k, v in arrays.items() if v is not None}})
    if "y" in arrays and arrays["y"] is None:
        np.savez(path, x=X)
    return str(path)


def test_an_npz_without_subject_runs_by_path(tmp_path):
    data = load(npz(tmp_path))
    assert (data.name, data.kind, data.sample_shape, data.classes) == ("own", "series", (5, 2), 3)
    assert data.class_names == ("0", "1", "2")
    assert len(federate(data, PartitionSpec(clients=3))) == 3


def test_an_npz_with_everything(tmp_path):
    t = np.cumsum(np.ones((12, 5)), axis=1)
    data = load(
        npz(
            tmp_path,
            y=np.array(["walk", "run"] * 6),
            subject=np.array(["zoe", "ann", "ann"] * 4),
            t=t,
            length=np.full(12, 4),
            split=np.array(["train", "test"] * 6),
            group=np.repeat(["r1", "r2", "r3"], 4),
            overlap=1,
        )
    )
    assert data.class_names == ("run", "walk")
    assert data.y.tolist() == [1, 0] * 6
    assert data.natural_clients()[1] == ("ann", "zoe")
    assert data.split.tolist() == [0, 1] * 6
    assert data.group.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert (data.overlap, data.t.shape, data.length.tolist()) == (1, (12, 5), [4] * 12)


def test_labels_with_gaps_are_numbered_anew_and_names_may_be_given(tmp_path):
    data = load(npz(tmp_path, y=np.array([5, 9, 5] * 4)))
    assert data.y.tolist() == [0, 1, 0] * 4
    assert data.class_names == ("5", "9")
    named = load(npz(tmp_path, y=np.array([0, 2, 0] * 4), class_names=np.array(["a", "b", "c"])))
    assert (named.classes, named.y.tolist()) == (3, [0, 2, 0] * 4)


def test_one_channel_over_time_and_one_feature(tmp_path):
    assert load(npz(tmp_path, x=X[:, :, 0], t=np.tile(np.arange(5), (12, 1)))).sample_shape == (5, 1)
    assert load(npz(tmp_path, x=np.arange(12.0))).sample_shape == (1,)
    assert load(npz(tmp_path, x=np.arange(12) > 5)).x.dtype == np.float32


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"y": None}, "the array 'y' is missing"),
        ({"y": Y[:-1]}, "y has 11 rows, x has 12"),
        ({"y": Y - 1}, "y: must be labels from 0 on, got -1 in row 0"),
        ({"y": np.zeros(12, int)}, r"y: must be of two classes or more, got one \(0\)"),
        ({"y": Y + np.where(Y > 0, np.nan, 0.0)}, "8 of 12 rows have no label, first in row 1"),
        ({"y": np.zeros((12, 2, 2))}, r"y has shape \(12, 2, 2\)"),
        (
            {"x": np.where(X[3, 1, 0] == X, np.nan, X)},
            r"1 missing value in 1 of 2 columns \(column 0 1\), in 1 of 12 rows, first in row 3",
        ),
        ({"x": np.where(X[4, 0, 0] == X, np.inf, X)}, "x has a value that is infinite .* .first in row 4."),
        ({"x": X.astype(np.float64) * 1e300}, "too large for float32"),
        ({"x": np.array(["a"] * 12)}, "x: must be numbers, got <U1 values"),
        ({"x": X.astype(complex)}, "x: must be numbers, got complex128 values"),
        ({"x": X[:0], "y": Y[:0]}, "x holds no samples"),
        ({"x": np.zeros((12, 0))}, "its samples are empty"),
        (
            {"x": np.zeros((12, 1, 2, 3, 4))},
            "or .n, height, width, colours.*got .12, 1, 2, 3, 4",
        ),
        (
            {"x": np.array([np.zeros(2), np.zeros(3)], dtype=object)},
            "x holds Python objects, which are not unpickled",
        ),
        ({"subject": np.arange(5)}, "subject has 5 rows, x has 12"),
        ({"subject": np.array(["a", " "] * 6)}, "subject is empty in row 1"),
        ({"subject": Y, "subject_names": ["a", "b", "c", "d"]}, "subject d of subject_names has no samples"),
        ({"subject": Y, "subject_names": ["a", "b"]}, "subject runs from 0 to 2, but subject_names has 2 entries"),
        ({"subject": Y, "subject_names": ["a", "b", "a"]}, "subject_names has a name twice"),
        ({"class_names": ["a", "b"]}, "y goes up to 2, but class_names has 2 entries"),
        ({"length": np.full(12, 6)}, "length: must be from 1 to 5, the steps of x, got 6 to 6"),
        ({"length": np.array(["x"] * 12)}, "length: must be whole numbers, got text"),
        ({"t": np.tile([0, 2, 1, 3, 4], (12, 1))}, "t goes back in time in row 0"),
        (
            {"t": np.zeros((12, 4))},
            r"must be \(n, steps\) of an x of shape \(n, steps, channels\), which is \(12, 5, 2\), got \(12, 4\)",
        ),
        ({"split": np.full(12, 3)}, "split: must be 0 or train, 1 or test, 2 or valid, got '3'"),
        ({"split": np.zeros(12, int)}, "split must have train and test rows, got no test rows"),
        ({"overlap": -1}, r"overlap: must be one whole number from 0 on \(rows that overlap the next ones\), got -1"),
        ({"kind": "imag"}, "did you mean 'image'"),
        (
            {"group": np.arange("2020-01", "2021-01", dtype="datetime64[M]")},
            r"group: must be numbers or text, got datetime64\[M\] values",
        ),
    ],
)
def test_a_broken_npz_gets_one_sentence_with_file_and_field(tmp_path, arrays, sentence):
    path = npz(tmp_path, **arrays)
    with pytest.raises(BadInput, match=sentence) as refusal:
        load(path)
    assert str(refusal.value).startswith((path, "own:"))
    assert "\n" not in str(refusal.value)


def test_files_that_are_no_files_of_ours(tmp_path, monkeypatch):
    def refused(name: str, content: bytes, sentence: str) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BadInput, match=sentence):
            load(str(path))

    refused("empty.npz", b"", "the file is empty")
    refused("text.npz", b"hello", "this is not an .npz archive")
    whole = Path(npz(tmp_path)).read_bytes()
    refused("cut.npz", whole[: len(whole) // 2], "not an .npz archive .* or it is cut short")
    damaged = bytearray(whole)
    damaged[200:260] = bytes(60)
    refused("damaged.npz", bytes(damaged), "damaged")
    refused("data.txt", b"1 2 3", "must be a folder or a file ending in .npz, .csv, .parquet, got '.txt'")
    refused("empty.csv", b"", "the file is empty")
    refused("latin.csv", b"label,caf\xe9\n1,2\n", "not a CSV file in UTF-8")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("readme.txt", "no arrays here")
    with pytest.raises(BadInput, match="is not an array"):
        load(str(tmp_path / "other.npz"))
    with pytest.raises(BadInput, match="there is no file"):
        load(str(tmp_path / "nowhere.npz"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.npz").write_bytes(b"")
    with pytest.raises(BadInput, match=r"neither a known set nor a file, did you mean 'mine\.npz'"):
        load("mine.np")
    with pytest.raises(BadInput, match="neither a known set nor a file, did you mean 'uci_har'"):
        load("uci_hra")


def test_an_array_that_claims_more_than_there_is(tmp_path):
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive, archive.open("x.npy", "w") as file:
        shape = {"descr": "<f8", "fortran_order": False, "shape": (1 << 50, 4)}
        np.lib.format.write_array_header_1_0(file, shape)
    with pytest.raises(BadInput, match=r"x\.npy declares 36028797018963968 bytes and holds 128"):
        load(str(tmp_path / "huge.npz"))


def test_a_slip_in_a_name_is_pointed_out(tmp_path):
    np.savez(tmp_path / "own.npz", xx=X, y=Y)
    with pytest.raises(BadInput, match=r"'x' is missing, did you mean 'xx' to be it.* data.columns.features=NAME"):
        load(str(tmp_path / "own.npz"))
    np.savez(tmp_path / "own.npz", X=X, y=Y)
    data = load(str(tmp_path / "own.npz"))
    assert data.sample_shape == (5, 2)
    assert "The array 'X' is taken for the features because of its name" in data.notes[0]


def test_a_folder_with_one_npz_per_client(tmp_path):
    for name, rows in (("kitchen", slice(0, 5)), ("attic", slice(5, 12))):
        np.savez(
            tmp_path / f"{name}.npz",
            x=X[rows],
            y=np.array(["a", "b", "c"])[Y[rows]],
            group=np.zeros(len(Y[rows])),
        )
    data = load(str(tmp_path))
    assert data.natural_clients()[1] == ("attic", "kitchen")
    assert len(np.unique(data.group)) == 2
    np.testing.assert_array_equal(data.x, np.concatenate([X[5:], X[:5]]))
    assert data.class_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"x": X[:, :4], "y": Y}, r"b.npz: x has samples of shape \(4, 2\), those of a.npz are \(5, 2\)"),
        ({"x": X[:0], "y": Y[:0]}, "b.npz: client b has no samples"),
        ({"x": X}, "b.npz: the array 'y' is missing"),
        ({"x": X, "y": Y[:3]}, "b.npz: y has 3 rows, x has 12"),
        (
            {"x": X, "y": Y, "group": Y},
            "a.npz: the array 'group' is missing, other files of the folder have it",
        ),
    ],
)
def test_a_folder_whose_files_disagree(tmp_path, second, sentence):
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    np.savez(tmp_path / "b.npz", **second)
    with pytest.raises(BadInput, match=sentence):
        load(str(tmp_path))


def test_an_empty_folder(tmp_path):
    with pytest.raises(BadInput, match=r"holds no \.npz files"):
        load(str(tmp_path))


def test_a_folder_of_npy_files_stays_on_disk(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    data = load(str(tmp_path))
    assert isinstance(data.x, np.memmap)
    got, *_ = federate(data, PartitionSpec(clients=2), standardise="none").materialise(0)
    assert got.shape[1:] == (5, 2)
    np.save(tmp_path / "y.npy", np.array([None] * 12), allow_pickle=True)
    with pytest.raises(BadInput, match=r"y\.npy: this is not a plain \.npy file"):
        load(str(tmp_path))


def write_csv(path: Path, header: list[str], rows: list[list[object]], separator: str = ",") -> str:
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=separator).writerows([header, *rows])
    return str(path)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_with_a_client_and_a_label_column(tmp_path, separator):
    rows = [[f"dev{k % 2}", "on" if k % 3 else "off", k, k * 0.5] for k in range(8)]
    data = load(write_csv(tmp_path / "t.csv", ["client", "label", "ax", "ay"], rows, separator))
    assert data.natural_clients()[1] == ("dev0", "dev1")
    assert data.class_names == ("off", "on")
    np.testing.assert_allclose(data.x[3], [3, 1.5])
    assert data.x.dtype == np.float32


def test_numbers_in_a_csv_are_numbers(tmp_path):
    rows = [[k, k % 2, 7 + k % 3, "train" if k % 2 else "test", 3] for k in range(8)]
    data = load(write_csv(tmp_path / "t.csv", ["f", "Y", "Subject", "split", "group"], rows))
    assert data.natural_clients()[1] == ("s07", "s08", "s09")
    assert data.y.tolist() == [0, 1] * 4
    assert data.split.tolist() == [1, 0] * 4


@pytest.mark.parametrize(
    ("header", "rows", "sentence"),
    [
        (["a", "client"], [[1, 2]], "a column 'label' or 'y' with the labels is missing"),
        (["label", "client"], [[1, 2]], "no feature columns"),
        (["label", "a", "a"], [[1, 2, 3]], "the column 'a' appears twice"),
        (["label", "y", "a"], [[1, 2, 3]], "label and y both say y"),
        (["label", "a"], [[0, 1], [1, "warm"]], "column 'a' has 'warm', which is not a number .data row 2."),
        (["label", "a"], [[0, 1], [1, ""]], r"1 missing value in 1 of 1 columns \(a 1\), .* first in data row 2"),
        (["label", "a"], [[0, 1], [1, "nan"]], "1 missing value in 1 of 1 columns.*first in data row 2"),
        (["label", "a"], [[0, 1], [1, "inf"]], "column 'a' is infinite in data row 2"),
        (["label", "a"], [[0, 1], ["", 2]], "1 of 2 rows have no label, first in row 1"),
        (["label", "a"], [[0, 1], [1]], "data row 2 has 1 fields, the header has 2"),
        (["label", "a"], [], "the table has no rows"),
    ],
)
def test_a_broken_csv(tmp_path, header, rows, sentence):
    with pytest.raises(BadInput, match=sentence):
        load(write_csv(tmp_path / "t.csv", header, rows))


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    client = pa.array(["p", "q"] * 4).dictionary_encode()
    parquet.write_table(pa.table({"client": client, "label": [0, 1] * 4, "a": [float(k) for k in range(8)]}), path)
    data = load(str(path))
    assert data.natural_clients()[1] == ("p", "q")
    np.testing.assert_allclose(data.x[:, 0], np.arange(8))
    parquet.write_table(pa.table({"label": [0, 1], "a": [1.0, None]}), path)
    with pytest.raises(BadInput, match=r"1 missing value in 1 of 1 columns \(a 1\)"):
        load(str(path))
    parquet.write_table(pa.table({"label": [0, 1], "a": pa.array([0, 1], pa.timestamp("s"))}), path)
    with pytest.raises(BadInput, match="no feature columns beside a, label"):
        load(str(path))
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(BadInput, match="not a Parquet file"):
        load(str(path))


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Missing, match=r"-m pip install .*\[frames\]'"):
        load(str(tmp_path / "t.parquet"))


MODULE = """
import numpy as np
from potluck.data import Dataset
x, y = np.zeros((6, 2), "f4"), np.arange(6) % 2
def pair(): return x, y
def triple(): return x, y, np.array(["u", "v"] * 3)
def mapping(): return {"x": x, "y": y, "subject": None}
def whole(): return Dataset("mine", x, y, 2, ("a", "b"))
def text(): return "hello"
def ragged(): return [[1], [1, 2]], y
def crash(): raise RuntimeError("sensor offline")
number = 3
"""


def test_a_function_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "my_own_data.py").write_text(MODULE)
    (tmp_path / "my_bad_data.py").write_text("import nowhere_to_be_found")
    (tmp_path / "my_ugly_data.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    try:
        assert load("my_own_data:pair").subject is None
        assert load("my_own_data:triple").natural_clients()[1] == ("u", "v")
        assert load("my_own_data:mapping").name == "mapping"
        assert load("my_own_data:whole").name == "mine"
        for source, sentence in {
            "my_own_data:pear": "did you mean 'pair'",
            "my_own_data:number": "data: my_own_data:number: must be a function, got a int",
            "my_own_data:text": "must return a Dataset.*got a str",
            "my_own_data:ragged": "returned something that is not an array",
            "my_own_data:crash": "failed with RuntimeError: sensor offline",
            "my_own_data:": "must be of the form package.module:function",
            "my_none_data:f": "there is no module 'my_none_data'",
            "my_bad_data:f": "there is no module 'nowhere_to_be_found'",
            "my_ugly_data:f": "importing it failed with ZeroDivisionError",
        }.items():
            with pytest.raises(BadInput, match=sentence):
                load(source)
    finally:
        for name in ("my_own_data", "my_bad_data", "my_ugly_data"):
            sys.modules.pop(name, None)
    assert str(tmp_path) not in sys.path
