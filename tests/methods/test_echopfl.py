"""EchoPFL against its specification: the seven acceptance tests, and clusters under any order of events."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import LINK, PC, fleet_of, made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from potluck import keys, methods
from potluck.engines.local import Faults
from potluck.errors import BadInput
from potluck.fleet import Arrival, Data, Params
from potluck.methods import echopfl
from potluck.methods.echopfl import Note, Work, rebased
from potluck.methods.parts.echopfl import clusters as woods
from potluck.methods.parts.echopfl import merging as tree
from potluck.methods.parts.echopfl import tempo
from potluck.methods.parts.echopfl.clusters import Forest, Pushed, Rules
from potluck.methods.parts.echopfl.feedback import Tally, feedback, nothing
from potluck.methods.parts.echopfl.legs import portion
from potluck.methods.parts.echopfl.tempo import Tempo

METHOD = methods.load("echopfl")
NAMES = ("w", "b")
L1 = tree.l1(NAMES)
EWMA = Rules(predictor="ewma")


def model(*numbers: float) -> Params:
    return {"w": torch.tensor(numbers[:-1]), "b": torch.tensor(numbers[-1:])}


def pushed(weights: Params, examples: float, version: tuple[int, int] = (0, 0), g: float = 0.0) -> Pushed:
    return Pushed(weights, torch.tensor(examples), torch.tensor(version), torch.tensor(g))


def push(forest: Forest, client: str, update: Pushed, rules: Rules = EWMA) -> Forest:
    return woods.push(replace(forest, news=(), happened=()), client, update, rules, NAMES, L1)


def begun(rules: Rules = EWMA) -> Forest:
    """Two centres: a near 0 and b near 10."""
    forest = push(Forest(model(0.0, 0.0, 0.0)), "a", pushed(model(0.0, 0.1, 0.0), 2.0), rules)
    return push(forest, "b", pushed(model(10.0, 10.0, 10.0), 3.0), rules)


# -- section 4: arrivals ---------------------------------------------------------------------------------------------


def test_the_first_distinct_arrivals_are_the_centres() -> None:
    forest = begun()
    assert list(forest.branches) == [0, 1]
    assert [b.examples for b in forest.branches.values()] == [2.0, 3.0]
    assert [kind for kind, _, _ in forest.happened] == ["open"]


def test_a_centre_over_again_opens_no_cluster() -> None:
    forest = push(Forest(model(0.0, 0.0, 0.0)), "a", pushed(model(1.0, 1.0, 1.0), 2.0))
    forest = push(forest, "b", pushed(model(1.0, 1.0, 1.0), 2.0))
    assert len(forest.branches) == 1
    assert forest.members["b"].branch == 0


def test_eq_1_the_nearest_centre_in_l1() -> None:
    forest = push(begun(), "c", pushed(model(1.0, 0.0, 0.0), 2.0))
    assert forest.members["c"].branch == 0
    # Two models of weight 2: the mean of (0, 0.1, 0) and (1, 0, 0).
    torch.testing.assert_close(forest.branches[0].weights["w"], torch.tensor([0.5, 0.05]))


def test_hysteresis_keeps_a_client_that_would_gain_little() -> None:
    forest = begun()
    middling = model(5.0, 5.2, 5.0)  # 15.1 from a's model, 14.8 from b's: 2 % less
    assert push(forest, "a", pushed(middling, 2.0)).members["a"].branch == 0
    literal = Rules(predictor="ewma", hysteresis=1.0)
    moved = push(forest, "a", pushed(middling, 2.0), literal)
    assert moved.members["a"].branch == 1
    assert not moved.branches[0].members
    assert moved.branches[0].emptied == 0


@given(
    events=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.lists(st.integers(-8, 8).map(float), min_size=3, max_size=3)),
        min_size=1, max_size=40,
    )
)  # fmt: skip
def test_latest_is_the_mean_of_what_its_members_pushed_last(events: list[tuple[str, list[float]]]) -> None:
    """Acceptance test 1, against uploads kept here: whoever moved, in whatever order they came."""
    rules = Rules(predictor="ewma", hysteresis=1.0)
    forest, newest = Forest(model(0.0, 0.0, 0.0)), dict[str, torch.Tensor]()
    for client, numbers in events:
        forest = push(forest, client, pushed(model(*numbers), 1.0 + "abcdef".index(client)), rules)
        newest[client] = torch.tensor(numbers)
    assert set(forest.members) == set(newest)
    for branch in forest.branches.values():
        if branch.members:
            counts = {client: 1.0 + "abcdef".index(client) for client in branch.members}
            expected = sum(counts[client] * newest[client] for client in counts) / sum(counts.values())
            found = torch.cat([branch.weights["w"], branch.weights["b"]])
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_two_pushes_in_flight_the_later_base_wins() -> None:
    forest = push(begun(), "a", pushed(model(1.0, 1.0, 1.0), 2.0, version=(5, 3)))
    older = pushed(model(2.0, 2.0, 2.0), 2.0, version=(4, 2))
    assert push(forest, "a", older).branches == forest.branches
    mixing = Rules(predictor="ewma", merge_rule="mix")
    assert push(forest, "a", older, mixing).arrivals == forest.arrivals + 1


def test_an_update_that_was_overtaken_is_noted_and_starts_no_refinement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refinement is due after N arrivals that count, once: not again with every overtaken one that follows."""
    cfg = METHOD.configure({"predictor": "ewma", "refine_every": 2})
    fleet, state = fleet_of(METHOD, cfg, made((8, 8)))
    program = METHOD.server(fleet, state, cfg)
    state = next(program)
    state = next(program)
    assert (state.forest.arrivals, state.forest.refinements) == (2, 1)
    receive = fleet.receive

    def overtaken(until: float | None = None) -> Any:
        answer = receive(until)
        assert isinstance(answer, Arrival)
        return replace(answer, update=replace(answer.update, version=torch.tensor([-1, 0])))

    monkeypatch.setattr(fleet, "receive", overtaken)
    state = next(program)
    assert [kind for kind, _, _ in echopfl.events(state)] == ["stale"]
    assert (state.forest.arrivals, state.forest.refinements) == (2, 1)


def test_a_client_without_data_is_registered_and_does_not_count() -> None:
    forest = push(begun(), "c", pushed(model(9.0, 9.0, 9.0), 0.0, g=float("nan")))
    assert forest.members["c"].branch == 1
    assert forest.members["c"].feedback is None
    assert forest.branches[1].examples == 3.0
    torch.testing.assert_close(forest.branches[1].weights["w"], torch.tensor([10.0, 10.0]))


def test_staleness_is_counted_at_the_moment_of_the_merge() -> None:
    forest = begun()
    for i in range(4):
        forest = push(forest, "a", pushed(model(0.1 * i, 0.0, 0.0), 2.0, version=(i + 1, i + 1)))
    assert forest.branches[0].depth == 5
    forest = push(forest, "c", pushed(model(0.0, 0.0, 0.3), 1.0, version=(1, 1)))  # four versions have passed
    assert forest.staleness == (4, 4)


def test_mix_and_fedasync_rules_by_hand() -> None:
    mixing = Rules(predictor="ewma", merge_rule="mix")
    forest = push(begun(mixing), "c", pushed(model(4.0, 0.1, 0.0), 2.0), mixing)
    torch.testing.assert_close(forest.branches[0].weights["w"], torch.tensor([2.0, 0.1]))  # 2 of 4 samples
    assert forest.members["c"].weights is None
    plain = Rules(predictor="ewma", merge_rule="fedasync", eta=0.25)
    forest = push(begun(plain), "c", pushed(model(4.0, 0.1, 0.0), 2.0), plain)
    torch.testing.assert_close(forest.branches[0].weights["w"], torch.tensor([1.0, 0.1]))


# -- section 5: refinement -------------------------------------------------------------------------------------------


def crowd(gs: list[float]) -> Forest:
    """One cluster whose members gave these feedbacks."""
    rules = Rules(predictor="ewma", clusters=1)
    forest = Forest(model(0.0, 0.0, 0.0))
    for i, g in enumerate(gs):
        forest = push(forest, f"c{i}", pushed(model(float(i), 0.0, 0.0), 1.0 + i, g=g), rules)
    members = {c: replace(m, feedback=gs[int(c[1:])]) for c, m in forest.members.items()}
    return replace(forest, members=woods.SharedMap.of(members))


def guessing(forest: Forest) -> Forest:
    """The same clusters, each with a predictor that is its number."""
    watches = {k: replace(b.watch, predictor={"u": torch.tensor([float(k)])}) for k, b in forest.branches.items()}
    return replace(forest, branches={k: replace(b, watch=watches[k]) for k, b in forest.branches.items()})


def test_expansion_splits_off_the_worst_fifth() -> None:
    rules = Rules(predictor="ewma", clusters=1)
    before = guessing(crowd([0.1, 0.1, 0.9, 0.1, 0.1, 0.1]))
    forest = woods.refined(before, rules, L1)
    # Two of six (a fifth, rounded up): the worst, and of those that tie the last by name.
    assert sorted(forest.branches[1].members) == ["c2", "c5"]
    assert sorted(forest.branches[0].members) == ["c0", "c1", "c3", "c4"]
    child = forest.branches[1]
    assert child.last
    assert child.watch.changes == ()
    assert child.watch.predictor is before.branches[0].watch.predictor  # inherited
    assert not forest.news  # nobody is told what he just heard
    torch.testing.assert_close(child.weights, before.branches[0].weights)
    assert child.depth == before.branches[0].depth


@pytest.mark.parametrize("gs", [[0.2] * 6, [1e-4, 1e-4, 1e-4, 1e-4, 9e-4], [0.1, 0.1, 0.1, 0.9]])
def test_no_expansion_without_an_outlier_a_signal_or_five_members(gs: list[float]) -> None:
    assert len(woods.refined(crowd(gs), Rules(predictor="ewma", clusters=1), L1).branches) == 1


def test_merging_unites_the_closest_pair_and_tells_everybody() -> None:
    rules = Rules(predictor="ewma", clusters=3, most=1.0)
    forest = Forest(model(0.0, 0.0, 0.0))
    for client, at in (("a", 1.0), ("b", 2.0), ("c", 30.0)):
        forest = push(forest, client, pushed(model(at, at, at), 2.0), rules)
    forest = push(forest, "d", pushed(model(30.0, 30.0, 31.0), 2.0), rules)
    narrow = replace(rules, clusters=2)
    forest = guessing(replace(forest, branches={k: replace(b, last=True) for k, b in forest.branches.items()}))
    merged = woods.refined(forest, narrow, L1)
    assert sorted(merged.branches[0].members) == ["a", "b"]  # a tie in members: the older one is the main model
    assert merged.news == (0,)
    predictor = merged.branches[0].watch.predictor
    assert predictor is not None
    assert predictor["u"].tolist() == [0.5]  # the mean of branch 0's and branch 1's
    assert merged.branches[0].told_serial == merged.branches[0].serial
    assert not any(branch.last for branch in merged.branches.values())
    assert merged.branches[0].depth > max(forest.branches[0].depth, forest.branches[1].depth)
    assert merged.members["b"].branch == 0


def test_algorithm_1_attention_lies_between_0_and_1() -> None:
    main, auxiliary, upload = (keys.normal(keys.key("merge", i), (40,)) for i in range(3))
    kappa = tree.attention({"w": auxiliary - main}, {"w": upload - main})["w"]
    assert float(kappa.min()) >= 0.0
    assert float(kappa.max()) == 1.0
    merged = tree.merged({"w": main}, {"w": auxiliary}, {"w": upload})["w"]
    low, high = torch.minimum(main, auxiliary), torch.maximum(main, auxiliary)
    assert bool(((merged >= low - 1e-6) & (merged <= high + 1e-6)).all())


def test_algorithm_1_without_agreement_is_the_main_model() -> None:
    main, auxiliary = model(0.0, 0.0, 0.0), model(1.0, 2.0, 3.0)
    against = model(-1.0, -1.0, -1.0)
    assert all(torch.equal(v, main[n]) for n, v in tree.merged(main, auxiliary, against).items())
    assert all(torch.equal(v, main[n]) for n, v in tree.merged(main, main, against).items())


def test_algorithm_1_by_hand() -> None:
    merged = tree.merged(
        {"w": torch.tensor([0.0, 0.0, 0.0])},
        {"w": torch.tensor([2.0, 2.0, 2.0])},
        {"w": torch.tensor([4.0, 1.0, -3.0])},
    )
    torch.testing.assert_close(merged["w"], torch.tensor([2.0, 0.5, 0.0]))  # kappa = 1, 1/4, 0


def test_a_cluster_without_members_is_kept_for_one_refinement() -> None:
    literal = Rules(predictor="ewma", hysteresis=1.0)
    forest = push(begun(literal), "a", pushed(model(9.0, 9.0, 9.0), 2.0), literal)
    once = woods.refined(forest, literal, L1)
    assert 0 in once.branches
    assert 0 not in woods.refined(once, literal, L1).branches
    back = push(once, "a", pushed(model(0.0, 0.0, 0.0), 2.0), literal)
    assert back.members["a"].branch == 0
    assert back.branches[0].emptied == -1


def test_a_client_never_seen_again_is_forgotten_when_asked_for() -> None:
    rules = Rules(predictor="ewma", clusters=1, forget_after=2)
    forest = push(Forest(model(0.0, 0.0, 0.0)), "a", pushed(model(1.0, 1.0, 1.0), 1.0), rules)
    forest = push(forest, "b", pushed(model(3.0, 3.0, 3.0), 1.0), rules)
    for i in range(3):
        forest = push(forest, "b", pushed(model(3.0, 3.0, 3.0), 1.0, version=(i + 3, i + 3)), rules)
        forest = woods.refined(forest, rules, L1)
    assert set(forest.members) == {"b"}
    torch.testing.assert_close(forest.branches[0].weights, model(3.0, 3.0, 3.0))


# -- eq. 3: feedback -------------------------------------------------------------------------------------------------


def test_eq_3_feedback_by_hand() -> None:
    # 4 samples, all of class 0; half predicted as 0, half as 1; the mean softmax output is (0.75, 0.25).
    tally = Tally(torch.tensor([2.0, 2.0]), torch.tensor([4.0, 0.0]), torch.tensor([3.0, 1.0]))
    chi = 0.25 / (1 + 0.25) + 0.25 / 0.25
    assert float(feedback(tally)) == pytest.approx(chi * 0.0625)


def test_eq_3_is_0_for_a_match_finite_for_one_class_and_0_for_an_untrained_model() -> None:
    match = Tally(torch.tensor([3.0, 1.0]), torch.tensor([3.0, 1.0]), torch.tensor([3.0, 1.0]))
    assert float(feedback(match)) == 0.0
    wrong = Tally(torch.tensor([0.0, 5.0]), torch.tensor([5.0, 0.0]), torch.tensor([1.0, 4.0]))
    assert 0.0 < float(feedback(wrong)) < float("inf")
    untrained = replace(wrong, soft=torch.tensor([2.5, 2.5]))
    assert float(feedback(untrained)) == 0.0
    assert float(feedback(nothing(3))) == 0.0  # no data at all


# -- section 6: broadcasts -------------------------------------------------------------------------------------------


def converging(rule: str, steps: int = 250) -> tuple[int, list[bool]]:
    """One cluster whose pushes come nearer and nearer, with noise: how often it tells its members."""
    rules = Rules(predictor=rule, clusters=1)
    draw = keys.rng("converging")
    forest = Forest(model(0.0, 0.0, 0.0))
    told = []
    for t in range(steps):
        noise = 0.5 + 5.0 / (1 + 0.05 * t)
        at = torch.from_numpy(draw.normal(size=200).astype(np.float32)) * noise * 0.1 + 1.0 - 0.99**t
        weights = {"w": at, "b": torch.zeros(1)}
        forest = push(forest, f"c{t % 8}", pushed(weights, 10.0, version=(forest.serial, forest.serial)), rules)
        told.append(bool(forest.news))
    return forest.broadcasts, told


def test_the_text_form_rule_hardly_broadcasts_and_section_6_does() -> None:
    text, _ = converging("text")
    assert text < 0.02 * 250
    for name in ("ewma", "rnn"):
        often, _ = converging(name)
        assert 0.3 * 250 <= often <= 250, name


def test_always_never_and_every_k() -> None:
    assert converging("never", 40)[0] == 0
    assert converging("always", 40)[0] == 39 - 0  # the first arrival is alone
    times, told = converging("every:5", 41)
    assert times == 8
    assert [t for t, now in enumerate(told) if now] == [5, 10, 15, 20, 25, 30, 35, 40]


def test_no_broadcast_without_a_change() -> None:
    rules = Rules(predictor="always", clusters=1)
    forest = push(Forest(model(0.0, 0.0, 0.0)), "a", pushed(model(1.0, 1.0, 1.0), 1.0), rules)
    forest = push(forest, "b", pushed(model(2.0, 2.0, 2.0), 1.0), rules)
    assert forest.news == (0,)
    again = push(forest, "b", pushed(model(2.0, 2.0, 2.0), 1.0), rules)
    assert again.news == ()


def test_the_light_variant_is_an_upper_bound_of_a() -> None:
    exact, light = Rules(predictor="never", clusters=1), Rules(predictor="never", clusters=1, light=True)
    one = two = Forest(model(0.0, 0.0, 0.0))
    draw = keys.rng("light")
    for t in range(20):
        update = pushed(model(*(float(v) for v in draw.normal(size=3))), 1.0)
        one, two = push(one, f"c{t % 3}", update, exact), push(two, f"c{t % 3}", update, light)
        assert two.branches[0].watch.away >= one.branches[0].watch.away - 1e-5


def test_who_has_not_pushed_yet_hears_the_largest_cluster() -> None:
    rules = Rules(predictor="always")
    forest = Forest(model(0.0, 0.0, 0.0))
    for client in ("a", "b", "c", "d", "e"):
        forest = woods.sent(forest, client, woods.reply(forest, client, rules)[0])
    forest = push(forest, "a", pushed(model(0.0, 0.1, 0.0), 2.0), rules)
    forest = push(forest, "b", pushed(model(10.0, 10.0, 10.0), 3.0), rules)
    assert woods.held(forest, "d").serial == 0  # nobody but the centres themselves: nothing was told
    forest = push(forest, "c", pushed(model(0.0, 0.3, 0.0), 2.0), rules)
    assert forest.news == (0,)
    assert sorted(woods.listening(forest, 0, "c")) == ["a", "d", "e"]
    assert list(woods.listening(forest, 1, "c")) == ["b"]
    torch.testing.assert_close(woods.held(forest, "d").weights, forest.branches[0].weights)
    assert woods.held(forest, "b").branch == -1  # another cluster's broadcast is not for its members
    forest = push(forest, "d", pushed(model(10.0, 10.0, 9.0), 1.0, version=(3, 2)), rules)
    assert sorted(woods.listening(forest, 0, "a")) == ["c", "e"]


# -- section 7: the client -------------------------------------------------------------------------------------------


def work(weights: Params, base: Params, serial: int) -> Work:
    return Work(weights, base, torch.tensor([serial, 1]), torch.tensor(1), keys.key(0), nothing(2))


def test_rebase_on_the_same_model_is_the_identity() -> None:
    base = model(1.0, 2.0, 3.0)
    before = work(model(1.5, 2.5, 2.0), base, 4)
    after = rebased(before, Note(base, torch.tensor([7, 2])))
    assert all(torch.equal(v, before.weights[n]) for n, v in after.weights.items())
    assert after.version.tolist() == [7, 2]


def test_rebase_keeps_progress_restart_drops_it_and_an_old_note_does_nothing() -> None:
    before = work(model(1.5, 2.5, 2.0), model(1.0, 2.0, 3.0), 4)
    note = Note(model(5.0, 5.0, 5.0), torch.tensor([7, 2]))
    assert rebased(before, note).weights["w"].tolist() == [5.5, 5.5]
    assert rebased(before, note, restart=True).weights["w"].tolist() == [5.0, 5.0]
    late = replace(note, version=torch.tensor([3, 1]))
    assert rebased(before, late).weights["w"].tolist() == [1.5, 2.5]
    assert rebased(before, late).version.tolist() == [4, 1]


def test_the_portions_of_an_epoch_are_all_samples_once() -> None:
    weight = (torch.arange(12) < 9).float()
    for key in (None, keys.key("p")):
        seen: list[int] = []
        for k in range(4):
            part = portion(weight, torch.tensor(k), 4, key)
            seen += part.places[part.weight > 0].tolist()
        assert sorted(seen) == list(range(9))
        assert (seen == sorted(seen)) == (key is None)
        for counts in (weight, torch.ones(12)):  # nothing beyond them
            assert float(portion(counts, torch.tensor(4), 4, key).weight.sum()) == 0.0


def test_the_fast_fill_the_time_of_the_slow() -> None:
    pace = Tempo()
    assert tempo.epochs(pace, "a", 2, 1.0, 20) == 2  # nothing is known yet
    for client, seconds in (("slow", 20.0), ("a", 2.0), ("b", 5.0)):
        pace = tempo.noted(pace, client, seconds, 2)
    assert [tempo.epochs(pace, client, 2, 1.0, 20) for client in ("slow", "a", "b")] == [2, 20, 8]
    assert [tempo.epochs(pace, client, 2, 0.5, 20) for client in ("slow", "a", "b")] == [2, 6, 4]
    assert [tempo.epochs(pace, client, 2, 0.0, 20) for client in ("slow", "a", "b")] == [2, 2, 2]
    assert tempo.epochs(pace, "a", 2, 1.0, 7) == 7
    pace = tempo.noted(pace, "a", 20.0, 20)  # what a longer task took, per epoch
    assert tempo.epochs(pace, "a", 2, 1.0, 20) == 20


def test_a_broadcast_reaches_a_client_at_work_between_legs() -> None:
    """A slow client's push begins from a version that came to be after its task was sent; with `next` it does not."""
    slow = replace(PC, macs_per_second=2.5e5)
    fast = replace(PC, macs_per_second=1e6)

    def bases(on_broadcast: str) -> tuple[int, int]:
        cfg = METHOD.configure({"predictor": "always", "clusters": 1, "refine": False, "on_broadcast": on_broadcast})
        fleet, state = fleet_of(METHOD, cfg, made((20, 20, 20)), equipment=[(fast, LINK), (fast, LINK), (slow, LINK)])
        program = METHOD.server(fleet, state, cfg)
        pushes: list[dict[str, Any]] = []  # of the slow client; with the first it becomes a member
        while len(pushes) < 2:
            for kind, client, detail in echopfl.events(next(program)):
                pushes += [json.loads(detail)] if (kind, client) == ("push", "c2") else []
        return pushes[1]["base"] - pushes[0]["version"], pushes[1]["staleness"]

    ahead, age = bases("next")
    assert ahead == 0  # it began from its own merge and heard of nothing since
    rebased_ahead, rebased_age = bases("rebase")
    assert rebased_ahead > 0
    assert rebased_age < age
    assert bases("restart") == (rebased_ahead, rebased_age)


def test_last_layer_only_leaves_the_others_as_they_were() -> None:
    from potluck.models import build

    net = build("mlp", (4,), 3, {"hidden": [5]})
    (x, y), *_ = made((10,))
    data = Data(torch.from_numpy(x), torch.from_numpy(y), torch.ones(10))
    weights = net.init(0)
    task = echopfl.Train(weights, torch.tensor([0, 0]), True, "rebase", 2, 1, echopfl.Recipe(1, 5, 0.1))
    done = echopfl.train(task, echopfl.Local(net, data, None, keys.key(1)))
    last = net.layers()[-1]
    for name, value in done.update.weights.items():
        assert torch.equal(value, weights[name]) != name.startswith(last)


# -- the whole -------------------------------------------------------------------------------------------------------


def log_of(seed: int, arrivals: int = 16, **options: Any) -> list[tuple[float, tuple[tuple[str, str, str], ...]]]:
    cfg = METHOD.configure({"predictor": "ewma", "recipe.batch": 5, "recipe.lr": 0.1, "refine_every": 7})
    slow = replace(PC, macs_per_second=1e5)
    fleet, state = fleet_of(
        METHOD, cfg, made((12, 7, 20, 15, 9, 11)), equipment=[(PC, LINK), (slow, LINK)], seed=seed, **options
    )
    program = METHOD.server(fleet, state, cfg)
    found = []
    for _ in range(arrivals):
        state = next(program)
        found.append((fleet.now, echopfl.events(state)))
    return found


def test_same_seed_same_event_log() -> None:
    assert log_of(3) == log_of(3)
    assert log_of(3) == log_of(3, workers=2)
    assert log_of(3) != log_of(4)


def test_the_sender_is_not_told_and_all_others_of_its_cluster_are() -> None:
    cfg = METHOD.configure({"predictor": "always", "clusters": 1, "refine": False})
    fleet, state = fleet_of(METHOD, cfg, made((8, 8, 8, 8)))
    posts: list[tuple[set[str], str]] = []
    sender: list[str] = []
    post, receive = fleet.post, fleet.receive

    def spy_receive(until: float | None = None) -> Any:
        answer = receive(until)
        if isinstance(answer, Arrival):
            sender[:] = [answer.client]
        return answer

    def spy_post(note: Any, to: Any) -> None:
        posts.append((set(to), sender[0]))
        post(note, to)

    fleet.receive, fleet.post = spy_receive, spy_post  # type: ignore[method-assign]
    program = METHOD.server(fleet, state, cfg)
    for _ in range(12):
        state = next(program)
    assert posts
    for told, who in posts:
        assert who not in told
        assert told == set(fleet.clients) - {who}  # also those who have not pushed yet


def test_one_client_has_one_cluster_and_hears_nothing() -> None:
    cfg = METHOD.configure({"predictor": "always"})
    fleet, state = fleet_of(METHOD, cfg, made((8,)))
    program = METHOD.server(fleet, state, cfg)
    for _ in range(6):
        state = next(program)
    assert len(state.forest.branches) == 1
    assert state.forest.broadcasts == 0


def test_a_yielded_state_is_never_changed_afterwards() -> None:
    cfg = METHOD.configure({"predictor": "ewma", "recipe.batch": 5})
    fleet, state = fleet_of(METHOD, cfg, made((12, 7, 20)))
    program = METHOD.server(fleet, state, cfg)
    states = [next(program) for _ in range(3)]
    before = [
        (s.forest.arrivals, dict(s.forest.members), {k: dict(b.members) for k, b in s.forest.branches.items()})
        for s in states
    ]
    for _ in range(20):
        next(program)
    after = [
        (s.forest.arrivals, dict(s.forest.members), {k: dict(b.members) for k, b in s.forest.branches.items()})
        for s in states
    ]
    for old, new in zip(before, after, strict=True):
        assert old[0] == new[0]
        assert old[1].keys() == new[1].keys()
        assert old[2] == new[2]
        assert all(old[1][c] is new[1][c] for c in old[1])


def test_faults_of_every_kind_at_once() -> None:
    faults = Faults(dropout=0.1, late=0.1, duplicate=0.1, nan=0.1, corrupt=0.1)
    assert log_of(1, faults=faults) == log_of(1, faults=faults)


@pytest.mark.parametrize(
    "wrong",
    [{"predictor": "rrn"}, {"predictor": "every"}, {"predictor": "every:0"}, {"merge_rule": "newest"},
     {"on_broadcast": "ignore"}, {"hysteresis": 1.5}, {"clusters": 0}, {"c_gain": 0.0}, {"assign": "l2"},
     {"fill": 2.0}, {"most_epochs": 1}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"method.{next(iter(wrong))}"):
        METHOD.configure(wrong)


def test_kl_assignment_needs_a_probe_set() -> None:
    cfg = METHOD.configure({"assign": "kl"})
    fleet, state = fleet_of(METHOD, cfg, made((8, 8)))
    next(METHOD.server(fleet, state, cfg))
    fleet, state = fleet_of(METHOD, cfg, made((8, 8)))
    home = fleet.home.data
    fleet._home = replace(fleet.home, data=Data(home.x[:0], home.y[:0], home.weight[:0]))
    with pytest.raises(BadInput, match=r"server\.share"):
        next(METHOD.server(fleet, state, cfg))


# -- any order of events ---------------------------------------------------------------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Pushes, late and repeated ones, joins, losses and refinements in any order: what must hold, holds."""

    clients = tuple(f"c{i}" for i in range(7))
    house = Rules(predictor="ewma", hysteresis=1.0, most=1.5, forget_after=3)

    def __init__(self) -> None:
        super().__init__()
        self.forest = Forest(model(0.0, 0.0, 0.0))
        self.sent: dict[str, list[tuple[int, int]]] = {}
        self.moments = 0

    def update(self, client: str, base: tuple[int, int], numbers: list[float], g: float) -> Pushed:
        return pushed(model(*numbers), float(1 + int(client[1:])), base, g)

    @rule(client=st.sampled_from(clients))
    def pull(self, client: str) -> None:
        """Also what happens after a loss, and when somebody joins or comes back."""
        what, _ = woods.reply(self.forest, client, self.house)
        self.forest = woods.sent(self.forest, client, what)
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
        member = self.forest.members.get(client)
        before = self.forest
        self.forest = push(before, client, self.update(client, base, numbers, g), self.house)
        if member is not None and base[0] < member.base:
            assert self.forest.branches == before.branches  # overtaken: nothing changes
            return
        branch = self.forest.branches[self.forest.members[client].branch]
        assert branch.serial > max((b.serial for b in before.branches.values()), default=0) - 1
        assert client in branch.members

    @rule(client=st.sampled_from(clients), numbers=st.lists(st.integers(-8, 8).map(float), min_size=3, max_size=3))
    def push_twice(self, client: str, numbers: list[float]) -> None:
        """The same update again: whoever stays where it is changes nothing by it."""
        if client not in self.sent:
            return
        update = self.update(client, self.sent[client][-1], numbers, 0.0)
        once = push(self.forest, client, update, self.house)
        self.forest = push(once, client, update, self.house)
        before, after = once.members[client].branch, self.forest.members[client].branch
        if before == after:
            centres = (forest.branches[after].weights for forest in (once, self.forest))
            torch.testing.assert_close(*centres, atol=1e-4, rtol=1e-4)
            assert sorted(self.forest.branches[after].members) == sorted(once.branches[before].members)

    @rule()
    def refine(self) -> None:
        self.forest = woods.refined(replace(self.forest, happened=()), self.house, L1)
        living = [b for b in self.forest.branches.values() if b.members]
        assert len(living) <= 2 * self.house.most * self.house.clusters  # each may have split once after the merging

    @invariant()
    def the_centre_is_the_mean_of_its_members(self) -> None:
        """Acceptance test 1: `latest` equals the weighted mean over the models on record after any order of events."""
        for number, branch in self.forest.branches.items():
            members = [self.forest.members[c] for c in sorted(branch.members)]
            assert all(m.branch == number for m in members)
            total = sum(m.examples for m in members)
            assert branch.examples == pytest.approx(total)
            if not members:
                continue
            for name in NAMES:
                mean = sum(m.weights[name] * m.examples for m in members if m.weights is not None) / total
                torch.testing.assert_close(branch.weights[name], mean, atol=2e-4, rtol=2e-4)

    @invariant()
    def everybody_is_in_one_cluster_and_has_a_model(self) -> None:
        listed = [c for branch in self.forest.branches.values() for c in branch.members]
        assert sorted(listed) == sorted(self.forest.members)
        for client in self.clients:
            held = woods.held(self.forest, client)
            assert held.serial <= self.forest.serial
            assert all(bool(torch.isfinite(v).all()) for v in held.weights.values())

    @invariant()
    def versions_only_grow(self) -> None:
        serials = [branch.serial for branch in self.forest.branches.values()]
        assert len(set(serials)) == len(serials)
        assert max(serials, default=0) <= self.forest.serial
        assert self.forest.serial >= self.moments
        self.moments = self.forest.serial


AnyOrder.TestCase.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAnyOrder = AnyOrder.TestCase
