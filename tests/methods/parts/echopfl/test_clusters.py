"""EchoPFL's clusters without a fleet: the acceptance tests of sections 4 to 6, and any order of events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.clusters import EWMA, L1, NAMES, model, nothing_yet, pulled, push, pushed, rules, say
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from potluck import keys
from potluck.methods import echopfl
from potluck.methods.echopfl import Config, Grouping, Pushed
from potluck.methods.parts.echopfl import clusters
from potluck.methods.parts.echopfl.clusters import newest_of
from potluck.methods.parts.echopfl.refinement import refined
from potluck.methods.parts.shared_map import SharedMap


def begun(cfg: Config = EWMA) -> Grouping:
    """Two centres: a near 0 and b near 10."""
    grouping = push(nothing_yet(), "a", pushed(model(0.0, 0.1, 0.0), 2.0), cfg)
    return push(grouping, "b", pushed(model(10.0, 10.0, 10.0), 3.0), cfg)


def test_the_first_distinct_arrivals_are_the_centres() -> None:
    grouping = begun()
    assert list(grouping.clusters) == [0, 1]
    assert [b.examples for b in grouping.clusters.values()] == [2.0, 3.0]
    assert [kind for kind, _, _ in grouping.events] == ["open"]


def test_a_centre_over_again_opens_no_cluster() -> None:
    grouping = push(nothing_yet(), "a", pushed(model(1.0, 1.0, 1.0), 2.0))
    grouping = push(grouping, "b", pushed(model(1.0, 1.0, 1.0), 2.0))
    assert len(grouping.clusters) == 1
    assert grouping.members["b"].cluster == 0


def test_eq_1_the_nearest_centre_in_l1() -> None:
    grouping = push(begun(), "c", pushed(model(1.0, 0.0, 0.0), 2.0))
    assert grouping.members["c"].cluster == 0
    # Two models of weight 2: the mean of (0, 0.1, 0) and (1, 0, 0).
    torch.testing.assert_close(grouping.clusters[0].weights["w"], torch.tensor([0.5, 0.05]))


def test_hysteresis_keeps_a_client_that_would_gain_little() -> None:
    grouping = begun()
    middling = model(5.0, 5.2, 5.0)  # 15.1 from a's model, 14.8 from b's: 2 % less
    assert push(grouping, "a", pushed(middling, 2.0)).members["a"].cluster == 0
    literal = rules(hysteresis=1.0)
    moved = push(grouping, "a", pushed(middling, 2.0), literal)
    assert moved.members["a"].cluster == 1
    assert not moved.clusters[0].members
    assert moved.clusters[0].emptied == 0


@given(
    events=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.lists(st.integers(-8, 8).map(float), min_size=3, max_size=3)),
        min_size=1, max_size=40,
    )
)  # fmt: skip
def test_latest_is_the_mean_of_what_its_members_pushed_last(events: list[tuple[str, list[float]]]) -> None:
    """Acceptance test 1, against uploads kept here: whoever moved, in whatever order they came."""
    cfg = rules(hysteresis=1.0)
    grouping, newest = nothing_yet(), dict[str, torch.Tensor]()
    for client, numbers in events:
        grouping = push(grouping, client, pushed(model(*numbers), 1.0 + "abcdef".index(client)), cfg)
        newest[client] = torch.tensor(numbers)
    assert set(grouping.members) == set(newest)
    for cluster in grouping.clusters.values():
        if cluster.members:
            counts = {client: 1.0 + "abcdef".index(client) for client in cluster.members}
            expected = sum(counts[client] * newest[client] for client in counts) / sum(counts.values())
            found = torch.cat([cluster.weights["w"], cluster.weights["b"]])
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_two_pushes_in_flight_the_later_base_wins() -> None:
    grouping = push(begun(), "a", pushed(model(1.0, 1.0, 1.0), 2.0, version=(5, 3)))
    older = pushed(model(2.0, 2.0, 2.0), 2.0, version=(4, 2))
    assert push(grouping, "a", older).clusters == grouping.clusters
    mixing = rules(merge_rule="mix")
    assert push(grouping, "a", older, mixing).arrivals == grouping.arrivals + 1


def test_a_client_without_data_is_registered_and_does_not_count() -> None:
    grouping = push(begun(), "c", pushed(model(9.0, 9.0, 9.0), 0.0, g=float("nan")))
    assert grouping.members["c"].cluster == 1
    assert grouping.members["c"].feedback is None
    assert grouping.clusters[1].examples == 3.0
    torch.testing.assert_close(grouping.clusters[1].weights["w"], torch.tensor([10.0, 10.0]))


def test_staleness_is_counted_at_the_moment_of_the_merge() -> None:
    grouping = begun()
    for i in range(4):
        grouping = push(grouping, "a", pushed(model(0.1 * i, 0.0, 0.0), 2.0, version=(i + 1, i + 1)))
    assert grouping.clusters[0].depth == 5
    grouping = push(grouping, "c", pushed(model(0.0, 0.0, 0.3), 1.0, version=(1, 1)))  # four versions have passed
    assert grouping.staleness == (4, 4)


def test_mix_and_fedasync_rules_by_hand() -> None:
    mixing = rules(merge_rule="mix")
    grouping = push(begun(mixing), "c", pushed(model(4.0, 0.1, 0.0), 2.0), mixing)
    torch.testing.assert_close(grouping.clusters[0].weights["w"], torch.tensor([2.0, 0.1]))  # 2 of 4 samples
    assert grouping.members["c"].weights is None
    plain = rules(merge_rule="fedasync", eta=0.25)
    grouping = push(begun(plain), "c", pushed(model(4.0, 0.1, 0.0), 2.0), plain)
    torch.testing.assert_close(grouping.clusters[0].weights["w"], torch.tensor([1.0, 0.1]))


def one_cluster(gs: list[float]) -> Grouping:
    """One cluster whose members gave these feedbacks."""
    cfg = rules(count=1)
    grouping = nothing_yet()
    for i, g in enumerate(gs):
        grouping = push(grouping, f"c{i}", pushed(model(float(i), 0.0, 0.0), 1.0 + i, g=g), cfg)
    members = {c: replace(m, feedback=gs[int(c[1:])]) for c, m in grouping.members.items()}
    return replace(grouping, members=SharedMap.of(members))


def guessing(grouping: Grouping) -> Grouping:
    """The same clusters, each with a predictor that is its number."""
    histories = {k: replace(b.history, predictor={"u": torch.tensor([float(k)])}) for k, b in grouping.clusters.items()}
    return replace(grouping, clusters={k: replace(b, history=histories[k]) for k, b in grouping.clusters.items()})


def test_expansion_splits_off_the_worst_fifth() -> None:
    cfg = rules(count=1, split="share")
    before = guessing(one_cluster([0.1, 0.1, 0.9, 0.1, 0.1, 0.1]))
    grouping = refined(before, cfg, L1, say)
    # Two of six (a fifth, rounded up): the worst, and of those that tie the last by name.
    assert sorted(grouping.clusters[1].members) == ["c2", "c5"]
    assert sorted(grouping.clusters[0].members) == ["c0", "c1", "c3", "c4"]
    child = grouping.clusters[1]
    assert child.last_layer
    assert child.history.changes == ()
    assert child.history.predictor is before.clusters[0].history.predictor  # inherited
    assert not grouping.to_broadcast  # no broadcast of a model that members have
    torch.testing.assert_close(child.weights, before.clusters[0].weights)
    assert child.depth == before.clusters[0].depth


def test_a_new_cluster_trains_all_layers_after_the_next_refinement() -> None:
    """Also where no clusters are merged: two splits of C = 2 give four clusters, and h_m C is four."""
    cfg = rules(count=1, alike=1.0, split="share")
    grouping = refined(one_cluster([0.1, 0.1, 0.9, 0.1, 0.1, 0.1]), cfg, L1, say)
    assert grouping.clusters[1].last_layer
    after = refined(grouping, cfg, L1, say)
    assert len(after.clusters) == 2
    assert not any(cluster.last_layer for cluster in after.clusters.values())


def two_sides(turned: float, cfg: Config) -> Grouping:
    """Three members of a cluster say one thing, three of another say it turned: 1 is the same, -1 the opposite."""
    grouping = nothing_yet()
    for i, client in enumerate("abcdef"):
        side = 1.0 if i % 2 == 0 else turned
        grouping = push(grouping, client, pushed(model(2.0 + 0.1 * i, side, side), 2.0), cfg)
    return grouping


@pytest.mark.parametrize(("turned", "count"), [(0.9, 1), (-1.0, 2)])
def test_clusters_that_say_the_same_become_one(turned: float, count: int) -> None:
    cfg = rules(count=2)
    grouping = two_sides(turned, cfg)
    assert len(grouping.clusters) == 2
    assert len(refined(grouping, cfg, L1, say).clusters) == count
    assert len(refined(grouping, rules(count=2, alike=1.0), L1, say).clusters) == 2  # not asked


def disagreeing(gs: list[float]) -> Grouping:
    """One cluster: members 0 to 3 say one thing, the others the opposite, and these are their feedbacks."""
    cfg = rules(count=1)
    grouping = nothing_yet()
    for i in range(len(gs)):
        side = 1.0 if i < 4 else -1.0
        grouping = push(grouping, f"c{i}", pushed(model(side, side, 0.1 * i), 1.0 + i), cfg)
    members = {c: replace(m, feedback=gs[int(c[1:])]) for c, m in grouping.members.items()}
    return replace(grouping, members=SharedMap.of(members))


def test_a_group_that_disagrees_splits_off_with_the_mean_of_its_own_models() -> None:
    before = disagreeing([0.0, 0.0, 0.0, 0.0, 0.9, 0.8])
    grouping = refined(before, rules(count=1), L1, say)
    assert sorted(grouping.clusters[1].members) == ["c4", "c5"]
    # c4 has 5 samples and c5 has 6: the mean of their b is (5 x 0.4 + 6 x 0.5) / 11.
    torch.testing.assert_close(grouping.clusters[1].weights, model(-1.0, -1.0, 5.0 / 11.0))
    assert all(grouping.members[c].weights is before.members[c].weights for c in ("c4", "c5"))
    # Opinions alone do not split a cluster that fits, and neither does one client.
    assert len(refined(disagreeing([0.0] * 6), rules(count=1), L1, say).clusters) == 1
    assert len(refined(disagreeing([0.0, 0.0, 0.0, 0.0, 0.9]), rules(count=1), L1, say).clusters) == 1
    # A group that feels ill at ease and says what the others say stays: one model serves both.
    alike = replace(
        before, members=SharedMap.of({c: replace(m, weights=model(1.0, 1.0, 0.1)) for c, m in before.members.items()})
    )
    assert len(refined(alike, rules(count=1), L1, say).clusters) == 1


def test_a_new_group_is_not_merged_back_at_the_next_refinement() -> None:
    cfg = rules(count=1)
    grouping = refined(disagreeing([0.0, 0.0, 0.0, 0.0, 0.9, 0.8]), cfg, L1, say)
    assert len(refined(grouping, cfg, L1, say).clusters) == 2


def test_first_pushes_go_by_the_answers_and_later_ones_by_l1() -> None:
    """A push near cluster 0 by L1 whose answers are those of cluster 1."""

    def answers(a: Any, b: Any) -> float:
        return abs(float(a["b"]) - float(b["b"]))

    for first, found in (("kl", 1), ("l1", 0), ("direction", 1)):
        cfg = rules(first=first, first_pushes=2, hysteresis=1.0)
        grouping = pulled(begun(cfg), "c", cfg)[0]  # sent: the first model, zeros
        update = pushed(model(1.0, 1.0, 9.0) if first != "direction" else model(1.0, 1.1, 1.0), 2.0)
        after = clusters.push(replace(grouping, events=()), "c", update, cfg, NAMES, L1, answers)
        assert after.members["c"].cluster == found, first
    late = replace(after, members=after.members.put("c", replace(after.members["c"], pushes=2)))
    after = clusters.push(late, "c", pushed(model(1.0, 0.0, 0.0), 2.0, (9, 9)), cfg, NAMES, L1, answers)
    assert after.members["c"].cluster == 0


@pytest.mark.parametrize("split", ["groups", "share"])
@pytest.mark.parametrize("gs", [[0.2] * 6, [1e-4, 1e-4, 1e-4, 1e-4, 9e-4], [0.1, 0.1, 0.1, 0.9]])
def test_no_expansion_without_an_outlier_a_signal_or_five_members(gs: list[float], split: str) -> None:
    assert len(refined(one_cluster(gs), rules(count=1, split=split), L1, say).clusters) == 1


def test_merging_unites_the_closest_pair_and_broadcasts() -> None:
    cfg = rules(count=3, most=1.0)
    grouping = nothing_yet()
    for client, at in (("a", 1.0), ("b", 2.0), ("c", 30.0)):
        grouping = push(grouping, client, pushed(model(at, at, at), 2.0), cfg)
    grouping = push(grouping, "d", pushed(model(30.0, 30.0, 31.0), 2.0), cfg)
    narrow = rules(count=2, most=1.0, alike=1.0)
    grouping = guessing(
        replace(grouping, clusters={k: replace(b, last_layer=True) for k, b in grouping.clusters.items()})
    )
    merged = refined(grouping, narrow, L1, say)
    assert sorted(merged.clusters[0].members) == ["a", "b"]  # a tie in members: the older one is the main model
    assert merged.to_broadcast == (0,)
    predictor = merged.clusters[0].history.predictor
    assert predictor is not None
    assert predictor["u"].tolist() == [0.5]  # the mean of cluster 0's and cluster 1's
    assert merged.clusters[0].broadcast_serial == merged.clusters[0].serial
    assert not any(cluster.last_layer for cluster in merged.clusters.values())
    assert merged.clusters[0].depth > max(grouping.clusters[0].depth, grouping.clusters[1].depth)
    assert merged.members["b"].cluster == 0


def test_a_cluster_without_members_is_kept_for_one_refinement() -> None:
    literal = rules(hysteresis=1.0)
    grouping = push(begun(literal), "a", pushed(model(9.0, 9.0, 9.0), 2.0), literal)
    once = refined(grouping, literal, L1, say)
    assert 0 in once.clusters
    assert 0 not in refined(once, literal, L1, say).clusters
    back = push(once, "a", pushed(model(0.0, 0.0, 0.0), 2.0), literal)
    assert back.members["a"].cluster == 0
    assert back.clusters[0].emptied == -1


def test_a_client_never_seen_again_is_forgotten_when_asked_for() -> None:
    cfg = rules(count=1, forget_after=2)
    grouping = push(nothing_yet(), "a", pushed(model(1.0, 1.0, 1.0), 1.0), cfg)
    grouping = push(grouping, "b", pushed(model(3.0, 3.0, 3.0), 1.0), cfg)
    for i in range(3):
        grouping = push(grouping, "b", pushed(model(3.0, 3.0, 3.0), 1.0, version=(i + 3, i + 3)), cfg)
        grouping = refined(grouping, cfg, L1, say)
    assert set(grouping.members) == {"b"}
    torch.testing.assert_close(grouping.clusters[0].weights, model(3.0, 3.0, 3.0))


def converging(rule: str, steps: int = 250) -> tuple[int, list[bool]]:
    """One cluster whose pushes come nearer and nearer, with noise: how often it broadcasts."""
    cfg = rules(predictor=rule, count=1)
    draw = keys.rng("converging")
    grouping = replace(nothing_yet(), first={"w": torch.zeros(200), "b": torch.zeros(1)})
    sent = []
    for t in range(steps):
        noise = 0.5 + 5.0 / (1 + 0.05 * t)
        at = torch.from_numpy(draw.normal(size=200).astype(np.float32)) * noise * 0.1 + 1.0 - 0.99**t
        weights = {"w": at, "b": torch.zeros(1)}
        grouping = push(grouping, f"c{t % 8}", pushed(weights, 10.0, version=(grouping.serial, grouping.serial)), cfg)
        sent.append(bool(grouping.to_broadcast))
    return grouping.broadcasts, sent


def test_the_text_form_rule_hardly_broadcasts_and_section_6_does() -> None:
    text, _ = converging("text")
    assert text < 0.02 * 250
    for name in ("ewma", "rnn"):
        often, _ = converging(name)
        assert 0.3 * 250 <= often <= 250, name


def test_always_never_and_every_k() -> None:
    assert converging("never", 40)[0] == 0
    assert converging("always", 40)[0] == 39 - 0  # the first arrival is alone
    times, sent = converging("every:5", 41)
    assert times == 8
    assert [t for t, now in enumerate(sent) if now] == [5, 10, 15, 20, 25, 30, 35, 40]


def test_no_broadcast_without_a_change() -> None:
    cfg = rules(predictor="always", count=1)
    grouping = push(nothing_yet(), "a", pushed(model(1.0, 1.0, 1.0), 1.0), cfg)
    grouping = push(grouping, "b", pushed(model(2.0, 2.0, 2.0), 1.0), cfg)
    assert grouping.to_broadcast == (0,)
    again = push(grouping, "b", pushed(model(2.0, 2.0, 2.0), 1.0), cfg)
    assert again.to_broadcast == ()


def test_the_light_variant_is_an_upper_bound_of_a() -> None:
    exact, light = rules(predictor="never", count=1), rules(predictor="never", count=1, light=True)
    one = two = nothing_yet()
    draw = keys.rng("light")
    for t in range(20):
        update = pushed(model(*(float(v) for v in draw.normal(size=3))), 1.0)
        one, two = push(one, f"c{t % 3}", update, exact), push(two, f"c{t % 3}", update, light)
        assert two.clusters[0].history.away >= one.clusters[0].history.away - 1e-5


def listeners(grouping: Grouping, number: int, sender: str) -> list[str]:
    """The clients that a broadcast of this cluster goes to."""
    found: list[str] = []

    class Posts:
        def post(self, note: Any, to: Any) -> None:
            assert len(to) == len(list(to))
            assert sender not in to
            found.extend(to)

    echopfl.broadcast(Posts(), replace(grouping, to_broadcast=(number,)), sender, EWMA)  # type: ignore[arg-type]
    return sorted(found)


def test_a_client_that_has_not_pushed_yet_gets_the_largest_clusters_broadcast() -> None:
    cfg = rules(predictor="always")
    grouping = nothing_yet()
    for client in ("a", "b", "c", "d", "e"):
        grouping, _ = pulled(grouping, client, cfg)
    grouping = push(grouping, "a", pushed(model(0.0, 0.1, 0.0), 2.0), cfg)
    grouping = push(grouping, "b", pushed(model(10.0, 10.0, 10.0), 3.0), cfg)
    assert newest_of(grouping, "d").serial == 0  # no cluster has two members: no broadcast
    grouping = push(grouping, "c", pushed(model(0.0, 0.3, 0.0), 2.0), cfg)
    assert grouping.to_broadcast == (0,)
    assert listeners(grouping, 0, "c") == ["a", "d", "e"]
    assert listeners(grouping, 1, "c") == ["b"]
    torch.testing.assert_close(newest_of(grouping, "d").weights, grouping.clusters[0].weights)
    assert newest_of(grouping, "b").cluster == -1  # another cluster's broadcast is not for its members
    grouping = push(grouping, "d", pushed(model(10.0, 10.0, 9.0), 1.0, version=(3, 2)), cfg)
    assert listeners(grouping, 0, "a") == ["c", "e"]


class AnyOrder(RuleBasedStateMachine):
    """Pushes, late and repeated ones, joins, losses and refinements in any order: what must hold, holds."""

    clients = tuple(f"c{i}" for i in range(7))
    cfg = rules(hysteresis=1.0, most=1.5, forget_after=3)

    def __init__(self) -> None:
        super().__init__()
        self.grouping = nothing_yet()
        self.sent: dict[str, list[tuple[int, int]]] = {}
        self.moments = 0

    def update(self, client: str, base: tuple[int, int], numbers: list[float], g: float) -> Pushed:
        return pushed(model(*numbers), float(1 + int(client[1:])), base, g)

    @rule(client=st.sampled_from(clients))
    def pull(self, client: str) -> None:
        """Also what happens after a loss, and when a client joins or comes back."""
        self.grouping, what = pulled(self.grouping, client, self.cfg)
        self.sent.setdefault(client, []).append((what.serial, what.depth))

    @rule(
        client=st.sampled_from(clients),
        numbers=st.lists(st.integers(-8, 8).map(float), min_size=3, max_size=3),
        g=st.sampled_from([0.0, 0.01, 0.02, 0.5]),
        late=st.booleans(),
    )
    def push(self, client: str, numbers: list[float], g: float, late: bool) -> None:
        if client not in self.sent:
            return
        base = self.sent[client][0 if late else -1]
        member = self.grouping.members.get(client)
        before = self.grouping
        self.grouping = push(before, client, self.update(client, base, numbers, g), self.cfg)
        if member is not None and base[0] < member.base:
            assert self.grouping.clusters == before.clusters  # overtaken: nothing changes
            return
        cluster = self.grouping.clusters[self.grouping.members[client].cluster]
        assert cluster.serial > max((b.serial for b in before.clusters.values()), default=0) - 1
        assert client in cluster.members

    @rule(client=st.sampled_from(clients), numbers=st.lists(st.integers(-8, 8).map(float), min_size=3, max_size=3))
    def push_twice(self, client: str, numbers: list[float]) -> None:
        """The same update again: whoever stays where it is changes nothing by it."""
        if client not in self.sent:
            return
        update = self.update(client, self.sent[client][-1], numbers, 0.0)
        once = push(self.grouping, client, update, self.cfg)
        self.grouping = push(once, client, update, self.cfg)
        before, after = once.members[client].cluster, self.grouping.members[client].cluster
        if before == after:
            centres = (grouping.clusters[after].weights for grouping in (once, self.grouping))
            torch.testing.assert_close(*centres, atol=1e-4, rtol=1e-4)
            assert sorted(self.grouping.clusters[after].members) == sorted(once.clusters[before].members)

    @rule()
    def refine(self) -> None:
        self.grouping = refined(replace(self.grouping, events=()), self.cfg, L1, say)
        living = [b for b in self.grouping.clusters.values() if b.members]
        assert (
            len(living) <= 2 * self.cfg.clusters.most * self.cfg.clusters.count
        )  # each may have split once after the merging

    @invariant()
    def the_centre_is_the_mean_of_its_members(self) -> None:
        """Acceptance test 1: `latest` equals the weighted mean over the models on record after any order of events."""
        for number, cluster in self.grouping.clusters.items():
            members = [self.grouping.members[c] for c in sorted(cluster.members)]
            assert all(m.cluster == number for m in members)
            total = sum(m.examples for m in members)
            assert cluster.examples == pytest.approx(total)
            if not members:
                continue
            for name in NAMES:
                mean = sum(m.weights[name] * m.examples for m in members if m.weights is not None) / total
                torch.testing.assert_close(cluster.weights[name], mean, atol=2e-4, rtol=2e-4)

    @invariant()
    def each_client_is_in_one_cluster_and_has_a_model(self) -> None:
        listed = [c for cluster in self.grouping.clusters.values() for c in cluster.members]
        assert sorted(listed) == sorted(self.grouping.members)
        for client in self.clients:
            held = newest_of(self.grouping, client)
            assert held.serial <= self.grouping.serial
            assert all(bool(torch.isfinite(v).all()) for v in held.weights.values())

    @invariant()
    def versions_only_grow(self) -> None:
        serials = [cluster.serial for cluster in self.grouping.clusters.values()]
        assert len(set(serials)) == len(serials)
        assert max(serials, default=0) <= self.grouping.serial
        assert self.grouping.serial >= self.moments
        self.moments = self.grouping.serial


AnyOrder.TestCase.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAnyOrder = AnyOrder.TestCase
