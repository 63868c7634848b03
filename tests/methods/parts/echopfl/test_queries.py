"""Client-initiated pull: who asks, and who is sent a model."""

from __future__ import annotations

from dataclasses import replace

import torch
from helpers.clusters import L1, METHOD, model, nothing_yet, pulled, push, pushed, rules
from helpers.fleets import LINK, PC, fleet_of, made

from potluck.methods import echopfl
from potluck.methods.parts.echopfl import queries
from potluck.methods.parts.echopfl.clusters import newest_of

CFG = rules(count=1, predictor="never", query_every=1.0)


def test_only_clients_whose_model_is_far_from_their_clusters_are_sent_it() -> None:
    grouping = nothing_yet()
    for client in ("a", "b", "c"):
        grouping = push(grouping, client, pushed(model(1.0, 1.0, 1.0), 2.0), CFG)
        grouping, _ = pulled(grouping, client, CFG)  # each has the model of that moment
    for i in range(3):
        far = pushed(model(9.0, 9.0, 9.0 + i), 2.0, version=(i + 5, 5))
        grouping = push(grouping, "a", far, CFG)
    grouping, _ = pulled(grouping, "c", CFG)
    after, to = queries.answered(grouping, ["b", "c", "new"], CFG, L1)
    assert to == {0: ["b"]}  # c got it just now
    torch.testing.assert_close(newest_of(after, "b").weights, grouping.clusters[0].weights)
    assert [kind for kind, _, _ in after.events][-1] == "query"
    assert queries.answered(after, ["b"], CFG, L1)[1] == {}  # nothing new since
    assert queries.answered(grouping, ["b"], rules(count=1, c_gain=1e6), L1)[1] == {}
    trial = replace(grouping, sent=grouping.sent.put("b", replace(grouping.sent["b"], cluster=7, serial=99)))
    assert queries.answered(trial, ["b"], CFG, L1)[1] == {}  # it tries another cluster's model


def test_the_moments_of_queries() -> None:
    assert queries.next_at(7.0, 0.0) is None
    assert queries.next_at(0.0, 0.5) == 0.5
    assert queries.next_at(0.5, 0.5) == 1.0
    assert queries.next_at(1.2, 0.5) == 1.5


def test_clients_at_work_get_newer_models_by_asking() -> None:
    """Without broadcasts a slow client trains on what it was sent; with queries it is rebased on the way."""
    found = {}
    for every in (0.0, 0.02):
        cfg = METHOD.configure(
            {"broadcast.predictor": "never", "broadcast.query_every": every, "clusters.count": 1, "recipe.batch": 5}
        )
        slow = replace(PC, macs_per_second=1e5)
        fleet, state = fleet_of(METHOD, cfg, made((12, 12, 12)), equipment=[(PC, LINK), (slow, LINK)])
        program = METHOD.server(fleet, state, cfg)
        kinds = []
        for _ in range(60):
            state = next(program)
            kinds += [kind for kind, _, _ in echopfl.events(state)]
        found[every] = (kinds.count("query"), state.grouping.staleness[0] / max(1, state.grouping.arrivals))
    assert found[0.0][0] == 0
    assert found[0.02][0] > 0
    assert found[0.02][1] < found[0.0][1]
