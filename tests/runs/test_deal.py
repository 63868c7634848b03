"""Rows are dealt once for many runs, and whoever runs first changes nothing for the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from potluck.runs import deal
from potluck.runs.experiment import Experiment


@pytest.fixture
def own_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A public set with a file of its own, and no deals of other tests."""
    monkeypatch.setenv("POTLUCK_DATA", str(tmp_path))
    monkeypatch.setattr(deal, "_DEALS", {})
    return written(tmp_path / "clusterfl_uwb.npz", 60)


def written(path: Path, rows: int) -> Path:
    x = np.random.default_rng(rows).normal(size=(rows, 55)).astype("f4")
    np.savez(path, x=x, y=np.arange(rows) % 2, subject=np.arange(rows) // 15)
    return path


def of(seed: int = 0, **changes: Any) -> Experiment:
    values: dict[str, Any] = {"data": {"source": "clusterfl_uwb"}, "run": {"seed": seed}, "server": {"share": 0.1}}
    return Experiment.of(values | changes)


def test_a_deal_is_kept_for_the_runs_that_ask_for_the_same(own_set: Path) -> None:
    same_split = {"partition": {"seed": 3}}
    first, servers = deal.dealt(of(0, **same_split))
    again, same_servers = deal.dealt(of(1, **same_split, method={"name": "ditto"}))
    assert again is first
    assert same_servers is servers
    assert deal.dealt(of(0))[0] is not first
    for changes in ({"server": {"share": 0.2}}, {"data": {"source": "clusterfl_uwb", "standardise": "none"}}):
        assert deal.dealt(of(0, **{**same_split, **changes}))[0] is not first
    assert len(deal._DEALS) == 2


def test_a_kept_deal_is_what_a_new_one_would_be(own_set: Path) -> None:
    for _ in range(2):
        kept, servers = deal.dealt(of())
        kept.materialise_many(range(len(kept)), "train", int(kept.sizes.max()))  # fills what it remembers
    deal._DEALS.clear()
    new, other = deal.dealt(of())
    assert new is not kept
    for part in ("train", "test"):
        for i in range(len(new)):
            (x, y, *_), (kept_x, kept_y, *_) = new.materialise(i, part), kept.materialise(i, part)
            assert np.array_equal(x, kept_x)
            assert np.array_equal(y, kept_y)
    assert servers is not None
    assert other is not None
    assert torch.equal(servers.x, other.x)


def test_a_changed_file_and_files_of_a_user_are_dealt_again(own_set: Path, tmp_path: Path) -> None:
    first = deal.federation_of(of())
    written(own_set, 90)
    assert len(deal.federation_of(of()).dataset) > len(first.dataset)
    mine = of(data={"source": str(written(tmp_path / "mine.npz", 60))})
    assert deal.federation_of(mine) is not deal.federation_of(mine)
