"""The two savers: which clients are stragglers, and which are weakly related to their cluster."""

from __future__ import annotations

import torch

from potluck import keys
from potluck.methods.parts.clusterfl import savers


def test_stragglers_move_while_their_cluster_has_settled() -> None:
    """Cluster 0: shares 0.96, 0.02, 0.02 of the change; cluster 1: even; cluster 2: alone."""
    moves = torch.tensor([[0.96, 0.96], [0.02, 0.02], [0.02, 0.02], [0.1, 0.1], [0.1, 0.1], [5.0, 5.0]])
    cluster = (0, 0, 0, 1, 1, 2)
    torch.testing.assert_close(savers.rates(moves, cluster), torch.tensor([0.96, 0.02, 0.02, 0.5, 0.5, 1.0]))
    assert savers.stragglers(moves, cluster, 10.0).tolist() == [True, False, False, False, False, False]
    assert not bool(savers.stragglers(moves, cluster, 30.0).any())


def test_a_straggler_makes_twice_an_even_share_of_its_clusters_change() -> None:
    """Five clients, one with 0.5 of the change: 10 times all others never fires, twice an even share (0.4) does."""
    moves = torch.tensor([[0.5, 0.5], [0.125, 0.125], [0.125, 0.125], [0.125, 0.125], [0.125, 0.125], [9.0, 9.0]])
    cluster, active = (0, 0, 0, 0, 0, 1), torch.ones(6, dtype=torch.bool)
    assert not bool(savers.stragglers(moves, cluster, 10.0).any())
    assert savers.uneven(moves, cluster, 2.0, active).tolist() == [True, False, False, False, False, False]
    assert not bool(savers.uneven(moves, cluster, 3.0, active).any())
    # Against all clients the calm cluster is none of it, and the one that is alone is the straggler.
    assert savers.uneven(moves, (0,) * 6, 2.0, active).tolist() == [False, False, False, False, False, True]
    few = torch.tensor([True, True, False, False, False, True])
    assert not bool(savers.uneven(moves, cluster, 1.0, few).any())  # two are left: nobody is a straggler


def test_controls_of_the_selection() -> None:
    sigma, active = torch.tensor([0.1, 0.5, 0.9, 0.3]), torch.tensor([True, True, False, True])
    assert savers.weakest(sigma, 1, active).tolist() == [0]
    assert savers.weakest(sigma, 1, active, "strongest").tolist() == [1]
    drawn = {tuple(savers.weakest(sigma, 2, active, "random", keys.key(seed)).tolist()) for seed in range(40)}
    assert drawn == {(a, b) for a in (0, 1, 3) for b in (0, 1, 3) if a != b}


def test_a_cluster_that_stands_still_has_no_stragglers() -> None:
    assert savers.rates(torch.full((2, 3), 1e-8), (0, 0)).tolist() == [0.0, 0.0]


def test_importance_is_the_mean_correlation_within_the_cluster() -> None:
    related = torch.tensor([[1.0, 0.8, 0.6, 0.0], [0.8, 1.0, 0.9, 0.1], [0.6, 0.9, 1.0, 0.0], [0.0, 0.1, 0.0, 1.0]])
    sigma = savers.importance(related, (0, 0, 0, 1))
    torch.testing.assert_close(sigma, torch.tensor([2.4 / 3, 2.7 / 3, 2.5 / 3, 1.0]))
    active = torch.ones(len(sigma), dtype=torch.bool)
    assert savers.weakest(sigma, 2, active).tolist() == [0, 2]
    assert savers.weakest(sigma, 99, active).numel() == len(sigma) - 1  # one stays
