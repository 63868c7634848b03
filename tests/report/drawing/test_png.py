"""The figures as files."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.made_runs import flat, made_run, with_classes, with_clusters

from potluck import report
from potluck.errors import BadInput

PNG = b"\x89PNG\r\n\x1a\n"


STANDARD = (
    "accuracy_by_rounds",
    "accuracy_by_time",
    "accuracy_by_bytes",
    "accuracy_by_joules",
    "accuracy_of_clients",
    "trade_off_time",
    "trade_off_joules",
    "trade_off_bytes",
    "time_against_bytes",
    "differences",
    "client_gains",
)


def test_the_standard_figures(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, method, seed, flat(0.3, 0.6)) for method in ("local", "fedavg") for seed in (0, 1)]
    made = report.write_figures(runs, tmp_path / "figures")
    assert [path.name for path in made] == [f"{name}.png" for name in STANDARD]
    for path in made:
        assert path.read_bytes().startswith(PNG)


def test_three_methods_have_a_rank_plot(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, method, seed, flat(0.3, 0.6)) for method in ("local", "fedavg", "ftl") for seed in (0, 1)
    ]
    made = report.write_figures(runs, tmp_path / "figures")
    assert [path.name for path in made] == [f"{name}.png" for name in (*STANDARD, "average_ranks")]


def test_ranks_over_several_datasets(tmp_path: Path) -> None:
    """One comparison for each dataset; a method that is missing somewhere leaves that dataset out."""
    found = {}
    for i in range(6):
        methods = {"local": 0.5, "fedavg": 0.6 + 0.01 * i, "ftl": 0.63}
        runs = [made_run(tmp_path / str(i), method, 0, flat(value)) for method, value in methods.items()]
        found[f"data {i}"] = report.compare(runs if i < 5 else runs[:2])
    ranked = report.ranks_over_datasets(found)
    assert ranked is not None
    assert ranked.average == {"ftl": 1.3, "fedavg": 1.7, "local": 3.0}  # they tie once, fedavg wins once
    assert (len(ranked.blocks), ranked.left_out) == (5, ["data 5"])
    assert report.write_rank_plot(ranked, tmp_path / "ranks.png").read_bytes().startswith(PNG)
    assert report.write_rank_plot(ranked, tmp_path / "ranks.pdf").read_bytes().startswith(b"%PDF-")
    with pytest.raises(BadInput, match=r"figures: format: 'gif' is not known"):
        report.write_rank_plot(ranked, tmp_path / "ranks.gif")


def test_figures_of_each_method_as_pdf_and_png(tmp_path: Path) -> None:
    run = made_run(tmp_path, "clusterfl", rounds=[{"a": 0.5, "b": 0.7}] * 2, tasks=[("a", "accepted", "")])
    with_clusters(run, [{"a": 0, "b": 0}, {"a": 0, "b": 1}])
    with_classes(run, ["$x_", "walk"], {"a": ([5, 0], [4, 0], [1, 0]), "b": ([2, 3], [2, 2], [2, 1])})
    made = report.write_figures([run], tmp_path / "one", ("pdf", "png"), each_method=True)
    own = ["client_by_class-clusterfl", "clusters_over_time-clusterfl", "fleet_over_time-clusterfl"]
    assert [path.name for path in made] == [
        f"{name}.{kind}" for name in (*STANDARD[:5], *own) for kind in ("pdf", "png")
    ]
    for path in made:
        assert path.read_bytes().startswith(PNG if path.suffix == ".png" else b"%PDF-")
    again = report.write_figures([run], tmp_path / "two", ("pdf",))
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in made[:10:2]]


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"figures: format: 'gif' is not known. Allowed: pdf, png"):
        report.write_figures([made_run(tmp_path)], tmp_path / "figures", ("gif",))
    assert not (tmp_path / "figures").exists()


def test_labels_may_hold_anything(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, "fedprox", name=str(i), settings={"method.note": note})
        for i, note in enumerate(("$x_", "\N{SNOWMAN}\N{GRINNING FACE}", "_y"))
    ]
    assert len(report.write_figures(runs, tmp_path / "figures")) == len(STANDARD)


def test_one_round_and_one_client(tmp_path: Path) -> None:
    assert len(report.write_figures([made_run(tmp_path, rounds=flat(1.0))], tmp_path / "figures")) == 5


def test_very_unlike_costs_and_many_clients(tmp_path: Path) -> None:
    many = [{f"c{i}": 0.5 + i / 200 for i in range(100)}] * 40
    runs = [made_run(tmp_path, "local", rounds=many[:1]), made_run(tmp_path, "fedavg", rounds=many)]
    assert len(report.write_figures(runs, tmp_path / "figures")) == len(STANDARD)
