import numpy as np
import pytest

from potluck.data.dataset import Dataset, twins
from potluck.data.made import made
from potluck.errors import BadInput


def small(x: np.ndarray, **fields: object) -> Dataset:
    y = np.arange(len(x)) % 2
    return Dataset(**{"name": "d", "x": x, "y": y, "classes": 2, "class_names": ("a", "b"), **fields})


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "sample"),
    [
        ((4, 5), "f4", "features", (5,)),
        ((4, 8, 3), "f4", "series", (8, 3)),
        ((4, 8, 3), "i2", "series", (8, 3)),
        ((4, 28, 28), "u1", "image", (1, 28, 28)),
        ((4, 32, 30, 3), "u1", "image", (3, 32, 30)),
        ((4, 3, 32, 30), "f4", "image", (3, 32, 30)),
    ],
)
def test_the_kind_and_the_models_view_follow_from_the_array(shape, dtype, kind, sample):
    data = small(np.zeros(shape, dtype))
    assert (data.kind, data.sample_shape) == (kind, sample)


def test_a_given_kind_wins():
    data = small(np.zeros((4, 8, 3), "u1"), kind="series")
    assert data.sample_shape == (8, 3)


def test_what_cannot_be_is_refused():
    with pytest.raises(BadInput, match="subject has 3 rows, x has 4"):
        small(np.zeros((4, 5), "f4"), subject=np.zeros(3, int))
    with pytest.raises(
        BadInput,
        match=r"must be \(n, steps\) of an x of shape \(n, steps, channels\), which is \(4, 5\), got \(4, 5\)",
    ):
        small(np.zeros((4, 5), "f4"), t=np.zeros((4, 5)))
    with pytest.raises(BadInput, match="did you mean 'series'"):
        small(np.zeros((4, 5, 2), "f4"), kind="serie")
    with pytest.raises(BadInput, match="length is for series only"):
        small(np.zeros((4, 5), "f4"), length=np.ones(4, int))
    with pytest.raises(BadInput, match="shape"):
        small(np.zeros((4, 1, 2, 3, 4), "f4"))
    with pytest.raises(BadInput, match="class_names"):
        small(np.zeros((4, 5), "f4"), classes=3)


def test_clients_are_named_after_their_subjects():
    x = np.zeros((4, 5), "f4")
    assert small(x, subject=np.array([7, 7, 12, 3])).natural_clients()[1] == ("s03", "s07", "s12")
    assert small(x, subject=np.array(["b", "b", "a", "a"])).natural_clients()[1] == ("a", "b")
    position, names = small(x, subject=np.array([2, 2, 0, 0]), subject_names=("u", "v", "w")).natural_clients()
    assert names == ("u", "w")
    assert position.tolist() == [1, 1, 0, 0]
    with pytest.raises(BadInput, match="needs an array `subject`"):
        small(x).natural_clients()


def test_twins_point_to_the_first_equal_row():
    x = np.array([[1, 2], [3, 4], [1, 2], [1, 2]], "f4")
    assert small(x).twins.tolist() == [0, 1, 0, 0]


def test_the_made_set_is_the_same_every_time_and_differs_between_its_two_groups():
    a, b = made(), made()
    np.testing.assert_array_equal(a.x, b.x)
    assert a.x.shape == (720, 32, 3)
    assert a.classes == 4
    # Mean windows per class: close within a group of wearers, far from the other group's.
    means = np.stack([[a.x[(a.subject == s) & (a.y == c)].mean(axis=0) for c in range(4)] for s in (1, 3, 2)])
    means = means - means.mean(axis=(1, 2), keepdims=True)
    same, other = np.abs(means[0] - means[1]).mean(), np.abs(means[0] - means[2]).mean()
    assert other > 2 * same


def test_twins_are_found_among_many_rows_however_wide_they_are() -> None:
    draw = np.random.default_rng(0)
    for width in (7, 8, 26):  # floats: only some widths are whole numbers of eight bytes
        x = draw.standard_normal((5000, width)).astype(np.float32)
        x[4999], x[4100], x[3] = x[0], x[4099], x[0]
        found = twins(x)
        assert {int(i): int(found[i]) for i in np.flatnonzero(found != np.arange(5000))} == {3: 0, 4100: 4099, 4999: 0}
    assert twins(np.zeros((0, 4), np.float32)).tolist() == []
