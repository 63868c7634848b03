"""A client's file: what the server's side writes for a trial, the client reads again."""

import numpy as np

from potluck.data.federate import federate
from potluck.data.intake.spec import Intake
from potluck.data.load import load
from potluck.data.spec import PartitionSpec
from potluck.deploy.client.rows import read, split_rows, write_rows

RULES = {"standardise": "client", "seed": 0, "partition": {}}


def test_missing_values_stay_missing_in_a_client_file(tmp_path):
    draw = np.random.default_rng(0)
    x = np.where(draw.random((60, 4)) < 0.1, np.nan, draw.normal(size=(60, 4)))
    np.savez(tmp_path / "all.npz", x=x, y=np.arange(60) % 2, user=np.arange(60) % 3)
    federation = federate(load(str(tmp_path / "all.npz"), Intake(missing="mean")), PartitionSpec())
    write_rows(federation, 1, tmp_path / "one.npz")
    rows = split_rows(read(str(tmp_path / "one.npz")), RULES)
    for part in ("train", "test"):
        here, *_ = rows.federation.materialise(0, part)
        there, *_ = federation.materialise(1, part)
        assert np.isfinite(here).all()
        np.testing.assert_array_equal(here, there)


def test_a_client_may_keep_a_table_with_names_of_its_own(tmp_path):
    lines = ["ax,ay,activity", *(f"{k * 7 % 11},{k * 5 % 13},{'sit' if k % 2 else 'walk'}" for k in range(30))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    assert read(str(tmp_path / "rows.csv")).class_names == ("sit", "walk")
