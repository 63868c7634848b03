"""Compositions: what fits together, what is refused and why, and the battery for many of them."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from potluck import methods
from potluck.errors import BadInput
from potluck.fleet import Params
from potluck.methods.compose import State, personal
from potluck.methods.parts import held
from potluck.methods.parts.compose import choice
from potluck.methods.parts.compose.groups import Group, Groups, by_mean
from potluck.methods.parts.compose.kit import Sub
from potluck.methods.parts.compose.messages import Change, Kept, Trained
from potluck.methods.parts.compose.plain import grouping
from potluck.methods.parts.compose.settings import Mean
from potluck.methods.parts.compose.shapes import Upload
from potluck.methods.parts.echopfl import merging
from potluck.methods.parts.echopfl.broadcast import History
from potluck.methods.parts.echopfl.clusters import Grouping
from potluck.methods.parts.echopfl.merging import Cluster
from potluck.methods.parts.shared_map import SharedMap
from potluck.settings import nested
from potluck.testing import CHECKS, Trial
from potluck.testing.trial import assert_same

COMPOSE = methods.load("compose")
NOBODY: Any = None
BESIDE: tuple[choice.Fact, ...] = ("server rows", "access points")
SIZES = {"widths": [1.0, 0.5], "shares": [3.0, 2.0]}
MORE: dict[str, dict[str, Any]] = {  # settings of parts that need some here
    "buffered": {"buffered": {"size": 3}},
    "points": {"points": {"period": 0.002}},
    "deadline": {"deadline": {"seconds": 5.0}},
    "slices": {"sizes": SIZES},
    "rolling": {"sizes": SIZES},
    "fedconv": {"sizes": SIZES},
    "per-group": {"sizes": SIZES},
    "clusters": {"clusters": {"refine_every": 4}, "broadcast": {"predictor": "ewma"}},
}

LEGAL = (
    "rounds/one/one/all/all/mean", "rounds/one/one/select/all/mean", "rounds/one/one/proximal/all/robust",
    "rounds/one/one/distil/all/mean", "rounds/one/one/head/all-but-head/mean", "rounds/one/one/all/module/mean",
    "rounds/one/one/all/gradient/mean", "rounds/one/one/handover/all/mean", "rounds/one/one/all/all/learned",
    "rounds/one/one/all/all/latest", "rounds/one/one/all/all/stale", "rounds/one/slices/select/all-but-head/mean",
    "rounds/one/rolling/all/all/mean", "rounds/one/fedconv/all/all/learned", "rounds/one/fedconv/all/all-but-head/mean",
    "rounds/one/slices/handover/all/mean", "rounds/given/slices/all/all/mean", "rounds/given/per-group/all/all/mean",
    "rounds/choice/one/all/all-but-head/mean", "rounds/choice/slices/all/all/mean", "rounds/choice/one/all/all/robust",
    "rounds/relation/one/select/all/mean", "rounds/relation/fedconv/all/all/mean",
    "rounds/relation/fedconv/all/all-but-head/mean", "rounds/clusters/one/all/all/latest",
    "deadline/one/one/all/all/mean", "deadline/clusters/slices/all/all/latest", "arrivals/one/one/all/all/latest",
    "arrivals/one/one/all/all/stale", "arrivals/one/slices/all/all-but-head/latest",
    "arrivals/clusters/one/all/all/latest", "arrivals/clusters/one/all/all-but-head/latest",
    "arrivals/clusters/slices/all/all/latest", "arrivals/clusters/slices/select/all-but-head/latest",
    "arrivals/clusters/fedconv/all/all/latest", "arrivals/clusters/per-group/all/all/latest",
    "arrivals/clusters/one/handover/all/latest", "arrivals/clusters/slices/handover/all/latest",
    "arrivals/choice/one/all/all/latest", "arrivals/given/fedconv/all/all/latest", "buffered/one/one/all/all/stale",
    "buffered/one/slices/proximal/all/stale", "buffered/one/rolling/all/all/stale",
    "buffered/clusters/slices/all/all/latest", "points/one/one/all/all/stale", "points/clusters/one/all/all/latest",
    "buffered/one/slices/handover/all/latest", "rounds/given/per-group/all/all-but-head/mean",
    "rounds/choice/per-group/all/all-but-head/latest", "arrivals/clusters/slices/all/all-but-head/latest",
    "rounds/choice/rolling/all/all/mean", "points/clusters/one/select/all/latest",
    "points/choice/per-group/all/all/stale", "buffered/one/fedconv/all/all/stale",
    "arrivals/clusters/fedconv/all/all-but-head/latest",
)  # fmt: skip
# One of each kind in the gate; the others are slow.
FAST = {
    "rounds/one/slices/select/all-but-head/mean", "rounds/relation/fedconv/all/all-but-head/mean",
    "arrivals/clusters/slices/all/all/latest", "arrivals/clusters/one/handover/all/latest",
    "buffered/one/rolling/all/all/stale",
}  # fmt: skip
ILLEGAL = {
    "arrivals/one/one/all/all/mean": "alone, one upload would replace the model",
    "buffered/one/one/all/all/robust": "a rule compares the uploads of one moment",
    "rounds/one/slices/all/all/robust": "a rule compares whole models",
    "arrivals/relation/one/all/all/mean": "F compares the models of one moment",
    "rounds/relation/slices/all/all/mean": "the rows of F's table are models of one size",
    "rounds/relation/one/proximal/all/mean": "the relation is a pull of its own",
    "rounds/relation/one/all/all/stale": "F itself says how models are weighed",
    "arrivals/clusters/one/all/all/stale": "mean of its members' newest models",
    "arrivals/clusters/rolling/all/all/latest": "distances to cluster centres",
    "arrivals/one/fedconv/all/gradient/latest": "a gradient of a sub-model cannot be dilated",
    "rounds/one/one/handover/all-but-head/mean": "a device trains the classifier for all",
    "rounds/one/one/head/all/mean": "there must be layers of its own",
    "rounds/one/per-group/all/all/mean": "with one group all would have the narrowest width",
    "rounds/choice/one/all/gradient/mean": "does not say which model it belongs to",
    "rounds/one/slices/all/all/learned": "the weights are tuned on whole models",
    "arrivals/one/rolling/all/all/latest": "must replace the same channels",
}


def settings(parts: str) -> dict[str, Any]:
    found: dict[str, Any] = {"parts": parts}
    for name in parts.split("/"):
        found |= MORE.get(name, {})
    if "/relation/" in parts and choice.spelled(parts)["share"] != "all":
        found["relation"] = {"similarity": "weights"}
    return found


@cache
def trial(parts: str) -> Trial:
    one = Trial("compose", {**settings(parts), **choice.spelled(parts)})
    one.model = {"name": "mlp", "hidden": [8]}
    return one


@pytest.mark.parametrize(
    "check", ["runs", "messages", "learns", "infers", "stacked", "resume", "lost", "refused", "late-joiner"]
)
@pytest.mark.parametrize(
    "parts", [pytest.param(parts, marks=[] if parts in FAST else [pytest.mark.slow]) for parts in LEGAL]
)
def test_a_legal_combination_passes_the_battery(parts: str, check: str) -> None:
    CHECKS[check](trial(parts))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # 30 runs and their resumptions
@settings_of_hypothesis(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted("/".join(one.values()) for one in choice.legal(BESIDE))),
    st.sampled_from(["auto", "own", "received"]),
    st.sampled_from(["sgd", "adam"]),
)
def test_any_legal_combination_runs_on_unlike_devices_and_resumes_with_the_same_bits(
    parts: str, use: str, optimiser: str
) -> None:
    given = {**settings(parts), **choice.spelled(parts), "use": use, "recipe": {"optimiser": optimiser}}
    assume(optimiser == "sgd" or not ("proximal" in parts or "relation" in parts or "gradient" in parts))
    assume(optimiser == "sgd" or "clusters" not in parts)  # in legs
    one = Trial("compose", given)
    one.model = {"name": "mlp", "hidden": [8]}
    usual = one.experiment
    fleet = {"devices": ["pc-i7-9700", "galaxy-s2"] * 2 + ["pc-i7-9700"]}
    one.experiment = lambda *a, **more: usual(*a, **{"fleet": fleet, **more})  # type: ignore[method-assign]
    CHECKS["infers"](one)
    CHECKS["resume"](one)


@pytest.mark.slow
@pytest.mark.parametrize("parts", sorted(FAST)[:4])
def test_on_flower(parts: str) -> None:
    CHECKS["flower"](trial(parts))


@pytest.mark.parametrize("parts", ILLEGAL)
def test_an_illegal_combination_is_refused_with_the_reason(parts: str) -> None:
    with pytest.raises(BadInput, match="needs that") as refusal:
        COMPOSE.configure(settings(parts))
    assert ILLEGAL[parts] in str(refusal.value)
    assert str(refusal.value).startswith("method.")


def test_all_that_the_battery_runs_is_legal_and_much_more_is() -> None:
    legal = {"/".join(one.values()) for one in choice.legal(BESIDE)}
    assert set(LEGAL) <= legal
    assert not set(ILLEGAL) & legal
    assert len(legal) > 300


def test_without_server_rows_what_tunes_on_them_is_refused() -> None:
    chosen = choice.spelled("rounds/one/fedconv/all/all/mean")
    assert "the server has rows" in choice.refused(chosen, ("access points",))


def test_narrow_clients_over_kernels_release_a_change_and_whole_ones_a_model() -> None:
    """Privacy bounds what is new: a model's difference from the task's, or the change itself."""
    told = COMPOSE.module.releases(COMPOSE.configure({"parts": "arrivals/one/fedconv/all/all/latest"}))
    assert told[Trained].models == ("weights",)
    assert told[Change].models == ()
    assert "weights" in told[Change].changes
    for parts in ("rounds/one/fedconv/all/all/mean", "rounds/one/fedconv/all/all/learned"):
        assert "dilates each" in COMPOSE.module.releases(COMPOSE.configure({"parts": parts}))[Trained].single
    assert "unlike" in COMPOSE.module.releases(COMPOSE.configure({"parts": "rounds/choice/fedconv/all/all/mean"}))


def test_two_parts_that_never_fit_say_why() -> None:
    parts = choice.PARTS
    assert "alone, one upload" in choice.unmet(parts["pace"]["arrivals"], parts["merge"]["mean"])
    assert choice.unmet(parts["pace"]["rounds"], parts["merge"]["mean"]) == ""


def test_a_setting_of_a_part_that_is_not_chosen_is_refused() -> None:
    with pytest.raises(BadInput, match=r"method.clusters: belongs to grouping 'clusters', got grouping 'one'"):
        COMPOSE.configure({"clusters.count": 3})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"local": "proximal", "recipe.optimiser": "adam"}, "must be sgd with local 'proximal', got adam"),
        ({"parts": "rounds/relation/one/all/all/mean", "recipe.optimiser": "adam"}, "grouping 'relation'"),
        ({"parts": "arrivals/clusters/one/all/all/latest", "recipe.optimiser": "adam"}, "at pace 'arrivals'"),
        ({"share": "gradient", "recipe.momentum": 0.9}, "must be sgd without momentum .* a momentum of 0.9"),
        ({"parts": "arrivals/clusters/one/all/all-but-head/latest", "clusters.assign": "kl"}, "no model answers"),
    ],
)
def test_settings_that_a_part_cannot_follow_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        COMPOSE.configure(given)


def test_six_parts_in_one_text_are_the_six_settings() -> None:
    spelled = COMPOSE.configure({"parts": "buffered/one/slices/all/all/stale"})
    assert spelled.chosen == COMPOSE.configure({"pace": "buffered", "shape": "slices", "merge": "stale"}).chosen
    with pytest.raises(BadInput, match=r"method.pace: must be 'buffered', as parts says, got 'arrivals'"):
        COMPOSE.configure({"parts": "buffered/one/slices/all/all/stale", "pace": "arrivals"})
    with pytest.raises(BadInput, match=r"parts: grouping: 'two'"):
        COMPOSE.configure({"parts": "rounds/two/one/all/all/mean"})


PARENTS = {  # a part switched off gives the parent
    "proximal": ({"local": "proximal", "proximal": {"mu": 0.0}}, {}),
    "select": ({"local": "select", "select": {"alpha": 0.0, "beta": 0.0}}, {}),
    "distil": ({"local": "distil", "distil": {"weight": 0.0}}, {}),
    "choice of one": ({"grouping": "choice", "choice": {"count": 1}}, {}),
    "given, one group": ({"grouping": "given", "given": {"by": "device"}}, {}),
    "slices of width 1": ({"shape": "slices", "sizes": {"widths": [1.0], "shares": [1.0]}, "use": "received"}, {}),
    "a deadline that nobody misses": ({"pace": "deadline", "deadline": {"seconds": 1e6}}, {}),
    "the newest of each, all asked": ({"merge": "latest"}, {}),
    "a buffer of one": (
        {"pace": "buffered", "buffered": {"size": 1}, "merge": "stale"}, {"pace": "arrivals", "merge": "stale"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("law", PARENTS)
def test_a_part_that_is_switched_off_gives_the_parent(law: str) -> None:
    changed, parent = PARENTS[law]
    one, other = (Trial("compose", nested(each)) for each in (changed, parent))
    model = {"name": "mlp", "hidden": [8]}
    ended = [each.run(model=model, run={"stacking": "never"}) for each in (one, other)]
    assert_same(ended[0].models, ended[1].models, law, tolerance=2e-6)


def test_kernels_are_tuned_once_in_so_many_rounds() -> None:
    """At the pace of arrivals models change with every upload; kernels are not tuned for each."""

    def learned(every: int) -> Any:
        parts = "arrivals/one/fedconv/all/all/latest"
        one = Trial("compose", {**settings(parts), **choice.spelled(parts), "tuning": {"every": every}})
        return one.run(model={"name": "mlp", "hidden": [8]}).state.learned

    often, seldom = learned(1), learned(100)
    assert often.tuned.keys() == seldom.tuned.keys()
    assert max(often.tuned.values()) > 0
    assert set(seldom.tuned.values()) == {0}  # in the first round, and never again
    assert sum(seldom.seconds.values()) < sum(often.seconds.values())


def test_a_client_that_may_choose_is_sent_windows_of_one_version() -> None:
    """Its answer names one version, by which its window is found again, whichever model it took."""
    state: Any = State(model(2, 2), Groups({k: Group(model(2, 2)) for k in range(2)}))
    both = grouping(lambda client: 0, by_mean(None, Mean()), newest=False, choices=2)
    took_the_second = SimpleNamespace(examples=torch.tensor(3.0), group=torch.tensor(1))
    upload = Upload("a", model(2, 2), 3.0, 1, 0, took_the_second)
    for step in range(3):
        _, offer = both.ask(state, None, "a")
        assert offer.serial == offer.version[1] == step
        state = both.take(NOBODY, state, [(NOBODY, upload)])
        assert {group.version for group in state.book.groups.values()} == {step + 1}


def test_a_bound_client_infers_with_its_own_model_beside_others_that_share_theirs() -> None:
    own = {name: value + 1.0 for name, value in model(2, 2).items()}
    state = State(model(2, 2), Groups({0: Group(model(2, 2))}), gradients={"bound": torch.zeros(4)})
    kept = Kept(own, torch.zeros(()))
    assert torch.equal(personal(state, "bound", kept)["w"], own["w"])
    assert torch.equal(personal(state, "other", kept)["w"], model(2, 2)["w"])
    assert COMPOSE.headline(COMPOSE.configure({"gradient.devices": ["galaxy-s2"]})) == "mixed"


def test_a_narrow_client_of_no_cluster_would_receive_the_largest_cluster_s_model_at_its_width() -> None:
    whole, narrow = model(4, 2), model(2, 2)
    cluster = Cluster(whole, 3, 3, SharedMap[int]().put("other", 0), 5.0, whole, whole, History())
    given = {"-1/0.5": Sub(0, model(2, 1)), "0/0.5": Sub(3, narrow)}
    state = State(whole, Grouping(whole, clusters={0: cluster}), given=given, known={"bound": 0.5})
    assert COMPOSE.received(state, "bound") is narrow


def test_a_layer_at_another_width_keeps_what_fits() -> None:
    narrow, wide = torch.full((2, 1), 5.0), torch.zeros(2, 3)
    assert held.fitted(narrow, wide).tolist() == [[5.0, 0.0, 0.0]] * 2
    assert held.fitted(wide, narrow).tolist() == [[0.0]] * 2
    assert held.fitted(wide, wide) is wide


def test_the_way_of_a_narrow_model_is_compared_over_what_it_holds() -> None:
    base, centre = {"w": torch.zeros(2, 2)}, {"w": torch.tensor([[1.0, -9.0], [-9.0, -9.0]])}
    assert merging.turned(base, {"w": torch.ones(1, 1)}, centre, ["w"]) == pytest.approx(0.0)
    assert merging.turned(base, {"w": -torch.ones(1, 1)}, centre, ["w"]) == pytest.approx(2.0)


def model(*shape: int) -> Params:
    return {"w": torch.arange(float(torch.Size(shape).numel())).reshape(shape), "b": torch.ones(shape[0])}


def test_the_mean_over_holders_by_hand() -> None:
    centre = {"w": torch.zeros(2, 2), "b": torch.full((2,), 9.0)}
    narrow = {"w": torch.full((1, 1), 4.0)}
    wide = {"w": torch.full((2, 2), 1.0)}
    found = held.mean(centre, [(narrow, 1.0), (wide, 3.0)])
    assert found["w"].tolist() == [[1.75, 1.0], [1.0, 1.0]]
    assert found["b"].tolist() == [9.0, 9.0]  # nobody holds it


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 20)), min_size=1, max_size=6))
def test_exchanging_uploads_keeps_the_mean_over_holders(ones: list[tuple[int, int, int]]) -> None:
    """Uploads come, some leave again: the running mean is that of those that stayed."""
    centre = {"w": torch.zeros(3, 3)}
    uploads = [({"w": torch.randn(a, b, generator=torch.Generator().manual_seed(i))}, float(n))
               for i, (a, b, n) in enumerate(ones)]  # fmt: skip
    values, mass = centre, held.uniform(centre, 0.0)
    for one in uploads:
        values, mass = held.exchanged(values, mass, None, one)
    values, mass = held.exchanged(values, mass, uploads[0], uploads[0])  # out and in again
    want = held.mean(centre, uploads)
    assert torch.allclose(values["w"], want["w"], atol=1e-4)
    assert torch.equal(mass["w"] > held.SOME, sum((held.whole({"w": torch.ones_like(u["w"])}, centre)["w"]
                                                   for u, _ in uploads), torch.zeros(3, 3)) > 0)  # fmt: skip


def test_what_is_whole_is_left_as_it_is() -> None:
    whole = model(3, 2)
    assert held.whole(whole, model(3, 2)) is whole
    part = held.whole({"w": torch.full((1, 2), -1.0)}, whole)
    assert part["w"].tolist() == [[-1.0, -1.0], [2.0, 3.0], [4.0, 5.0]]
    assert part["b"] is whole["b"]
