"""The report as a file: well formed, from nowhere else, safe whatever the names are, and small."""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from helpers.made_runs import flat, made_run

import potluck
from potluck import report
from potluck.errors import BadInput
from potluck.report.drawing.styles import styles_of
from potluck.report.html.tables import MOST_REASONS, trouble_table
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import Trouble, run_figures
from potluck.runs.results import Run

OK = ("a", "accepted", "")
VOID = {"meta", "input", "br"}
HOSTILE = '<script>alert("1")</script>&\'"><img src=x onerror=alert(1)>\N{RIGHT-TO-LEFT OVERRIDE}\x07\n</td>'


class Page(HTMLParser):
    """Checks that every element is closed in its turn, and gathers what a reader would see."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.ids: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


@pytest.mark.parametrize("engine", ["local", "flower-sim"])
def test_wall_time_is_not_called_virtual(tmp_path: Path, engine: str) -> None:
    """Flower's simulation has no virtual clock, and its seconds on this machine say nothing of joules."""
    wall = {"clock": "wall", "idle_joules": None, "energy_joules": None} if engine == "flower-sim" else {}
    runs = [
        made_run(tmp_path, method, 0, flat(0.5, 0.9), settings={"run.engine": engine}, summary=wall, tasks=[OK])
        for method in ("fedavg", "local")
    ]
    for chosen in (runs, runs[:1]):
        text = page_of(chosen, tmp_path)[1].text
        assert ("irtual time" in text) == (engine == "local")
        assert engine == "local" or "Accuracy by wall time" in text
        assert ("by energy" in text) == (engine == "local")
        assert (re.search(r"\d\sJ\b", text) is not None) == (engine == "local")


def page_of(runs: list[Run], folder: Path) -> tuple[str, Page]:
    text = report.write(runs, folder / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture
def several(tmp_path: Path) -> list[Run]:
    tasks = [("a", "accepted", ""), ("b", "refused", "numbers that are not finite"), ("b", "lost", "went away")]
    ends = {"local": 0.5, "fedavg": 0.6, "ftl": 0.7}
    return [
        made_run(tmp_path, method, seed, [{"a": 0.3, "b": 0.5}, {"a": end, "b": 0.6 + 0.01 * seed}], tasks=tasks)
        for method, end in ends.items()
        for seed in range(3)
    ]


def test_a_report_of_several_methods(several: list[Run], tmp_path: Path) -> None:
    text, page = page_of(several, tmp_path)
    assert text.startswith("<!DOCTYPE html>")
    assert len(page.ids) == len(set(page.ids))
    links = [value for name, value in page.attributes if name == "href"]
    assert links
    assert {f"#{place}" for place in page.ids} >= set(links)
    assert report.compare(several).sentence in page.text
    for said in ("ftl", "65.5\N{NO-BREAK SPACE}%", "numbers that are not finite", "went away", "pixel-6 on wifi"):
        assert said in page.text
    for said in ("potluck run", "torch 2.13", 'source = "made"', "Accuracy by energy", "larger than the noise"):
        assert said in page.text
    # the first picture; differences, gains, ranks; three trade-offs, time against bytes; four curves, clients sorted
    assert page.tags.count("figure") == 13


def test_commands_in_sentences_are_code(several: list[Run], tmp_path: Path) -> None:
    text, page = page_of(several, tmp_path)
    assert "<code>--tune 20</code>" in text
    assert "`" not in page.text


def test_charts_have_text_alternatives(several: list[Run], tmp_path: Path) -> None:
    _, page = page_of(several, tmp_path)
    labels = [value or "" for name, value in page.attributes if name == "aria-label"]
    by_round = next(label for label in labels if label.startswith("Accuracy by round"))
    assert "ftl: from 40.0\N{NO-BREAK SPACE}% at round 1 to 65.5\N{NO-BREAK SPACE}% at round 2." in by_round
    assert any(label.startswith("Accuracy of all clients") for label in labels)
    assert "Accuracy by round as a table" in page.text


def test_differences_between_methods_are_explained(several: list[Run], tmp_path: Path) -> None:
    """Client b is the same with every method; client a is 10 points apart from one method to the next."""
    _, page = page_of(several, tmp_path)
    labels = [value or "" for name, value in page.attributes if name == "aria-label"]
    seeds = next(label for label in labels if label.startswith("ftl against each method, seed by seed"))
    assert "ftl minus local: +10.0 points, t interval +10.0 to +10.0." in seeds
    clients = next(label for label in labels if label.startswith("Each client with ftl instead of each method"))
    assert "Instead of fedavg: 0 of 2 gain, 0 lose, 2 tie; median +5.0 points." in clients  # a has ten test rows
    assert "Instead of local: 1 of 2 gain, 0 lose, 1 tie; median +10.0 points." in clients
    ranks = next(label for label in labels if label.startswith("Average rank over 3 seeds"))
    assert "ftl 1.0, fedavg 2.0, local 3.0." in ranks
    for said in (
        "Row minus column in points",
        "also with Holm's correction for all 3 pairs",
        "the difference is the same with every seed",
        "With 3 seeds the bootstrap interval is too narrow",
        "3 seeds are too few for a critical difference",
        "fewer than six clients differ",
        "enough seeds",
    ):
        assert said in page.text


def test_one_seed_has_differences_without_verdicts(several: list[Run], tmp_path: Path) -> None:
    _, page = page_of([run for run in several if run.folder.name.endswith("s0")], tmp_path)
    assert "Intervals and p-values need three common seeds or more." in page.text
    assert "There are too few common seeds to mark what is more than noise." in page.text
    assert "needs at least 3 common seeds" in page.text
    assert "Ranks over seeds" not in page.text


def test_nothing_comes_from_elsewhere(several: list[Run], tmp_path: Path) -> None:
    text, page = page_of(several, tmp_path)
    outside = [url for url in re.findall(r"\w+://[^\s\"'<>]*", text) if url != "http://www.w3.org/2000/svg"]
    assert outside == []
    assert not re.search(r"@import|url\(", text)
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert "src" not in {name for name, _ in page.attributes}
    assert page.tags.count("script") == 1
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = next(value for name, value in page.attributes if name == "content")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    run = made_run(
        tmp_path,
        rounds=[{HOSTILE: 0.5, "b": 0.7}],
        name="run <b>&",
        device=f"device {HOSTILE}",
        tasks=[(HOSTILE, "refused", f"reason {HOSTILE}")],
        unfit={"b": HOSTILE},
        ended=f"ended {HOSTILE}",
        summary={"model": HOSTILE, "versions": {HOSTILE: HOSTILE}},
        settings={"fleet.joins": {HOSTILE: 1.0}},
    )
    other = made_run(tmp_path, "ftl")
    text = report.write([run, other], tmp_path / "r.html", title=f"title {HOSTILE}\udcff").read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert "\x07" not in text
    assert 'alert("1")' in page.text  # shown, not run


def test_an_interrupted_run_is_reported_as_such(tmp_path: Path) -> None:
    run = made_run(tmp_path, rounds=flat(0.4, 0.6), settings={"stop.rounds": 9}, ended="interrupted")
    _, page = page_of([run], tmp_path)
    assert "So far (the run is not finished), fedavg on made" in page.text
    assert "2 of 9 rounds done; it was interrupted" in page.text
    assert f"potluck resume {run.folder}" in page.text
    assert "60.0\N{NO-BREAK SPACE}%" in page.text


def test_a_run_without_a_summary_or_a_round(tmp_path: Path) -> None:
    going = made_run(tmp_path, rounds=flat(0.4), ended=None)
    young = made_run(tmp_path, "ftl", rounds=[], ended=None)
    _, page = page_of([going, young], tmp_path)
    assert "no summary after round 1: still running, or killed" in page.text
    assert "no summary before its first round" in page.text
    _, page = page_of([young], tmp_path)
    assert "Nothing has been evaluated yet" in page.text
    assert report.write_figures([young], tmp_path / "figures") == []


def test_a_thousand_clients_stay_small(tmp_path: Path) -> None:
    rounds = [{f"client-{i:04}": (i * 37 % 1000) / 1000 for i in range(1000)}]
    runs = [made_run(tmp_path, method, seed, rounds) for method in ("local", "fedavg", "ftl") for seed in (0, 1)]
    text, page = page_of(runs, tmp_path)
    assert len(text) < 3_000_000
    assert text.count("client-0999") == 2  # its card and its line in the table
    order = re.findall(r"client-\d{4}", text)
    assert order[0] == "client-0000"  # accuracy 0, the worst
    assert page.tags.count("circle") < 1000  # the sorted chart is lines, not dots, at this size


def test_the_same_runs_give_the_same_file(several: list[Run], tmp_path: Path) -> None:
    first = report.write(several, tmp_path / "one.html").read_bytes()
    assert report.write(several, tmp_path / "new" / "two.html").read_bytes() == first
    assert not list(tmp_path.glob("*.part"))


def test_a_place_that_cannot_be_written_is_refused(several: list[Run], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        report.write(several, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be created"):
        report.write_figures(several, tmp_path / "file")


def test_the_experiment_on_the_page_is_valid_toml(tmp_path: Path) -> None:
    run = made_run(tmp_path)
    text, _ = page_of([run], tmp_path)
    shown = re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)[-1]
    shown = shown.replace("&quot;", '"').replace("&#x27;", "'").replace("&amp;", "&")
    assert tomllib.loads(shown) == tomllib.loads((run.folder / "experiment.toml").read_text())


def test_a_real_run(tmp_path: Path) -> None:
    runs = [
        potluck.run({
            "data": {"source": "made"},
            "method": {"name": method},
            "stop": {"rounds": 2},
            "run": {"out": str(tmp_path / "runs")},
        })
        for method in ("local", "fedavg")
    ]  # fmt: skip
    found = report.compare(runs)
    for run in runs:
        (row,) = (row for row in found.rows if row.method == run.summary["method"])
        figures = (row.accuracy, row.worst_tenth, row.worst_client, row.bytes_up, row.virtual_seconds, row.joules)
        accuracy = run.summary["accuracy"]
        assert [one.mean for one in figures if one] == [
            accuracy["mean"],
            accuracy["worst_tenth"],
            accuracy["worst"],
            run.summary["bytes"]["up"],
            run.summary["virtual_seconds"],
            run.summary["energy_joules"],
        ]
    _, page = page_of(runs, tmp_path)
    assert "2 rounds done" in page.text


def test_reasons_beyond_the_first_are_summed_in_the_last_column(tmp_path: Path) -> None:
    troubles = {f"reason {i:02}": 1 for i in range(MOST_REASONS + 2)}
    found = trouble_table([_with_troubles(made_run(tmp_path), troubles)], ["fedavg"], styles_of([("fedavg", "fedavg")]))
    assert found is not None
    last = re.findall(r"<t[dh].*?</t[dh]>", found.rpartition("<tr>")[2])
    assert [re.sub("<.*?>", "", cell) for cell in last[1:]] == ["other", "2 more reasons", "–", "2"]


def _with_troubles(run: Run, troubles: dict[str, int]) -> Group:
    figures = run_figures(run)
    found = [Trouble("refused", reason, times, "a") for reason, times in troubles.items()]
    return Group("fedavg", "fedavg", [replace(figures, troubles=found)])
