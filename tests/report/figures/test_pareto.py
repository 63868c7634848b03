"""The trade-offs: who is beaten in everything, and the front of one cost."""

from __future__ import annotations

from pathlib import Path

from helpers.made_runs import flat, made_run
from hypothesis import given
from hypothesis import strategies as st

from potluck import report
from potluck.report.drawing.axes import WIDTH
from potluck.report.drawing.labels import place_labels
from potluck.report.drawing.styles import styles_of
from potluck.report.drawing.trade_offs import exchange_chart
from potluck.report.figures.exchange import exchange
from potluck.report.figures.pareto import front, in_words, standings
from potluck.report.html.trade_offs import trade_offs
from potluck.report.reading.groups import group

numbers = st.integers(0, 6).map(float)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12))
def test_the_front_is_what_nobody_beats(points: list[tuple[float, float]]) -> None:
    """Cheaper or as cheap, and more or as accurate, and not the same: by brute force."""
    free = {
        (c, a) for c, a in points if not any(d <= c and b >= a and (d, b) != (c, a) for d, b in points)
    }  # fmt: skip
    found = front(points)
    assert set(found) == free
    assert found == sorted(found)


def test_who_is_beaten_in_everything(tmp_path: Path) -> None:
    """A round costs the same for all: who needs more rounds for less is beaten by who needs fewer for more."""
    runs = [
        made_run(tmp_path, "fedavg", rounds=flat(0.5, 0.8)),
        made_run(tmp_path, "local", rounds=flat(0.6)),
        made_run(tmp_path, "ftl", rounds=flat(0.5, 0.5, 0.7)),
    ]
    found = standings(report.compare(runs))
    assert {one.row.method: one.beaten_by for one in found} == {"fedavg": [], "local": [], "ftl": ["fedavg"]}
    said = in_words(found)
    assert said.startswith("Pareto-optimal in accuracy, time, energy and bytes: fedavg and local.")
    assert "ftl is no better than fedavg in any of these." in said
    by_name = {one.row.method: one.costs for one in found}
    assert by_name["fedavg"] == (20.0, 13.0, 600.0)  # seconds, joules with waiting, bytes up and down


def test_one_method_has_no_trade_off(tmp_path: Path) -> None:
    found = report.compare([made_run(tmp_path)])
    assert trade_offs(found, styles_of([("fedavg", "fedavg")])) is None


def test_the_charts_say_it_in_words(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "fedavg", rounds=flat(0.5, 0.8)), made_run(tmp_path, "local", rounds=flat(0.6))]
    found = report.compare(runs)
    html = trade_offs(found, styles_of([(row.method, row.method) for row in found.rows]))
    assert html is not None
    assert html.count('role="img"') == 3
    assert "fedavg: 80.0\N{NO-BREAK SPACE}% for 13\N{NO-BREAK SPACE}J." in html
    assert "Pareto-optimal: fedavg and local." in html


def test_names_do_not_lie_on_each_other() -> None:
    names = ["fedavg", "ftl", "clusterfl", "echopfl", "local", "centaur", "fedconv"]
    near = [(204.0, 99.0), (202.0, 101.0), (201.0, 98.0)]
    spots = [(200.0, 100.0), (206.0, 103.0), (203.0, 96.0), (WIDTH - 20.0, 150.0), *near]
    whisker = ((200.0, 60.0), (200.0, 140.0))
    found = place_labels(names, spots, [whisker])
    boxes = [place.box(name) for name, place in zip(names, found, strict=True)]
    assert found[3].anchor == "end"  # there is no room to the right of it
    assert max(place.ring for place in found) > 0  # not all can be beside their spots: lines lead to the others
    marks = [(x - 9, y - 9, x + 9, y + 9) for x, y in spots] + [(199.0, 60.0, 201.0, 140.0)]
    for i, one in enumerate(boxes):
        for other in [*boxes[:i], *marks]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_time_against_bytes_to_an_accuracy(tmp_path: Path) -> None:
    """A round is 10 s and 300 B. fedavg needs three rounds for 70 %, ftl one, and local never comes so far."""
    runs = [
        made_run(tmp_path, "fedavg", rounds=flat(0.5, 0.6, 0.75)),
        made_run(tmp_path, "ftl", rounds=flat(0.72, 0.7, 0.7)),
        made_run(tmp_path, "local", rounds=flat(0.4, 0.4, 0.45)),
    ]
    groups = group(runs).groups
    found = exchange(groups)
    assert found is not None
    assert (found.target, found.short) == (0.7, ("local",))
    paid = {one.method: (one.seconds, one.bytes) for one in found.paid}
    assert paid == {"fedavg": (30.0, 900.0), "ftl": (10.0, 300.0)}
    assert found.front == [(300.0, 10.0)]
    assert found.paces == {}
    said = "no method is ahead of ftl in time and bytes. Not reached with every seed: local."
    html = trade_offs(report.compare(runs), styles_of([(one.label, one.label) for one in groups]), groups)
    assert said in found.in_words
    assert html is not None
    assert said in html
    assert html.count('role="img"') == 4


def test_an_accuracy_that_one_seed_misses_does_not_count(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "fedavg", seed, flat(0.55, end)) for seed, end in ((0, 0.65), (1, 0.58))]
    runs += [made_run(tmp_path, "ftl", seed, flat(0.65, 0.7)) for seed in (0, 1)]
    found = exchange(group(runs).groups)
    assert found is not None
    assert found.target == 0.5
    assert exchange(group(runs[:2]).groups) is None


def test_the_settings_of_one_method_are_joined(tmp_path: Path) -> None:
    fast = {"method.mu": 0.5}
    runs = [
        made_run(tmp_path, "fedprox", rounds=flat(0.5, 0.75), name="slow"),
        made_run(tmp_path, "fedprox", rounds=flat(0.75, 0.75), name="fast", settings=fast),
    ]
    groups = group(runs).groups
    found = exchange(groups)
    assert found is not None
    (points,) = found.paces.values()
    assert [one.bytes for one in points] == [300.0, 600.0]
    assert exchange_chart(found, styles_of([(one.label, one.method) for one in groups])).count("<polyline") == 2
