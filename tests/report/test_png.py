"""The figures as files."""

from __future__ import annotations

from pathlib import Path

from made_runs import flat, made_run

from potluck import report

PNG = b"\x89PNG\r\n\x1a\n"


def test_five_figures(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, method, seed, flat(0.3, 0.6)) for method in ("local", "fedavg") for seed in (0, 1)]
    made = report.figures(runs, tmp_path / "figures")
    assert [path.name for path in made] == [
        "accuracy_by_rounds.png",
        "accuracy_by_time.png",
        "accuracy_by_bytes.png",
        "accuracy_by_joules.png",
        "accuracy_of_clients.png",
    ]
    for path in made:
        assert path.read_bytes().startswith(PNG)


def test_labels_may_hold_anything(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, "fedprox", name=str(i), settings={"method.note": note})
        for i, note in enumerate(("$x_", "\N{SNOWMAN}\N{GRINNING FACE}", "_y"))
    ]
    assert len(report.figures(runs, tmp_path / "figures")) == 5


def test_one_round_and_one_client(tmp_path: Path) -> None:
    assert len(report.figures([made_run(tmp_path, rounds=flat(1.0))], tmp_path / "figures")) == 5


def test_very_unlike_costs_and_many_clients(tmp_path: Path) -> None:
    many = [{f"c{i}": i / 100 for i in range(100)}] * 40
    runs = [made_run(tmp_path, "local", rounds=many[:1]), made_run(tmp_path, "fedavg", rounds=many)]
    assert len(report.figures(runs, tmp_path / "figures")) == 5
