"""Eq. 3: how well a cluster's model fits a client."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from potluck.methods.parts.echopfl.feedback import ClassCounts, feedback, judged, nothing

RIGHT = torch.zeros(2)  # eq. 3 does not ask which predictions are right


def test_errors_see_renamed_labels() -> None:
    """All names exchanged: the frequencies agree, so eq. 3 is 0; the errors say that everything is wrong."""
    even = torch.tensor([5.0, 5.0, 0.0])
    renamed = ClassCounts(even, even, even, torch.zeros(3))
    assert float(judged(renamed, "frequencies")) == 0.0
    assert float(judged(renamed, "errors")) == 1.0
    half = replace(renamed, right=torch.tensor([5.0, 2.5, 0.0]))
    assert float(judged(half, "errors")) == pytest.approx(0.5 * 0.25)
    assert float(judged(nothing(3), "errors")) == 0.0


def test_eq_3_feedback_by_hand() -> None:
    # 4 samples, all of class 0; half predicted as 0, half as 1; the mean softmax output is (0.75, 0.25).
    counts = ClassCounts(torch.tensor([2.0, 2.0]), torch.tensor([4.0, 0.0]), torch.tensor([3.0, 1.0]), RIGHT)
    chi = 0.25 / (1 + 0.25) + 0.25 / 0.25
    assert float(feedback(counts)) == pytest.approx(chi * 0.0625)


def test_eq_3_is_0_for_a_match_finite_for_one_class_and_0_for_an_untrained_model() -> None:
    match = ClassCounts(torch.tensor([3.0, 1.0]), torch.tensor([3.0, 1.0]), torch.tensor([3.0, 1.0]), RIGHT)
    assert float(feedback(match)) == 0.0
    wrong = ClassCounts(torch.tensor([0.0, 5.0]), torch.tensor([5.0, 0.0]), torch.tensor([1.0, 4.0]), RIGHT)
    assert 0.0 < float(feedback(wrong)) < float("inf")
    untrained = replace(wrong, soft=torch.tensor([2.5, 2.5]))
    assert float(feedback(untrained)) == 0.0
    assert float(feedback(nothing(3))) == 0.0  # no data at all
