"""The cards of the devices: gains by hand, friends, and each rule of the advice."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.made_runs import made_run, with_classes, with_clusters

from potluck import report
from potluck.report.figures.cards import Card, cards
from potluck.report.reading.groups import group
from potluck.runs.results import Run


def card_of(runs: list[Run], label: str, client: str) -> Card:
    return next(card for card in cards(group(runs).groups, label) if card.client == client)


def test_the_gain_is_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "fedavg", seed, [{"a": 0.5 + 0.1 * seed, "b": 0.9}]) for seed in range(3)]
    runs += [made_run(tmp_path, "local", seed, [{"a": 0.3, "b": 1.0}]) for seed in (1, 2)]
    a, b = (card_of(runs, "fedavg", name) for name in "ab")
    assert a.accuracy == pytest.approx(0.6)  # over all three
    assert a.gain == pytest.approx(0.35)  # (0.6 - 0.3 + 0.7 - 0.3) / 2
    assert a.alone == pytest.approx(0.3)
    assert b.gain == pytest.approx(-0.1)
    assert [card.client for card in cards(group(runs).groups, "fedavg")] == ["a", "b"]  # the worst first
    html = report.write(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "+35.0 points above local training" in html
    assert "10.0 points below local training" in html


def test_where_going_alone_wins_the_cards_are_of_who_learns_together(tmp_path: Path) -> None:
    """A card of going alone has neither a gain nor friends to show."""
    runs = [made_run(tmp_path, name, rounds=[{"a": share, "b": share}])
            for name, share in (("local", 0.9), ("fedavg", 0.6), ("ftl", 0.7))]  # fmt: skip
    html = report.write(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "with ftl (the most accurate federated method), the worst first" in html
    assert "20.0 points below local training" in html
    alone = report.write(runs[:1], tmp_path / "alone.html").read_text(encoding="utf-8")
    assert "with local, the worst first" in alone


def test_without_a_run_alone_there_is_no_gain(tmp_path: Path) -> None:
    run = made_run(tmp_path)
    assert card_of([run], "fedavg", "a").gain is None
    html = report.write([run], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "To see the gain over local training, add a run of the method local." in html


def test_friends_are_those_of_the_last_cluster(tmp_path: Path) -> None:
    run = made_run(tmp_path, "clusterfl", rounds=[dict.fromkeys("abcdefg", 0.5)] * 2)
    with_clusters(run, [dict.fromkeys("abcdef", 0), {**dict.fromkeys("abcde", 1), "f": 2}])
    assert card_of([run], "clusterfl", "a").friends == ["b", "c", "d", "e"]
    assert card_of([run], "clusterfl", "a").learned_from == "cluster 1: b, c, d and 1 more"
    assert card_of([run], "clusterfl", "f").learned_from == "no other client: it is alone in cluster 2"
    assert card_of([run], "clusterfl", "g").learned_from == "no other client yet: it is in no cluster"


def test_one_model_for_all_is_learned_from_whoever_answered(tmp_path: Path) -> None:
    rounds = [dict.fromkeys("abc", 0.5)]
    tasks = [("a", "accepted", ""), ("b", "accepted", ""), ("c", "lost", "went away")]
    run = made_run(tmp_path, rounds=rounds, tasks=tasks)
    assert card_of([run], "fedavg", "a").learned_from.startswith("1 of 2 other clients")
    assert card_of([run], "fedavg", "c").learned_from.startswith("all 2 other clients")
    alone = made_run(tmp_path, "local", rounds=rounds, tasks=tasks)
    assert card_of([alone], "local", "a").learned_from == "no other client: local training only"


def test_the_worst_class_is_over_all_seeds(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, seed=seed) for seed in (0, 1)]
    with_classes(runs[0], ["still", "walk"], {"a": ([9, 1], [4, 2], [1, 2]), "b": ([5, 5], [2, 2], [2, 2])})
    with_classes(runs[1], ["still", "walk"], {"a": ([9, 1], [4, 2], [4, 0]), "b": ([5, 5], [2, 2], [2, 2])})
    worst = card_of(runs, "fedavg", "a").worst_class
    assert worst is not None
    assert (worst.name, worst.right, worst.test, worst.held, worst.of) == ("walk", 2, 4, 1, 10)  # still: 5 of 8
    assert "More samples of “walk”: it holds 1 of 10." in card_of(runs, "fedavg", "a").help
    html = report.write(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "none: all 8 test samples are right" not in html  # a class of b has 4 over both seeds
    assert "none: all 4 test samples are correct" in html


def test_costs_are_those_of_the_tasks(tmp_path: Path) -> None:
    run = made_run(tmp_path, tasks=[("a", "accepted", ""), ("a", "refused", "too big")])
    work = card_of([run], "fedavg", "a").work
    assert (work.tasks, work.counted, work.lost, work.joules, work.bytes_up, work.bytes_down) == (2, 1, 0, 10, 200, 400)
    assert work.seconds == 4.0
    assert (work.receiving, work.training, work.sending) == (2.0, 2.0, 4.0)
    assert card_of([run], "fedavg", "b").work.tasks == 0


def helped(runs: list[Run], client: str = "a") -> list[str]:
    return card_of(runs, "fedavg", client).help


def test_what_would_help(tmp_path: Path) -> None:
    fine = [("a", "accepted", ""), ("b", "accepted", "")]
    assert helped([made_run(tmp_path, name="never", tasks=[("b", "accepted", "")])]) == [
        "It never received a task: a larger cohort would include it."
    ]
    unfit = made_run(tmp_path, name="unfit", tasks=fine, unfit={"a": "does not fit: too small."})
    assert helped([unfit])[0] == "It could not train: too small. A smaller model or sub-models may fit."
    lossy = made_run(tmp_path, name="lossy", tasks=[*fine, *[("a", "lost", "went away")] * 2, ("a", "late", "slow")])
    assert helped([lossy])[0] == "3 of 4 updates did not count (went away)."
    other = made_run(tmp_path, "ftl", rounds=[{"a": 0.8, "b": 0.7}])
    plain = made_run(tmp_path, name="plain", tasks=fine)
    assert helped([plain, other]) == ["ftl reaches 80\N{NO-BREAK SPACE}% here, 30.0 points more."]
    assert helped([plain], "b") == ["Nothing stands out: it does about as well as most clients."]
    assert helped([plain]) == ["The records do not explain it: its data may differ from that of the others."]


def test_one_more_right_answer_is_no_advice(tmp_path: Path) -> None:
    """Client a is tested on ten samples: 60 % instead of 50 % is one of them."""
    runs = [made_run(tmp_path, tasks=[("a", "accepted", "")]), made_run(tmp_path, "ftl", rounds=[{"a": 0.6, "b": 0.7}])]
    assert not any("ftl" in text for text in helped(runs))


def test_all_devices_are_there_and_the_worst_tenth_in_full_view(tmp_path: Path) -> None:
    names = {f"c{i:03}": i / 200 for i in range(200)}
    run = made_run(tmp_path, rounds=[names])
    html = report.write([run], tmp_path / "r.html").read_text(encoding="utf-8")
    front, back = html.split('<details class="rest">')
    assert front.count('<article class="card') == 20
    assert back.count('<article class="card') == 180
    assert "The other 180 devices" in back


def test_of_a_large_fleet_the_worst_tenth_is_folded_after_its_first_cards(tmp_path: Path) -> None:
    run = made_run(tmp_path, rounds=[{f"c{i:03}": i / 400 for i in range(400)}])
    html = report.write([run], tmp_path / "r.html").read_text(encoding="utf-8")
    front, tenth, others = html.split('<details class="rest">')
    assert [part.count('<article class="card') for part in (front, tenth, others)] == [24, 16, 360]
    assert "The rest of the worst tenth, 16 devices" in tenth
