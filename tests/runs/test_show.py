"""Runs and comparisons show themselves: HTML for a notebook, text for a terminal, whatever their names hold."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

import potluck
from potluck.runs import show
from potluck.runs.results import Run
from potluck.units import percent


class Checker(HTMLParser):
    """Every opened tag is closed; the text is collected."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.text = ""
        self.tags: list[str] = []
        self.feed(page)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    out = tmp_path_factory.mktemp("runs")
    return [
        potluck.run({
            "data": {"source": "made"},
            "model": {"name": "softmax"},
            "fleet": {"devices": "pc"},
            "method": {"name": method},
            "stop": {"rounds": 2},
            "run": {"out": str(out), "seed": seed, "name": f"<b>{method}{seed}"},
        })
        for method in ("fedavg", "local")
        for seed in (0, 1)
    ]  # fmt: skip


def test_a_run_in_a_notebook(runs: list[Run]) -> None:
    found = Checker(runs[0]._repr_html_())
    assert "<b>fedavg0" in found.text  # as text, not as markup
    assert "b" not in found.tags
    assert "polyline" in found.tags
    assert percent(runs[0].summary["accuracy"]["mean"]) in found.text


def test_a_run_in_a_terminal(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    runs[0].show()
    shown = capsys.readouterr().out
    assert percent(runs[0].summary["accuracy"]["mean"]) in shown
    assert "<table" not in shown


def test_a_run_that_is_not_finished(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "run.db").write_bytes((runs[0].folder / "run.db").read_bytes())
    assert "not finished" in show.in_words(Run(tmp_path))
    Checker(Run(tmp_path)._repr_html_())


def test_a_comparison_in_a_notebook(runs: list[Run]) -> None:
    compared = potluck.compare(*runs)
    found = Checker(compared._repr_html_())
    assert compared.sentence in found.text
    for row in compared.rows:
        assert row.method in found.text
    assert found.text.count("best") >= 2  # the heading, and the row
