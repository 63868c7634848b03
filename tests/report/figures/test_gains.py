"""Methods client by client: who gains, who loses, and what counts as a tie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potluck import report
from potluck.report.figures.gains import all_gains, gains
from potluck.report.figures.scores import Scores
from potluck.report.figures.signed_rank import midranks, signed_rank
from potluck.report.figures.statistics import in_words, statistics


def scores(**methods: list[dict[str, float]]) -> Scores:
    """Accuracies of every client by seed; each client has 20 test rows."""
    clients = {name: dict(enumerate(seeds)) for name, seeds in methods.items()}
    means = {
        name: {seed: float(np.mean(list(found.values()))) for seed, found in seeds.items()}
        for name, seeds in clients.items()
    }
    tested = {seed: dict.fromkeys("abcdefgh", 20) for seed in range(5)}
    return Scores("accuracy", means, clients, tested)


def test_clients_that_gain_lose_and_tie() -> None:
    """One test row of 20 is 5 points: a difference of one row is a tie."""
    found = gains(
        scores(
            ftl=[{"a": 0.9, "b": 0.50, "c": 0.75, "d": 0.6}, {"a": 0.8, "b": 0.50, "c": 0.75, "d": 0.6}],
            local=[{"a": 0.6, "b": 0.60, "c": 0.70, "d": 0.6}, {"a": 0.7, "b": 0.70, "c": 0.70, "d": 0.6}],
        ),
        "ftl",
        "local",
    )
    assert found is not None
    assert found.differences == pytest.approx({"a": 0.2, "b": -0.15, "c": 0.05, "d": 0.0})
    assert found.outcomes == {"a": "gain", "b": "lose", "c": "tie", "d": "tie"}
    assert (found.clients, found.gain, found.lose, found.tie) == (4, 1, 1, 2)
    assert (found.mean, found.median) == (pytest.approx(0.025), pytest.approx(0.025))
    assert (found.largest_gain, found.largest_loss, found.worst) == (pytest.approx(0.2), pytest.approx(-0.15), "b")
    assert found.p is None  # four clients can never give a p-value below 5 %


def test_only_the_same_client_under_the_same_seed_is_compared() -> None:
    known = scores(ftl=[{"a": 0.9, "b": 0.5}, {"a": 0.1}], local=[{"a": 0.5, "c": 0.1}])
    found = gains(known, "ftl", "local")
    assert found is not None
    assert (found.seeds, found.differences) == ([0], {"a": pytest.approx(0.4)})
    assert gains(known, "ftl", "absent") is None


def test_a_client_without_known_test_rows_has_no_band() -> None:
    found = gains(Scores("", {}, {"x": {0: {"z": 0.51}}, "y": {0: {"z": 0.5}}}), "x", "y")
    assert found is not None
    assert found.outcomes == {"z": "gain"}


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=30))
def test_gains_mirror_losses(rows: list[int]) -> None:
    names = [str(i) for i in range(len(rows))]
    mine = {name: 0.5 + by / 40 for name, by in zip(names, rows, strict=True)}
    known = Scores("", {}, {"x": {0: mine}, "y": {0: dict.fromkeys(names, 0.5)}}, {0: dict.fromkeys(names, 20)})
    one, other = gains(known, "x", "y"), gains(known, "y", "x")
    assert one is not None
    assert other is not None
    assert one.gain + one.lose + one.tie == one.clients
    assert (one.gain, one.lose, one.tie) == (other.lose, other.gain, other.tie)
    assert one.median == pytest.approx(-other.median)
    assert one.largest_gain == pytest.approx(-other.largest_loss)
    assert one.p == pytest.approx(other.p)


@given(st.lists(st.integers(-1000, 1000), min_size=6, max_size=25, unique_by=abs).filter(lambda d: 0 not in d))
def test_signed_rank_is_wilcoxons_test_of_scipy(differences: list[int]) -> None:
    expected = stats.wilcoxon(differences, method="exact").pvalue
    assert signed_rank(differences) == pytest.approx(expected)


def test_signed_rank_is_exact_with_ties() -> None:
    """By hand: of the sixteen signs of ranks 1, 2.5, 2.5 and 4, two sums lie as far out as 10, the largest."""
    assert signed_rank([1, 2, 2, 3]) == pytest.approx(2 / 16)
    assert signed_rank([1, 2, 2, 3, 0, 0]) == pytest.approx(2 / 16)  # zeros say nothing
    assert signed_rank([0.0, 0.0]) == 1.0


def test_signed_rank_of_many_is_scipys_approximation() -> None:
    values = np.random.Generator(np.random.Philox(5)).normal(0.1, 1.0, 400)
    expected = stats.wilcoxon(values, method="asymptotic", correction=False).pvalue
    assert signed_rank(values.tolist()) == pytest.approx(expected)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_ranks_share_their_mean(values: list[int]) -> None:
    assert midranks(np.array(values, dtype=float)).tolist() == stats.rankdata(values).tolist()


def test_the_sentence_is_about_local_training() -> None:
    """Local training is the question of a client that may take part; the next best method is not."""
    seeds = [{name: value for name in "abcdefgh"} for value in (0.8, 0.82, 0.81)]
    other = [{name: value - 0.02 for name, value in found.items()} for found in seeds]
    alone = [{name: value - (0.3 if name != "a" else -0.1) for name, value in found.items()} for found in seeds]
    known = scores(ftl=seeds, fedavg=other, local=alone)
    found = statistics(known, ["ftl", "fedavg", "local"], "ftl", "local")
    assert [(one.method, one.other) for one in found.per_client] == [
        ("ftl", "fedavg"),
        ("ftl", "local"),
        ("fedavg", "local"),
    ]
    names = {name: name for name in ("ftl", "fedavg", "local")}
    assert in_words(found, "ftl", names, "local")[0] == (
        "Client by client, ftl instead of local: 7 of 8 clients gain, 1 loses and 0 tie (at most one test row apart); "
        "the median difference is +30.0 points and the largest loss is 10.0 points (client a)."
    )


def test_the_sentence_about_seeds() -> None:
    """An effect of about one standard deviation needs ten seeds; one of a hundredth none would find."""
    best = {0: 0.80, 1: 0.82, 2: 0.84, 3: 0.81, 4: 0.83}
    noise = dict(zip(best, (0.02, -0.02, 0.01, -0.01, 0.0), strict=True))
    near = {seed: value - 0.016 + noise[seed] for seed, value in best.items()}
    same = {seed: value - 0.0001 + noise[seed] for seed, value in best.items()}
    far = {seed: value - 0.5 + noise[seed] for seed, value in best.items()}
    found = statistics(Scores("", {"a": best, "b": near, "c": same, "d": far}), ["a", "b", "c", "d"], "a")
    assert in_words(found, "a", {}, "local") == [
        "You need about 5 more seeds to tell a from b; treat a and c as equal for now, because a difference of 0.0 "
        "points takes more than 200 seeds to tell (these seeds rule out more than 2.0)."
    ]
    assert in_words(statistics(Scores("", {"a": best, "d": far}), ["a", "d"], "a"), "a", {}, "local") == []


def test_p_values_of_clients_are_corrected_too() -> None:
    up = {name: 0.5 + 0.02 * i for i, name in enumerate("abcdefgh", 3)}
    known = scores(x=[up], y=[dict.fromkeys("abcdefgh", 0.5)], z=[dict.fromkeys("abcdefgh", 0.4)])
    found = all_gains(known, [("x", "y"), ("x", "z")])
    assert [one.p for one in found] == [pytest.approx(2 / 2**8)] * 2
    assert [one.p_holm for one in found] == [pytest.approx(4 / 2**8)] * 2


def test_statistics_of_any_figure() -> None:
    """Labels are free: a method, a variant of it, a figure at a budget."""
    known = scores(
        local=[{"a": 0.4}, {"a": 0.5}, {"a": 0.3}],
        **{"fedavg, own": [{"a": 0.7}, {"a": 0.9}, {"a": 0.7}], "fedavg": [{"a": 0.6}, {"a": 0.7}, {"a": 0.6}]},
    )
    found = report.statistics_of(known)
    assert [(one.method, one.other) for one in found.pairs] == [
        ("fedavg, own", "fedavg"),
        ("fedavg, own", "local"),
        ("fedavg", "local"),
    ]
    assert ("fedavg", "local") in [(one.method, one.other) for one in found.per_client]
    assert found.ranks is not None
    assert list(found.ranks.average) == ["fedavg, own", "fedavg", "local"]
    assert report.statistics_of(Scores("", {})).pairs == ()
