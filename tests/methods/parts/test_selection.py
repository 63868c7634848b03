"""Centaur's data selection: shares, ties, edge cases, and the closed forms it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import beta as beta_function

from potluck import keys
from potluck.errors import BadInput
from potluck.methods.parts.selection import (
    EVERYTHING,
    Queue,
    Rule,
    cdf,
    enqueue,
    expected_sent,
    expected_shares,
    expected_trained,
    gradient_norm,
    newest,
    remembered_ranks,
    select,
)
from potluck.tasks import Classification


def shares(rule: Rule, n: int = 100_000, **options: object) -> list[float]:
    losses = keys.uniform(keys.key("losses"), (n,))
    chosen = select(rule, losses, torch.ones(n), keys.key("coins"), **options)  # type: ignore[arg-type]
    assert torch.equal(chosen.discard + chosen.keep + chosen.send, torch.ones(n))
    return [float(part.mean()) for part in (chosen.discard, chosen.keep, chosen.send)]


@pytest.mark.parametrize(("alpha", "beta"), [(5, 3), (1, 10), (3, 5), (10, 1)])
def test_eq_2_shares_on_uniform_losses(alpha: float, beta: float) -> None:
    """Acceptance test 1: |D_M| = 1/(beta+1), |D_C| = 1 - 1/(alpha+1) - 1/(beta+1) + B(beta+1, alpha+1)."""
    send = 1 / (beta + 1)
    keep = 1 - 1 / (alpha + 1) - send + beta_function(beta + 1, alpha + 1)
    assert shares(Rule(alpha, beta)) == pytest.approx([1 - send - keep, keep, send], abs=0.005)
    assert expected_shares(Rule(alpha, beta)) == pytest.approx([1 - send - keep, keep, send], abs=1e-6)


def test_the_papers_setting_keeps_58_5_per_cent() -> None:
    assert expected_shares(Rule()) == pytest.approx([0.165, 0.585, 0.25], abs=0.0005)


def test_the_printed_form_leaves_little_to_learn_from() -> None:
    assert shares(Rule(form="printed"))[1] == pytest.approx(0.056, abs=0.005)
    assert expected_shares(Rule(form="printed"))[1] == pytest.approx(0.056, abs=0.002)


def test_random_selection_has_the_same_shares_and_forgets_the_losses() -> None:
    assert shares(Rule(by="random")) == pytest.approx(expected_shares(Rule()), abs=0.005)
    losses = torch.arange(20_000.0)
    sent = select(Rule(by="random"), losses, torch.ones(20_000), keys.key(1)).send
    assert float(sent[10_000:].mean()) == pytest.approx(float(sent[:10_000].mean()), abs=0.02)
    by_loss = select(Rule(), losses, torch.ones(20_000), keys.key(1)).send
    assert float(by_loss[10_000:].mean()) > 5 * float(by_loss[:10_000].mean())


@pytest.mark.parametrize("rule", [Rule(), Rule(gamma=2.0), Rule(outliers=0.1)], ids=["5 3 0", "gamma", "outliers"])
def test_random_selection_chooses_as_many_over_several_draws(rule: Rule) -> None:
    """Losses hardly move between epochs, so that these choose the same samples again; so must lots."""
    n, sent = 50_000, []
    losses, norms = keys.uniform(keys.key("losses"), (n,)), keys.uniform(keys.key("norms"), (n,))
    for by in ("loss", "random"):
        union = torch.zeros(n)
        for draw in range(4):
            one = select(
                replace(rule, by=by), losses, torch.ones(n), keys.key("coins", draw), norms=lambda: norms,
                lots=keys.key("round"),
            )  # fmt: skip
            union = torch.maximum(union, one.send)
        sent.append(float(union.mean()))
    assert sent[1] == pytest.approx(sent[0], abs=0.006)
    other = select(Rule(by="random"), losses, torch.ones(n), keys.key("coins", 0), lots=keys.key("next round"))
    again = select(Rule(by="random"), losses, torch.ones(n), keys.key("coins", 0), lots=keys.key("round"))
    assert not torch.equal(other.send, again.send)


def test_random_selection_sets_no_losses_aside() -> None:
    losses = torch.arange(20_000.0)
    gone = select(Rule(alpha=0.0, by="random", outliers=0.1), losses, torch.ones(20_000), keys.key(1)).discard
    assert float(gone.mean()) == pytest.approx(0.1, abs=1e-4)
    assert float(gone[18_000:].mean()) == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("gamma", [1.0, 3.0, 5.0])
def test_eq_3_moves_the_expected_share_to_the_partner(gamma: float) -> None:
    norms = keys.uniform(keys.key("norms"), (100_000,))
    rule = Rule(gamma=gamma)
    assert shares(rule, norms=lambda: norms) == pytest.approx(expected_shares(rule), abs=0.005)


@pytest.mark.parametrize(
    "rule",
    [Rule(hand_over="any"), Rule(beta=1.0, outliers=0.1, hand_over="any"), Rule(gamma=2.0, hand_over="any")],
    ids=["5 3 0", "outliers", "gamma"],
)
def test_the_expected_share_of_several_draws(rule: Rule) -> None:
    """What is handed over is what any epoch chose; by brute force on losses that do not change."""
    n = 50_000
    losses, norms = keys.uniform(keys.key("losses"), (n,)), keys.uniform(keys.key("norms"), (n,))
    sent = torch.zeros(n)
    for draw in range(4):
        fresh = norms if draw == 0 else keys.uniform(keys.key("norms", draw), (n,))
        one = select(rule, losses, torch.ones(n), keys.key("coins", draw), norms=lambda norms=fresh: norms)
        sent = torch.maximum(sent, one.send)
    assert expected_sent(rule, 4) == pytest.approx(float(sent.mean()), abs=0.006)
    assert expected_sent(rule, 1) == pytest.approx(expected_shares(rule)[2], abs=1e-6)


@pytest.mark.parametrize(
    "rule", [Rule(), Rule(beta=1.0, outliers=0.1), Rule(gamma=2.0)], ids=["5 3 0", "outliers", "gamma"]
)
def test_the_expected_share_where_the_first_draw_counts(rule: Rule) -> None:
    n, trained = 50_000, 0.0
    losses, norms = keys.uniform(keys.key("losses"), (n,)), keys.uniform(keys.key("norms"), (n,))
    sent: torch.Tensor | None = None
    for draw in range(4):
        one = select(rule, losses, torch.ones(n), keys.key("coins", draw), norms=lambda: norms, sent=sent)
        assert sent is None or torch.equal(one.send, sent)
        assert torch.equal(one.discard + one.keep + one.send, torch.ones(n))
        sent, trained = one.send, trained + float(one.keep.mean())
    assert sent is not None
    assert expected_sent(rule, 4) == pytest.approx(float(sent.mean()), abs=0.006)
    assert expected_trained(rule, 4) == pytest.approx(trained, abs=0.02)
    assert expected_sent(replace(rule, hand_over="all"), 4) == 1.0


def test_ranks_of_remembered_losses_and_lots_for_the_others() -> None:
    known = torch.cat([torch.arange(1000.0), torch.full((1000,), -1.0)])
    ranks = remembered_ranks(known, torch.ones(2000), keys.key(3))
    assert torch.equal(ranks[:1000], (torch.arange(1000.0) + 1) / 1000)
    assert float(ranks[1000:].mean()) == pytest.approx(0.5, abs=0.03)
    again = remembered_ranks(torch.full((2000,), -1.0), torch.ones(2000), keys.key(3))
    assert bool(((again > 0) & (again < 1)).all())


def test_an_exponent_of_0_is_off() -> None:
    assert shares(EVERYTHING, 100) == [0.0, 1.0, 0.0]
    assert shares(Rule(alpha=0.0))[0] == 0.0
    assert shares(Rule(beta=0.0))[2] == 0.0
    assert not EVERYTHING.selects


def test_the_cdf_is_rank_over_n_and_ties_share_the_lowest() -> None:
    losses = torch.tensor([3.0, 1.0, 2.0, 2.0])
    assert cdf(losses, torch.ones(4)).tolist() == [1.0, 0.25, 0.5, 0.5]


def test_padding_is_not_part_of_the_distribution() -> None:
    u = cdf(torch.tensor([5.0, 0.0, 1.0, 9.0]), torch.tensor([1.0, 0.0, 1.0, 0.0]))
    assert u[0] == 1.0
    assert u[2] == 0.5


def test_equal_losses_get_the_middle_rank() -> None:
    assert cdf(torch.full((5,), 0.7), torch.ones(5)).tolist() == pytest.approx([0.6] * 5)


def test_one_sample_is_never_discarded_and_always_sent() -> None:
    chosen = select(Rule(), torch.tensor([0.3]), torch.ones(1), keys.key(0))
    assert (chosen.discard.item(), chosen.keep.item(), chosen.send.item()) == (0.0, 0.0, 1.0)


def test_a_loss_that_is_not_a_number_goes_to_the_partner() -> None:
    losses = torch.tensor([torch.nan, 0.1, 0.2, torch.inf, 0.4])
    for seed in range(20):
        sent = select(Rule(), losses, torch.ones(5), keys.key(seed)).send
        assert sent[0] == sent[3] == 1.0


def test_no_samples_at_all_choose_nothing() -> None:
    chosen = select(Rule(), torch.zeros(3), torch.zeros(3), keys.key(0))
    assert float(chosen.keep.sum() + chosen.send.sum() + chosen.discard.sum()) == 0.0


def test_a_queue_is_the_distribution() -> None:
    queue = Queue(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    assert cdf(torch.tensor([0.5, 2.0, 2.5, 9.0]), torch.ones(4), queue).tolist() == pytest.approx(
        [1 / 3, 2 / 3, 1.0, 1.0]
    )


def test_an_empty_queue_keeps_everything() -> None:
    queue = Queue(torch.zeros(4), torch.zeros(4))
    chosen = select(Rule(), torch.tensor([1.0, 2.0]), torch.ones(2), keys.key(0), queue=queue)
    assert chosen.keep.tolist() == [1.0, 1.0]


def test_the_queue_holds_the_newest() -> None:
    queue = enqueue(Queue(torch.zeros(3), torch.zeros(3)), torch.tensor([1.0, 9.0, 2.0]), torch.tensor([1.0, 0.0, 1.0]))
    assert queue.losses[queue.weight > 0].tolist() == [1.0, 2.0]
    queue = enqueue(queue, torch.tensor([3.0, 4.0]), torch.ones(2))
    assert queue.losses.tolist() == [2.0, 3.0, 4.0]


def test_outliers_are_set_aside() -> None:
    losses = torch.arange(200.0)
    for seed in range(5):
        chosen = select(Rule(outliers=0.05), losses, torch.ones(200), keys.key(seed))
        assert chosen.discard[190:].tolist() == [1.0] * 10
        assert float(chosen.send.sum()) > 20
    assert shares(Rule(outliers=0.1)) == pytest.approx(expected_shares(Rule(outliers=0.1)), abs=0.005)


def test_gradient_norm_equals_autograd() -> None:
    """Acceptance test 2."""
    a = keys.normal(keys.key("a"), (50, 7))
    y = torch.arange(50) % 4
    weight = keys.normal(keys.key("w"), (4, 7)).requires_grad_()
    closed = gradient_norm(Classification(classes=len(weight)), a @ weight.detach().T, y, a)
    for i in range(50):
        loss = torch.nn.functional.cross_entropy((a[i] @ weight.T)[None], y[i : i + 1])
        (slope,) = torch.autograd.grad(loss, weight)
        assert float(closed[i]) == pytest.approx(float(slope.norm()), abs=1e-6, rel=1e-5)


def test_the_newest_stay_and_chance_decides_among_equals() -> None:
    stamps = torch.tensor([0.0, 1.0, 2.0, 2.0, 3.0])
    place = newest(stamps, 3, keys.key(0))
    assert place[0] == 4
    assert set(place[1:].tolist()) == {2, 3}
    picks = {int(newest(torch.ones(4), 1, keys.key(seed))[0]) for seed in range(40)}
    assert picks == {0, 1, 2, 3}


@given(st.lists(st.floats(0, 10, width=32), min_size=1, max_size=30), st.integers(0, 1000), st.integers(0, 5))
def test_the_three_sets_part_the_samples_however_stacked(losses: list[float], seed: int, padding: int) -> None:
    values = torch.tensor(losses + [0.0] * padding)
    weight = torch.tensor([1.0] * len(losses) + [0.0] * padding)
    alone = select(Rule(gamma=1.0), values, weight, keys.key(seed), norms=lambda: values)
    assert torch.equal(alone.discard + alone.keep + alone.send, weight)
    bare = select(
        Rule(gamma=1.0),
        values[: len(losses)],
        weight[: len(losses)],
        keys.key(seed),
        norms=lambda: values[: len(losses)],
    )
    assert torch.equal(alone.send[: len(losses)], bare.send)

    def one(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return select(Rule(gamma=1.0), x, w, keys.key(seed), norms=lambda: x).send

    stacked = torch.func.vmap(one)(torch.stack([values, values]), torch.stack([weight, weight]))
    assert torch.equal(stacked[1], alone.send)


@pytest.mark.parametrize(
    "settings",
    [{"alpha": -1.0}, {"form": "other"}, {"by": "age"}, {"outliers": 1.0}, {"queue": -1}],
    ids=lambda s: next(iter(s)),
)
def test_a_wrong_value_is_refused_with_the_settings_name(settings: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=f"^{next(iter(settings))}: "):
        Rule(**settings)  # type: ignore[arg-type]
