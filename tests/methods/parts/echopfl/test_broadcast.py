"""When to broadcast: the rules by hand, and the recurrent predictor against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from potluck import compiled, keys
from potluck.methods.parts.echopfl import broadcast
from potluck.methods.parts.echopfl import predictor as recurrent
from potluck.methods.parts.echopfl.broadcast import KEPT, BroadcastRules, History, due, noted, probability, sent, united


def test_the_gradient_of_the_predictor_is_autograds() -> None:
    weights = recurrent.fresh(2, 5, "test")
    x = keys.normal(keys.key("x"), (3, KEPT, 2))
    target = (keys.uniform(keys.key("t"), (3, KEPT)) > 0.5).float()
    used = torch.ones(3, KEPT)
    used[:, -1] = 0.0
    free = {name: value.clone().requires_grad_() for name, value in weights.items()}
    flat = [
        part
        for layer in (0, 1)
        for part in (free[f"w_{layer}"], free[f"v_{layer}"], free[f"b_{layer}"], torch.zeros(5))
    ]
    hidden, _ = torch.rnn_tanh(x, torch.zeros(2, 3, 5), flat, True, 2, 0.0, False, False, True)
    scores = hidden @ free["u"] + free["c"]
    losses = torch.nn.functional.binary_cross_entropy_with_logits(scores, target, reduction="none")
    ((losses * used).sum() / used.sum()).backward()
    ours = recurrent.gradient(recurrent.arrays(weights), x.numpy(), target.numpy(), used.numpy())
    for name, value in free.items():
        assert value.grad is not None
        np.testing.assert_allclose(ours[name], value.grad.numpy(), atol=1e-5)
    np.testing.assert_allclose(recurrent.forward(recurrent.arrays(weights), x.numpy())[0], scores.detach(), atol=1e-5)


def test_ewma_by_hand() -> None:
    history = noted(History(), change=4.0, away=4.0, gain=1.0)
    assert history.expected == 4.0
    assert due(history, BroadcastRules("ewma", 1.0))  # 4 >= 4
    history = noted(sent(history), change=2.0, away=2.0, gain=1.0)
    assert history.expected == pytest.approx(0.7 * 4 + 0.3 * 2)
    assert not due(history, BroadcastRules("ewma", 1.0))  # 2 < 3.4
    assert due(history, BroadcastRules("text", 1.0))  # the other way round
    history = noted(history, change=2.0, away=4.0, gain=1.0)
    assert due(history, BroadcastRules("ewma", 1.0))
    assert not due(history, BroadcastRules("ewma", 2.0))


def test_after_a_broadcast_none_is_due_before_something_changes() -> None:
    history = sent(noted(History(), change=1.0, away=1.0, gain=1.0))
    for rule in ("ewma", "text", "always", "every:1"):
        assert not due(history, BroadcastRules(rule, 1.0))


def test_the_predictor_is_pretrained_on_1200_states_and_knows_the_obvious() -> None:
    windows = broadcast.recorded()
    assert sum(1 for _ in windows) > 1000
    predictor = broadcast.pretrained(1.0, 0)
    steady = [(1.0, 3.0)] * KEPT  # far behind, small steps
    shortly = [(1.0, 0.2)] * KEPT  # just told, large steps
    assert broadcast.probability(predictor, steady) > 0.9
    assert broadcast.probability(predictor, shortly) < 0.5
    right = [
        (broadcast.probability(predictor, window[:-1]) >= 0.5) == (window[-2][1] >= window[-1][0]) for window in windows
    ]
    assert np.mean(right) > 0.7


def test_fine_tuning_follows_what_happens() -> None:
    predictor = recurrent.fresh(2, broadcast.UNITS, "untrained")
    changes = [(1.0, 5.0)] * KEPT
    before = broadcast.probability(predictor, changes)
    for _ in range(30):
        predictor = broadcast.tuned(predictor, changes, 1.0)
    assert broadcast.probability(predictor, changes) > before


def test_a_split_inherits_the_predictor_and_a_merge_averages_it() -> None:
    one, two = (History(predictor=recurrent.fresh(2, 4, i), changes=((float(i), 1.0),) * 10) for i in (1, 2))
    assert broadcast.inherited(one).predictor is one.predictor
    assert broadcast.inherited(one).changes == ()
    both = broadcast.united(one, two, 0)
    assert both.predictor is not None
    assert one.predictor is not None
    assert two.predictor is not None
    torch.testing.assert_close(both.predictor["u"], (one.predictor["u"] + two.predictor["u"]) / 2)
    assert len(both.changes) == KEPT


def test_records_are_shared_out_by_their_variance() -> None:
    quiet = History(changes=((1.0, 1.0),) * 10)
    lively = History(changes=tuple((float(i), 1.0) for i in range(10)))
    assert broadcast.united(quiet, lively, 0).changes == lively.changes


def test_a_distilled_predictor_says_what_its_parents_say() -> None:
    """Two predictors that disagree: the student is nearer to the mean of their answers than the mean of the weights."""
    a, b = (recurrent.fresh(2, 8, "teacher", seed) for seed in (1, 2))
    one = [(1.0, 0.5 * i) for i in range(1, 9)]
    two = [(0.5, 0.2), (0.7, 3.0), (2.0, 0.1), (0.3, 0.3)]
    parents = [History(changes=tuple(records), predictor=own) for own, records in ((a, one), (b, two))]
    says = (probability(a, one) + probability(b, one)) / 2
    mean, distilled = (united(*parents, 0, unite=how).predictor for how in ("mean", "distil"))
    assert mean is not None
    assert distilled is not None
    assert abs(probability(distilled, one) - says) < abs(probability(mean, one) - says)


def test_a_kernels_lesson_is_that_of_the_arrays() -> None:
    weights = recurrent.fresh(2, broadcast.UNITS, "lesson")
    draw = np.random.default_rng(5)
    for length in (2, 7, KEPT):
        changes = tuple((float(a), float(b)) for a, b in draw.random((length, 2)) + 0.5)
        given = broadcast._inputs(changes), *broadcast._targets(changes, 1.0), broadcast.STEP
        ours = recurrent.stepped(weights, *given)
        with compiled.off():
            theirs = recurrent.stepped(weights, *given)
            assert recurrent.last_score(theirs, given[0]) == pytest.approx(
                float(recurrent.forward(recurrent.arrays(theirs), given[0][None])[0][0, -1])
            )
            score = recurrent.last_score(ours, given[0])
        assert recurrent.last_score(ours, given[0]) == pytest.approx(score, abs=1e-4)
        for name, value in theirs.items():
            np.testing.assert_allclose(ours[name], value, atol=2e-6)
            assert ours[name].shape == weights[name].shape
        assert all(
            torch.equal(value, recurrent.fresh(2, broadcast.UNITS, "lesson")[name]) for name, value in weights.items()
        )
        weights = recurrent.fresh(2, broadcast.UNITS, "lesson")
