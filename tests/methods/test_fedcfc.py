"""FedCFC: the bound local updater, the bound updates aggregator, and what crosses the wire."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.fleets import fleet_of, run
from torch import Tensor
from torch.func import grad

from potluck import keys, methods
from potluck.errors import BadInput
from potluck.fleet import Data, Local, Params
from potluck.learn import Recipe
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import cud, depths, precision
from potluck.methods.parts.fedcfc.bind import Terms, bound_gradient, by_q
from potluck.methods.parts.fedcfc.classes import present, so_far
from potluck.methods.parts.fedcfc.quantised import packed, unpacked
from potluck.methods.parts.starts import Pretrain, pretrained
from potluck.models import Model, build
from potluck.models.cfc import logits_and_activity
from potluck.wire.codec import flatten, size

METHOD = methods.load("fedcfc")
SMALL: dict[str, Any] = {"hidden": 3, "backbone": 5, "head": 4}
D = 3 * 4
FULL = Terms(0.6, 0.2, 0.2, 1.59, "hinge", "exact")
LAST = "f.2.weight"


def luds(count: int, size: int = 20) -> list[Tensor]:
    """Gradients that lean one way."""
    lean = keys.normal(keys.key("lean"), (size,))
    return [lean + 1.5 * keys.normal(keys.key("lud", i), (size,)) * (1 + i % 3) for i in range(count)]


def summed(gradients: list[Tensor], unit: bool = True) -> cud.Running:
    running = cud.nothing(gradients[0].numel())
    for lud in gradients:
        running = cud.absorb(running, lud, unit)
    return running


def total_cosine(gradients: list[Tensor], psi: Tensor) -> float:
    return float(sum(torch.nn.functional.cosine_similarity(lud, psi, 0) for lud in gradients))


# The server: section 4.4.


def test_acceptance_1_nothing_beats_the_closed_form() -> None:
    given = luds(10)
    best = total_cosine(given, cud.direction(summed(given)))
    for i in range(1000):
        assert total_cosine(given, keys.normal(keys.key("try", i), (20,))) <= best + 1e-6
    matrix = torch.stack([lud / lud.norm() for lud in given])
    starts = torch.stack([keys.normal(keys.key("climb", i), (20,)) for i in range(100)]).requires_grad_()
    for _ in range(300):
        value = (matrix @ (starts / starts.norm(dim=1, keepdim=True)).T).sum()
        (slope,) = torch.autograd.grad(value, starts)
        starts = (starts + slope).detach().requires_grad_()
    ends = [total_cosine(given, psi) for psi in starts.detach()]
    assert max(ends) <= best + 1e-4
    assert min(ends) == pytest.approx(best, abs=1e-2)  # there is one maximum only


@pytest.mark.parametrize("count", [1, 3, 10])
def test_acceptance_1_the_semidefinite_program_agrees(count: int) -> None:
    pytest.importorskip("cvxpy", reason="the extra potluck[sdp] is not installed")
    given = luds(count)
    torch.testing.assert_close(cud.sdp(given), cud.direction(summed(given)), atol=1e-4, rtol=0)


def test_acceptance_6_the_order_of_arrival_does_not_matter() -> None:
    given = luds(50)
    ahead, back = summed(given), summed(given[::-1])
    torch.testing.assert_close(cud.direction(ahead), cud.direction(back), atol=1e-6, rtol=0)
    torch.testing.assert_close(cud.magnitude(ahead), cud.magnitude(back), atol=1e-6, rtol=0)


def test_section_7_edge_cases_of_the_server() -> None:
    one = torch.tensor([3.0, 4.0])
    alone = summed([one])
    torch.testing.assert_close(cud.direction(alone), torch.tensor([0.6, 0.8]))
    assert float(cud.magnitude(alone)) == pytest.approx(5.0)
    with_zero = summed([one, torch.zeros(2)])
    torch.testing.assert_close(cud.direction(with_zero), torch.tensor([0.6, 0.8]))
    assert float(cud.magnitude(with_zero)) == pytest.approx(2.5)
    assert not cud.direction(summed([one, -one])).any()  # they cancel: no CUD
    assert float(cud.magnitude(cud.nothing(2))) == -1.0
    assert not cud.direction(cud.nothing(2)).any()


def test_agreement_is_the_mean_cosine_of_pairs() -> None:
    given = luds(6)
    pairs = [float(torch.nn.functional.cosine_similarity(a, b, 0)) for i, a in enumerate(given) for b in given[:i]]
    assert cud.agreement(summed(given)) == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)


def test_unit_off_takes_the_gradients_as_they_are() -> None:
    given = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 3.0])]
    torch.testing.assert_close(cud.direction(summed(given, unit=False)), torch.tensor([1.0, 3.0]) / 10**0.5)


# The client: section 4.3.


def problem() -> tuple[Model, Params, Callable[[Params], tuple[Tensor, Tensor]], Tensor, Tensor]:
    """A small network in float64, a loss on it, and a CUD and CUM that bind."""
    model = build("cfc", (6, 2), 3, SMALL)
    weights = {name: 1.5 * value.double() for name, value in model.init(2).items()}
    x, y = keys.normal(keys.key("x"), (8, 6, 2)).double(), torch.arange(8) % 3
    weight = torch.ones(8, dtype=torch.float64)

    def values(w: Params) -> tuple[Tensor, Tensor]:
        logits, activity = logits_and_activity(model, w, x, weight=weight)
        return torch.nn.functional.cross_entropy(logits, y), activity

    norm = grad(lambda w: values(w)[0])(weights)[LAST].norm()
    return model, weights, values, keys.normal(keys.key("cud"), (D,)).double(), 0.5 * norm


def in_f(weights: Params) -> frozenset[str]:
    return frozenset(name for name in weights if name.startswith("f."))


def objective(values: Any, w: Params, terms: Terms, cud_: Tensor, cum: Tensor, detached: bool = False) -> Tensor:
    """L as it is printed, with q a function of the weights, unless it is detached."""
    loss, activity = values(w)
    q = grad(lambda v: values(v)[0])(w)[LAST].flatten()
    q = q.detach() if detached else q
    r_d = 1 - (q @ cud_) / (q.norm() * cud_.norm())
    r_m = (q.norm() - cum).clamp_min(0.0)
    r_a = (terms.v - activity).clamp_min(0.0) if terms.ra_form == "hinge" else activity - terms.v
    return loss + terms.lambda_d * r_d + terms.lambda_m * r_m + terms.lambda_a * r_a


def assert_live(gradient: Params, plain: Params) -> None:
    """The regularisers reach the weights of f."""
    assert any(not torch.allclose(gradient[name], plain[name], rtol=1e-6) for name in gradient if name.startswith("f."))


@pytest.mark.parametrize("form", ["hinge", "printed"])
def test_acceptance_2_the_bound_gradient_is_that_of_L(form: str) -> None:
    _, weights, values, aim, cum = problem()
    terms = Terms(0.6, 0.2, 0.2, 1.59, form, "exact")
    ours, _ = bound_gradient(values, weights, in_f(weights), LAST, terms, aim, cum)
    whole = grad(lambda w: objective(values, w, terms, aim, cum))(weights)
    plain = grad(lambda w: values(w)[0])(weights)
    for name in weights:
        expected = whole if name.startswith("f.") else plain  # personal modules follow the loss alone
        torch.testing.assert_close(ours[name], expected[name], atol=1e-9, rtol=1e-7)
    assert_live(ours, plain)


def test_acceptance_2_finite_differences() -> None:
    _, weights, values, aim, cum = problem()
    ours, _ = bound_gradient(values, weights, in_f(weights), LAST, FULL, aim, cum)
    for name in in_f(weights):
        way = keys.normal(keys.key("way", name), weights[name].shape).double()
        eps = 1e-5
        ahead = objective(values, {**weights, name: weights[name] + eps * way}, FULL, aim, cum)
        behind = objective(values, {**weights, name: weights[name] - eps * way}, FULL, aim, cum)
        assert float((ahead - behind) / (2 * eps)) == pytest.approx(float((ours[name] * way).sum()), rel=1e-3, abs=1e-7)


def test_acceptance_2_a_detached_q_is_caught() -> None:
    _, weights, values, aim, cum = problem()
    terms = Terms(0.6, 0.2, 0.0, 1.59, "hinge", "exact")
    plain = grad(lambda w: values(w)[0])(weights)
    inert = grad(lambda w: objective(values, w, terms, aim, cum, detached=True))(weights)
    with pytest.raises(AssertionError):
        assert_live(inert, plain)
    assert_live(bound_gradient(values, weights, in_f(weights), LAST, terms, aim, cum)[0], plain)


def test_the_difference_quotient_comes_near() -> None:
    _, weights, values, aim, cum = problem()
    exact, _ = bound_gradient(values, weights, in_f(weights), LAST, FULL, aim, cum)
    near, _ = bound_gradient(
        values, weights, in_f(weights), LAST, Terms(0.6, 0.2, 0.2, 1.59, "hinge", "difference"), aim, cum
    )
    for name in in_f(weights):
        assert float((near[name] - exact[name]).norm()) <= 0.02 * float(exact[name].norm())


def test_no_aim_no_term() -> None:
    q = torch.tensor([0.3, -0.4])
    no_cud, no_cum = torch.zeros(2), torch.tensor(-1.0)
    assert not by_q(FULL, q, no_cud, no_cum).any()
    assert not by_q(FULL, torch.zeros(2), torch.tensor([1.0, 0.0]), torch.tensor(0.0)).any()
    torch.testing.assert_close(by_q(FULL, q, no_cud, torch.tensor(0.1)), 0.2 * q / 0.5)  # R_m alone
    assert not by_q(FULL, q, no_cud, torch.tensor(0.6)).any()  # within CUM
    # R_d alone: at right angles to q, towards CUD
    turn = by_q(FULL, q, torch.tensor([1.0, 0.0]), no_cum)
    assert float(turn @ q) == pytest.approx(0.0, abs=1e-6)
    assert float(turn[0]) < 0


@pytest.mark.parametrize(("form", "sign"), [("hinge", 1.0), ("printed", -1.0)])
def test_acceptance_3_lambda_a_moves_activity_as_it_should(form: str, sign: float) -> None:
    _, begin, values, _, _ = problem()

    def after(lambda_a: float) -> float:
        weights = dict(begin)
        for _ in range(20):
            terms = Terms(0.0, 0.0, lambda_a, 1.59, form, "exact")
            slope, _ = bound_gradient(values, weights, in_f(weights), LAST, terms, torch.zeros(D), torch.tensor(-1.0))
            weights = {name: weights[name] - 0.05 * slope[name] for name in weights}
        return float(values(weights)[1])

    assert sign * (after(1.0) - after(0.0)) > 0.01


# The method on a fleet.


def series(sizes: tuple[int, ...] = (6, 9, 7), classes: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = keys.rng("series")
    out = []
    for n in sizes:
        y = np.arange(n) % classes
        x = 0.5 * draw.normal(size=(n, 6, 2)) + np.sin(np.arange(6)[None, :, None] * (1 + y[:, None, None]))
        out.append((x.astype(np.float32), y))
    return out


def ran(rounds: int = 3, sizes: dict[str, Any] = SMALL, **settings: Any) -> tuple[Any, Any, list[Any]]:
    """Fleet and state after some rounds, and all updates."""
    config = METHOD.configure({"recipe.batch": 4, "recipe.lr": 0.1, **settings})
    fleet, state = fleet_of(METHOD, config, series(), model=build("cfc", (6, 2), 3, sizes))
    updates: list[Any] = []
    gather = fleet.gather

    def spy(tasks: Any, until: Any = None) -> Any:
        arrivals = gather(tasks, until)
        updates.extend([*tasks.values(), *(arrival.update for arrival in arrivals)])
        return arrivals

    fleet.gather = spy  # type: ignore[method-assign]
    state = run(METHOD, config, fleet, state, rounds)
    return fleet, state, updates


def numbers(message: Any) -> int:
    return sum(tensor.numel() for tensor in flatten(message)[1])


def test_acceptance_4_only_d_numbers_and_one_leave_a_client() -> None:
    fleet, state, messages = ran()
    assert {type(m) for m in messages} == {fedcfc.Round, fedcfc.Report}
    assert all(numbers(m) == D + 1 for m in messages)
    assert not state.weights  # the server has nobody's modules
    for place in range(3):
        assert fleet.mine(place).weights.keys() == state.starts[0].keys()


def test_the_server_binds_to_what_was_reported() -> None:
    _, state, messages = ran(rounds=1)
    reported = [unpacked(m.lud) for m in messages if isinstance(m, fedcfc.Report)]
    torch.testing.assert_close(state.aims[0].cud, cud.direction(summed(reported)))
    assert float(state.aims[0].cud.norm()) == pytest.approx(1.0, abs=1e-6)
    assert float(state.aims[0].cum) == pytest.approx(float(np.mean([lud.norm() for lud in reported])), rel=1e-5)


@pytest.mark.parametrize("variant", list(fedcfc.BINDS))
def test_each_variant_shares_what_it_says(variant: str) -> None:
    fleet, state, messages = ran(variant=variant)
    report = next(m for m in messages if isinstance(m, fedcfc.Report))
    heads = {"fbind": set(), "fgh": {"g", "h"}}.get(variant, {"f"})
    assert {name[0] for name in report.weights} == heads
    assert (report.control.keys() == report.weights.keys()) == (variant in ("fbind", "fscaf", "fgh"))
    assert report.lud.values.numel() == (D if variant in ("fbind", "fgh") else 0)
    personal = [METHOD.personal(state, f"c{i}", fleet.mine(i)) for i in range(3)]
    for name in personal[0]:
        same = torch.equal(personal[0][name], personal[1][name])
        assert same == (name.partition(".")[0] in heads), name


def test_fprox_holds_nearer_than_favg() -> None:
    def moved(**settings: Any) -> float:
        _, state, _ = ran(rounds=2, **settings)
        return float(sum((state.weights[n] - state.starts[0][n]).norm() for n in state.weights))

    assert moved(variant="fprox", mu=5.0) < moved(variant="favg")


@pytest.mark.parametrize("wire", ["float16", "int8"])
def test_a_shorter_wire_says_nearly_the_same(wire: str) -> None:
    lud = keys.normal(keys.key("lud"), (40,))
    back = unpacked(packed(lud, wire))
    assert float((back - lud).abs().max()) <= float(lud.abs().max()) / 127
    _, state, messages = ran(wire=wire)
    assert all(m.lud.values.dtype == getattr(torch, wire) for m in messages if isinstance(m, fedcfc.Report))
    assert float(state.aims[0].cud.norm()) == pytest.approx(1.0, abs=1e-5)


def test_precision_clusters() -> None:
    fleet, state, _ = ran(precisions=["float32", "float16", "int8"], rounds=3)
    kinds = [fleet.mine(i).weights[LAST].dtype for i in range(3)]
    assert kinds == [torch.float32, torch.float16, torch.int8]
    assert len(state.aims) == 3
    assert METHOD.clusters(state) == {"c0": 0, "c1": 1, "c2": 2}
    for i in range(3):
        personal = METHOD.personal(state, f"c{i}", fleet.mine(i))
        assert all(value.dtype == torch.float32 for value in personal.values())
        assert any(not torch.equal(personal[name], state.starts[0][name]) for name in personal)
    together = ran(precisions=["float32", "float16", "int8"], precision_cluster=False)[1]
    assert len(together.aims) == 1


@pytest.mark.parametrize(
    "extra", [{}, {"common_start": False}, {"precisions": ["float32", "int8"]}, {"pretrain.epochs": 1}]
)
def test_boards_of_unlike_depth_are_bound_to_one_direction(extra: dict[str, Any]) -> None:
    """Table 4: 1-1-1, 2-1-1 and 2-2-2 layers of f, g and h."""
    wanted = ["1-1-1", "2-1-1", "2-2-2"]
    fleet, state, messages = ran(rounds=3, sizes={**SMALL, "head": 5}, depths=wanted, **extra)
    assert [depths.of(precision.loaded(fleet.mine(i).weights)) for i in range(3)] == wanted
    reports = [m for m in messages if isinstance(m, fedcfc.Report)]
    assert reports
    assert {m.lud.values.numel() for m in reports} == {3 * 5}
    assert all(aim.cud.numel() == 3 * 5 for aim in state.aims)
    if not extra:  # V begins alike
        assert all(torch.equal(start[LAST], state.starts[0][LAST]) for start in state.starts)
    for i in range(3):
        personal = METHOD.personal(state, f"c{i}", fleet.mine(i))
        logits = fleet.home.model.logits(personal, torch.zeros(2, 6, 2))
        assert logits.isfinite().all()


@pytest.mark.parametrize("form", ["float16", "int8"])
def test_rounding_at_random_has_the_right_mean(form: str) -> None:
    weights = {"w": torch.full((20_000,), 0.3001), "v": torch.tensor([1.0, -1.0])}
    like = precision.stored(weights, form)
    value = {"w": torch.full((20_000,), 0.30037), "v": weights["v"]}
    back = precision.loaded(precision.rounded(value, like, keys.key("round")))
    grid = back["w"].float().unique()
    assert len(grid) <= 2
    assert float(back["w"].float().mean()) == pytest.approx(0.30037, abs=6e-5)
    exact = precision.rounded(precision.loaded(like), like, keys.key("again"))
    assert all(torch.equal(exact[name], like[name]) for name in like)  # what can be told is kept


def test_without_a_common_start_everybody_begins_elsewhere() -> None:
    fleet, state, _ = ran(rounds=1, common_start=False)
    firsts = [fleet.mine(i).weights[LAST] for i in range(3)]
    assert not torch.equal(firsts[0], firsts[1])
    assert state.round == 1


def test_classes_come_one_after_another() -> None:
    assert [so_far(2, False, 3, 4, done) for done in range(8)] == [2, 2, 2, 3, 3, 3, 4, 4]
    assert [so_far(2, True, 3, 4, done) for done in range(8)] == [3, 3, 3, 4, 4, 4, 4, 4]  # the first are pre-trained
    assert so_far(0, True, 3, 4, 5) == 0
    data = Data(torch.zeros(6, 1, 1), torch.tensor([0, 1, 2, 3, 2, 0]), torch.tensor([1.0, 1, 1, 1, 1, 0]))
    for classes, weights in ((2, [1, 1, 0, 0, 0, 0]), (3, [0, 0, 1, 0, 1, 0]), (0, [1, 1, 1, 1, 1, 0])):
        assert present(data, classes, 2, 0.0, keys.key(0)).weight.tolist() == weights
    assert present(data, 4, 2, 1.0, keys.key(0)).weight.tolist() == data.weight.tolist()


def test_the_run_ends_when_nobody_gains() -> None:
    state = fedcfc.start(build("cfc", (6, 2), 3, SMALL).init(0), fedcfc.Config())
    report = fedcfc.Report(packed(torch.zeros(D), "float32"), torch.tensor(0.5), {}, {})

    class Arrival:
        client, update = "c0", report

    state = fedcfc._watched(state, fedcfc.Config(settle=0.0005), [Arrival()])  # type: ignore[list-item]
    assert not state.settled
    state = fedcfc._watched(state, fedcfc.Config(settle=0.0005), [Arrival()])  # type: ignore[list-item]
    assert state.settled == 2


def test_refuses_what_it_cannot_do() -> None:
    with pytest.raises(BadInput, match=r"model\.name"):
        fedcfc.start(build("softmax", (4,), 3, {}).init(0), fedcfc.Config())
    with pytest.raises(BadInput, match=r"method\.variant"):
        METHOD.configure({"variant": "fbond"})
    with pytest.raises(BadInput, match=r"method\.precisions"):
        METHOD.configure({"precisions": ["int4"]})
    with pytest.raises(BadInput, match=r"method\.depths: favg averages heads"):
        METHOD.configure({"variant": "favg", "depths": ["1-1-1"]})
    model = build("cfc", (6, 2), 3, SMALL)
    nothing = Data(torch.zeros(0, 6, 2), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    fleet: Any = SimpleNamespace(home=Local(model, nothing, None, keys.key(0)))
    with pytest.raises(BadInput, match=r"method\.pretrain.*server\.share"):
        pretrained(fleet, model.init(0), Pretrain(epochs=1), Recipe(), seed=0)


def test_pre_training_is_what_everybody_begins_with() -> None:
    fleet, state, messages = ran(rounds=1, **{"pretrain.epochs": 2})
    assert {type(m) for m in messages} == {fedcfc.Begin, fedcfc.Begun}
    for place in range(3):
        assert torch.equal(fleet.mine(place).weights[LAST], state.starts[0][LAST])
    assert not torch.equal(state.starts[0][LAST], build("cfc", (6, 2), 3, SMALL).init(0)[LAST])


def volume(variant: str, model: Model, wire: str = "float32") -> int:
    """Bytes of one client's round, both ways, as they are encoded."""
    cfg = fedcfc.Config(variant=variant, wire=wire)
    state = fedcfc.start(model.init(0), cfg)
    task = fedcfc._task(state, cfg, 0, 0)
    report = fedcfc.Report(task.cud, torch.tensor(-1.0), state.weights, state.control)
    return size(task) + size(report)


def test_ten_times_fewer_bytes_than_sharing_f() -> None:
    """A state of 16 and a backbone of 192: the shape that the published volumes imply."""
    wide = build("cfc", (128, 9), 6, {"hidden": 16, "backbone": 192, "head": 16})
    assert volume("favg", wide) >= 10 * volume("fbind", wide)
    assert volume("fbind", wide) < 3000  # published: about 2.5 kB
    assert volume("fbind", wide, "int8") < volume("fbind", wide, "float16") < volume("fbind", wide)
