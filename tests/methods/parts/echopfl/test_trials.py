"""Trials: a client gets another cluster's model once, and its feedback says whether it belongs there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.clusters import model, nothing_yet, pulled, push, pushed, rules, say

from potluck.methods.echopfl import Grouping
from potluck.methods.parts.echopfl import trials

CFG = rules(count=2, hysteresis=1.0)


def two_clusters() -> Grouping:
    """Cluster 0 near (1, 1, 1) with a, c and e, cluster 1 near (-1, -1, -1) with b and d; all fit."""
    grouping = nothing_yet()
    for client, at in (("a", 1.0), ("b", -1.0), ("c", 1.1), ("d", -1.1), ("e", 1.2)):
        grouping = push(grouping, client, pushed(model(at, at, at), 2.0), CFG)
    clusters = {number: replace(cluster, fits=True) for number, cluster in grouping.clusters.items()}
    return replace(grouping, clusters=clusters)


def misfit(client: str = "c", g: float = 0.9) -> Grouping:
    """The client said that its cluster's model does not fit it at all."""
    grouping, _ = pulled(two_clusters(), client, CFG)
    return push(grouping, client, pushed(model(1.0, 1.0, 0.9), 2.0, version=(9, 9), g=g), CFG)


def test_a_client_that_its_cluster_does_not_fit_is_tried_with_another() -> None:
    grouping = misfit()
    assert dict(grouping.tries) == {"c": 1}
    _, what = pulled(grouping, "c", CFG)
    assert what.cluster == 1
    assert not misfit(g=0.2).tries  # above the floor of 0.1, but not by far
    unfit = {number: replace(cluster, fits=False) for number, cluster in two_clusters().clusters.items()}
    grouping, _ = pulled(replace(two_clusters(), clusters=unfit), "c", CFG)
    after = push(grouping, "c", pushed(model(1.0, 1.0, 0.9), 2.0, version=(9, 9), g=0.9), CFG)
    assert not after.tries  # a cluster that fits nobody is only young


@pytest.mark.parametrize(("g", "cluster"), [(0.05, 1), (0.4, 1), (0.8, 0)])
def test_feedback_decides_whether_the_client_moves(g: float, cluster: int) -> None:
    """It moves if the other model fits (0.1) or is wrong half as much as its own (0.9); otherwise nothing is merged."""
    grouping, _ = pulled(misfit(), "c", CFG)
    after = push(grouping, "c", pushed(model(1.0, 1.0, 1.0), 2.0, version=(20, 9), g=g), CFG)
    assert after.members["c"].cluster == cluster
    assert not after.tries
    if cluster == 0:
        assert [kind for kind, _, _ in after.events] == ["refuse"]
        assert after.members["c"].refused == (1,)
        assert after.clusters == grouping.clusters
        again, _ = pulled(after, "c", CFG)
        again = push(again, "c", pushed(model(1.0, 1.0, 0.9), 2.0, version=(21, 9), g=0.9), CFG)
        assert not again.tries  # never with the same cluster again


def test_refused_clusters_are_asked_again_when_the_clients_data_change() -> None:
    fitted = replace(two_clusters().members["c"], feedback=0.05, refused=(1,))
    grouping = two_clusters()
    grouping, _ = pulled(replace(grouping, members=grouping.members.put("c", fitted)), "c", CFG)
    after = push(grouping, "c", pushed(model(1.0, 1.0, 0.9), 2.0, version=(9, 9), g=0.9), CFG)
    assert after.members["c"].refused == ()
    assert dict(after.tries) == {"c": 1}


def test_after_a_refinement_one_member_of_the_smallest_cluster_is_tried() -> None:
    grouping = trials.after_refinement(two_clusters(), CFG, say)
    assert dict(grouping.tries) in ({"b": 0}, {"d": 0})
    (client,) = grouping.tries
    refused = replace(grouping.members[client], refused=(0,))
    other = trials.after_refinement(
        replace(two_clusters(), members=two_clusters().members.put(client, refused)), CFG, say
    )
    assert client not in other.tries
    assert not trials.after_refinement(two_clusters(), rules(alike=1.0), say).tries


def test_two_members_whose_data_changed_call_for_a_refinement() -> None:
    grouping = two_clusters()
    for client, g in (("a", 0.05), ("c", 0.05)):
        grouping, _ = pulled(grouping, client, CFG)
        grouping = push(grouping, client, pushed(model(1.0, 1.0, 1.0), 2.0, version=(9, 9), g=g), CFG)
    for client, urgent in (("a", False), ("c", True)):
        grouping, _ = pulled(grouping, client, CFG)
        grouping = push(grouping, client, pushed(model(1.0, 1.0, 1.0), 2.0, version=(30, 9), g=0.9), CFG)
        assert trials.urgent(grouping, CFG.clusters) == urgent
    assert not trials.urgent(trials.after_refinement(grouping, CFG, say), CFG.clusters)
