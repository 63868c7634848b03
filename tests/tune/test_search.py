"""Successive halving, with scores from a formula instead of runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from potluck.spaces import Choice, Range, Space
from potluck.tune.candidates import Candidate, Settings, Spread
from potluck.tune.search import Found, Searched, Wanted, cost_of, counts_of, fitted, search, shares_of

pytestmark = pytest.mark.quick

SPACE: Space = {"recipe.lr": Range(0.01, 1.0, log=True), "kind": Choice("a", "b")}
DEFAULT: Settings = {"recipe.lr": 0.05, "kind": "a"}


def played(
    score: Callable[[Candidate, float], float],
    trials: int = 20,
    step: float = 0.01,
    space: Space = SPACE,
    default: Settings = DEFAULT,
) -> tuple[Searched, list[list[Wanted]]]:
    """Play a search whose candidates score by a formula."""
    game = search(Spread(space, default, 1), trials, 3, default)
    wanted, asked = next(game), []
    while True:
        asked.append(wanted)
        found = []
        for one in wanted:
            steps = max(1, -int(-one.share / step // 1))
            found.append(Found(score(one.candidate, one.share), min(1.0, steps * step), steps, 20 * steps * step))
        try:
            wanted = game.send(found)
        except StopIteration as end:
            return end.value, asked


def test_rungs_of_twenty_trials() -> None:
    shares = shares_of(20, 3)
    assert shares == pytest.approx([1 / 9, 1 / 3, 1.0])
    assert counts_of(20, 3, 3) == [20, 8, 4]
    assert cost_of([20, 8, 4], shares) == pytest.approx(20 / 9 + 8 * 2 / 9 + 4 * 2 / 3)
    assert shares_of(2, 3) == [1.0]
    assert shares_of(4, 3) == pytest.approx([1 / 3, 1.0])


def test_a_method_of_large_steps_tries_fewer_candidates_for_the_same_compute() -> None:
    shares = shares_of(20, 3)
    allowance = cost_of(counts_of(20, 3, len(shares)), shares)
    for step in (0.02, 0.1, 0.25, 0.5, 1.0):
        counts, rounded = fitted(20, 3, step)
        paid = [math.ceil(share / step - 1e-9) * step for share in rounded]
        assert cost_of(counts, paid) <= allowance + 1e-9
        assert all(share == 1.0 or share / step == pytest.approx(round(share / step)) for share in rounded)
    assert fitted(20, 3, 1.0) == ([6], [1.0])
    assert fitted(20, 3, 2.2) == ([3], [1.0])  # one step is more than the whole budget
    assert fitted(20, 3, 100.0) == ([2], [1.0])  # never fewer: the default settings and something else


def test_the_best_candidate_wins() -> None:
    found, asked = played(lambda one, share: -abs(float(one.settings["recipe.lr"]) - 0.3) + share / 100)
    best = min(found.candidates, key=lambda one: abs(float(one.settings["recipe.lr"]) - 0.3))
    assert found.chosen == best
    assert [len(rung.scores) for rung in found.rungs] == [20, 8, 4]
    assert [len(wanted) for wanted in asked] == [1, 20, 8, 4]  # the default first, to see how large a step is
    assert all(0 in rung.scores for rung in found.rungs)  # the default settings are compared to the end


def test_the_default_settings_win_a_tie() -> None:
    found, _ = played(lambda one, share: 0.5)
    assert found.chosen.default
    assert found.chosen.settings == DEFAULT


def test_a_late_bloomer_that_survives_is_chosen_by_the_last_rung() -> None:
    found, _ = played(lambda one, share: 1.0 if one.number == 2 and share == 1.0 else 0.5 - one.number / 1000)
    assert found.chosen.number == 2


def test_a_small_space_is_tried_out() -> None:
    found, asked = played(lambda one, share: 0.5, space={"kind": Choice("a", "b", "c")}, default={"kind": "a"})
    assert found.candidates[0].settings["kind"] == "a"
    assert {one.settings["kind"] for one in found.candidates} == {"a", "b", "c"}
    assert all(asked)  # never an empty batch


def test_candidates_spread_over_the_space() -> None:
    drawn = Spread({"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}, {}, 7, "fedavg").ask(32)
    for name in ("x", "y"):
        tenths = {int(4 * float(one[name])) for one in drawn[:8]}
        assert tenths == {0, 1, 2, 3}
    assert Spread({"x": Range(0.0, 1.0)}, {}, 7).ask(5) == Spread({"x": Range(0.0, 1.0)}, {}, 7).ask(5)
    assert Spread({"x": Range(0.0, 1.0)}, {}, 7).ask(5) != Spread({"x": Range(0.0, 1.0)}, {}, 8).ask(5)


def test_what_uses_none_of_the_budget_is_tried_out_whole() -> None:
    game = search(Spread(SPACE, DEFAULT, 1), 5, 3, DEFAULT)
    next(game)
    wanted = game.send([Found(0.5, 0.0, 1, 0.0)])
    assert {one.share for one in wanted} == {1.0}
