"""Client by class, clusters over time, the fleet over time: the figures behind them by hand and by brute force."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.made_runs import flat, made_run, with_classes, with_clusters
from hypothesis import given
from hypothesis import strategies as st

from potluck.report.figures import activity
from potluck.report.html import classes, clusters, timeline
from potluck.report.reading import client_facts
from potluck.report.reading.client_facts import Classes, Clusters, Tasks
from potluck.report.reading.run_figures import run_figures

spans = st.lists(
    st.tuples(st.floats(0, 50), st.floats(0, 10), st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=20
)


@given(spans)
def test_activity_is_the_time_spent_in_each_bin(found: list[tuple[float, float, float, float]]) -> None:
    """Against the overlap of every task with every bin, one by one."""
    times = np.cumsum(np.array(found), axis=1)
    tasks = Tasks(["a"] * len(found), *times.T, ["accepted"] * len(found))
    busy = activity.activity(tasks, 3, 90.0, bins=7)
    for kind, start, stop in zip(activity.KINDS, times.T, times.T[1:], strict=False):
        for j, share in enumerate(busy.at[kind]):
            low, high = busy.edges[j], busy.edges[j + 1]
            overlap = np.maximum(0, np.minimum(stop, high) - np.maximum(start, low)).sum()
            assert share == pytest.approx(overlap / (high - low), abs=1e-6)


def test_the_fleet_in_words(tmp_path: Path) -> None:
    """Each task: 1 s to come, 1 s of training, 2 s to go; two clients, one round of 10 s."""
    run = made_run(tmp_path, tasks=[("a", "accepted", ""), ("b", "lost", "went away")])
    one = run_figures(run)
    found = client_facts.tasks(one)
    text = activity.in_words(activity.activity(found, 2, 10.0), found, 10.0)
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    assert "10 % of it training, 10 % receiving, 20 % sending, 60 % idle; at most 2 busy at once." in text
    assert text.endswith("2 tasks, 1 of them lost, refused or late.")
    html = timeline.picture(one, found)
    assert html.count("<svg") == 2
    assert 'class="a-trouble"' in html


def test_whoever_is_too_small_to_train_is_not_lost(tmp_path: Path) -> None:
    """Called off before it began: neither a task that somebody did, nor one that got lost."""
    run = made_run(tmp_path, tasks=[("a", "accepted", ""), ("b", "lost", "does not fit: tiny: too small.")])
    one = run_figures(run)
    found = client_facts.tasks(one)
    assert found.outcome == ["accepted", "unfit"]
    text = activity.in_words(activity.activity(found, 2, 10.0), found, 10.0)
    assert text.endswith("1 task, 0 of them lost, refused or late; 1 client too small to train.")
    assert "at most 1 busy at once" in text
    assert 'class="a-trouble"' not in timeline.picture(one, found)


def test_a_device_is_named_in_front_of_its_row(tmp_path: Path) -> None:
    run = made_run(tmp_path, device="arduino-nano-33-ble-sense", tasks=[("a", "accepted", ""), ("b", "accepted", "")])
    one = run_figures(run)
    assert "arduino-nano-33-ble-sense" in timeline.picture(one, client_facts.tasks(one))


def test_a_large_fleet_has_no_line_for_each(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(timeline.MOST_ROWS + 1)]
    run = made_run(tmp_path, rounds=[dict.fromkeys(names, 0.5)], tasks=[(name, "accepted", "") for name in names])
    one = run_figures(run)
    assert timeline.picture(one, client_facts.tasks(one)).count("<svg") == 1


HELD = {"a": ([5, 0], [4, 0], [1, 0]), "b": ([2, 3], [2, 2], [2, 1])}


def test_client_by_class(tmp_path: Path) -> None:
    run = with_classes(made_run(tmp_path), ["still", "<walk>"], HELD)
    found = client_facts.classes(run_figures(run))
    assert found is not None
    html = classes.picture(found)
    rows = html.split("<tr>")[2:]
    assert "<bdi>a</bdi>" in rows[0]  # a quarter right: the worst first
    assert '25<small>5</small></td><td class="n none">–<small>0</small></td>' in rows[0]
    assert 'title="1 of 2 right">50<small>3</small>' in rows[1]
    assert "all clients" in rows[2]
    assert 'title="4 of 8 right">50<small>5</small>' in rows[2]
    assert "<walk>" not in html
    said = classes.in_words(found)
    assert said.startswith("A client holds samples of 1.5 of 2 classes on average.")
    assert "All classes are equally hard (50\N{NO-BREAK SPACE}% right)." in said


def test_many_clients_are_shown_by_tenths() -> None:
    names = [f"c{i:03}" for i in range(100)]
    one = {name: [10] for name in names}
    right = {name: [i // 10] for i, name in enumerate(names)}
    html = classes.picture(Classes(["only"], one, one, right))
    rows = html.split("<tr>")[2:]
    assert len(rows) == 11
    assert "worst tenth" in rows[0]
    assert 'title="0 of 100 right"' in rows[0]
    assert 'title="90 of 100 right"' in rows[9]


def test_a_run_without_classes_or_clusters_has_no_such_view(tmp_path: Path) -> None:
    one = run_figures(made_run(tmp_path))
    assert client_facts.classes(one) is None
    assert client_facts.clusters(one) is None


def test_clusters_over_time(tmp_path: Path) -> None:
    run = made_run(tmp_path, rounds=[{"a": 0.5, "b": 0.5, "c": 0.5}] * 3)
    with_clusters(run, [{"a": 0, "b": 0}, {"a": 0, "b": 1, "c": 1}, {"a": 0, "b": 1, "c": 1}])
    found = client_facts.clusters(run_figures(run))
    assert found == Clusters([10.0, 20.0, 30.0], {"a": [0, 0, 0], "b": [0, 1, 1], "c": [None, 1, 1]})
    said = clusters.in_words(found)
    assert said == "2 clusters at the end (2, 1 clients); 1 client of 3 changed cluster during the run."
    html = clusters.picture(found)
    assert html.count("<rect") == 4  # a stays, b changes once, c comes late
    early = client_facts.clusters(run_figures(run, until=15.0))
    assert early == Clusters([10.0], {"a": [0], "b": [0]})


def test_clusters_of_many_are_shown_by_their_sizes() -> None:
    of = {f"c{i}": [0, i % 3] for i in range(90)}
    html = clusters.picture(Clusters([1.0, 2.0], of))
    assert html.count("<path") == 3
    assert "cluster 2: 30 clients at the end" in html


def test_a_long_history_is_thinned(tmp_path: Path) -> None:
    run = made_run(tmp_path, rounds=flat(*[0.5] * 300))
    with_clusters(run, [{"a": step % 2} for step in range(300)])
    found = client_facts.clusters(run_figures(run))
    assert found is not None
    assert len(found.moments) == client_facts.MOST_MOMENTS
    assert (found.moments[0], found.moments[-1]) == (10.0, 3000.0)


def test_figures_of_an_earlier_moment(tmp_path: Path) -> None:
    run = made_run(tmp_path, rounds=flat(0.2, 0.4, 0.6), tasks=[("a", "refused", "why")])
    early, whole = run_figures(run, until=25.0), run_figures(run)
    assert (early.rounds, early.last and early.last.mean, early.virtual) == (2, 0.4, 20.0)
    assert (early.state, early.ended) == ("unfinished", "as of that moment")
    assert (whole.rounds, whole.state) == (3, "finished")
    before = run_figures(run, until=5.0)
    assert (before.step, before.points, before.refused) == (0, [], 0)
    assert early.refused == 1
