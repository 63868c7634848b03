"""The closed-form continuous-time network: its equations, time, padding, stacks and second derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vjp, vmap

from potluck import keys
from potluck.errors import BadInput
from potluck.models import build
from potluck.models.cfc import f_outputs, logits_and_activity, spans, states_and_read, unroll
from potluck.models.cfc_loops import Kind
from potluck.models.cfc_scan import cfc_scan, unrolled

KINDS = [Kind(gated, timed) for gated in (False, True) for timed in (False, True)]
WIDTHS = [(3, 0), (2, 2), (0, 2)]  # first layers of the heads, backbone units the last layers read: 2,2,2; 2,1,1; 1,1,1
SMALL: dict[str, Any] = {"hidden": 3, "backbone": 5, "head": 4}


def normal(*parts: Any, shape: tuple[int, ...]) -> Tensor:
    return keys.normal(keys.key("cfc", *parts), shape)


def arguments(J: int, E: int, *lead: int, B: int = 2, T: int = 3, N: int = 1, H: int = 2) -> tuple[Tensor, ...]:
    shapes = ((B, T, H), (B, T), (H, N), (J, H), (J,), (3 * N, J + E), (3 * N,))
    u, tau, *rest = (normal(i, shape=(*lead, *shape)).double() for i, shape in enumerate(shapes))
    return (u, tau.abs() + 0.5, *rest)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("J", "E"), WIDTHS)
def test_scan_to_the_second_derivative(kind: Kind, J: int, E: int) -> None:
    values = arguments(J, E)
    torch.testing.assert_close(cfc_scan(kind, *values), unrolled(kind, *values))
    inputs = [value.requires_grad_(i != 1) for i, value in enumerate(values)]
    assert torch.autograd.gradcheck(lambda *v: cfc_scan(kind, *v), inputs)
    assert torch.autograd.gradgradcheck(lambda *v: cfc_scan(kind, *v), inputs)


def test_third_derivatives_are_refused() -> None:
    values = [value.requires_grad_(i != 1) for i, value in enumerate(arguments(3, 0))]
    weights = [value for i, value in enumerate(values) if i != 1]
    (first, *_) = torch.autograd.grad(cfc_scan(Kind(), *values).square().sum(), weights, create_graph=True)
    (second, *_) = torch.autograd.grad(first.square().sum(), weights, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives"):
        torch.autograd.grad(second.square().sum(), weights)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_equals_one_by_one(kind: Kind) -> None:
    stack = arguments(2, 2, 4)

    def hessian_times_self(*v: Tensor) -> Any:
        def slope(d: Tensor) -> Tensor:
            return grad(lambda x: cfc_scan(kind, *v[:5], x, v[6]).square().sum())(d)

        first, pull = vjp(slope, v[5])
        return first, pull(first)[0]

    together = vmap(hessian_times_self)(*stack)
    for place in range(4):
        alone = hessian_times_self(*(value[place] for value in stack))
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[place], b)


def by_hand(weights: dict[str, Tensor], x: Tensor, tau: Tensor, gated: bool) -> Tensor:
    """The equations as they are printed, one sample and one step at a time."""

    def act(a: Tensor) -> Tensor:
        return 1.7159 * torch.tanh(0.666 * a)

    def head(name: str, z: Tensor) -> Tensor:
        layers = sorted(n for n in weights if n.startswith(f"{name}.") and n.endswith("weight"))
        for layer in layers:
            z = weights[layer] @ z + weights[layer.replace("weight", "bias")]
            z = act(z) if layer != layers[-1] else z
        return z

    state = torch.zeros(weights["fc.weight"].shape[1])
    for step in range(x.shape[0]):
        z = act(weights["backbone.weight"] @ torch.cat((x[step], state)) + weights["backbone.bias"])
        s = torch.sigmoid(-head("f", z) * tau[step])
        g, h = torch.tanh(head("g", z)), torch.tanh(head("h", z))
        state = s * g + ((1 - s) * h if gated else h)
    return weights["fc.weight"] @ state + weights["fc.bias"]


@pytest.mark.parametrize("layers", [[2, 2, 2], [2, 1, 1], [1, 1, 1], [1, 2, 1]])
@pytest.mark.parametrize("gate", ["no_gate", "gated"])
def test_the_printed_equations(layers: list[int], gate: str) -> None:
    model = build("cfc", (6, 2), 4, {**SMALL, "layers": layers, "gate": gate, "interval": 0.5})
    weights, x = model.init(0), normal("x", shape=(3, 6, 2))
    t = normal("t", shape=(3, 6)).abs().cumsum(1)
    tau = spans(t, 0.5)
    assert tau is not None
    for i, logits in enumerate(model.logits(weights, x, t=t)):
        torch.testing.assert_close(logits, by_hand(weights, x[i], tau[i], gate == "gated"), atol=1e-5, rtol=1e-5)
    for i, logits in enumerate(model.logits(weights, x)):
        torch.testing.assert_close(logits, by_hand(weights, x[i], torch.ones(6), gate == "gated"), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ["lecun_tanh", "silu"])
def test_acceptance_5_time_counts_and_regular_time_is_time_one(activation: str) -> None:
    model = build("cfc", (7, 2), 3, {**SMALL, "activation": activation})
    weights, x = model.init(1), normal("x", shape=(4, 7, 2))
    t = torch.arange(7.0).expand(4, 7)
    torch.testing.assert_close(model.logits(weights, x, t=t), model.logits(weights, x))
    assert not torch.allclose(model.logits(weights, x, t=2 * t), model.logits(weights, x), atol=1e-4)
    twice = build("cfc", (7, 2), 3, {**SMALL, "activation": activation, "interval": 2.0})
    torch.testing.assert_close(twice.logits(weights, x, t=2 * t), model.logits(weights, x))


def test_each_sequence_has_its_own_time_spans() -> None:
    model = build("cfc", (7, 2), 3, SMALL)
    weights, x = model.init(1), normal("x", shape=(3, 7, 2))
    t = normal("t", shape=(3, 7)).abs().cumsum(1)
    together = model.logits(weights, x, t=t)
    for i in range(3):
        torch.testing.assert_close(model.logits(weights, x[i : i + 1], t=t[i : i + 1])[0], together[i])


@pytest.mark.parametrize("name", ["cfc", "ltc", "bilstm"])
def test_padding_changes_nothing(name: str) -> None:
    model = build(name, (9, 2), 3, {"hidden": 3})
    weights, x = model.init(0), normal("x", shape=(2, 9, 2))
    length = torch.tensor([4, 9])
    spoiled = x.clone()
    spoiled[0, 4:] = 100.0
    torch.testing.assert_close(model.logits(weights, x, length=length), model.logits(weights, spoiled, length=length))
    short = model.logits(weights, x[:1, :4], length=torch.tensor([4]))
    torch.testing.assert_close(model.logits(weights, x, length=length)[:1], short)


def test_bilstm_reads_both_ends() -> None:
    model = build("bilstm", (5, 2), 3, {"hidden": 3})
    weights, x = model.init(0), normal("x", shape=(1, 5, 2))
    for end in (0, -1):
        other = x.clone()
        other[0, end] += 1.0
        assert not torch.allclose(model.logits(weights, x), model.logits(weights, other))


def test_ltc_comes_to_rest_where_its_equation_says() -> None:
    """With φ held constant by zero weights, dx/dt = -ω x + φ (a - x) ends at φ a / (ω + φ)."""
    model = build("ltc", (400, 1), 2, {"hidden": 2})
    weights = {name: torch.zeros_like(value) for name, value in model.init(0).items()}
    weights["target"] = torch.tensor([1.0, -2.0])
    weights["fc.weight"] = torch.eye(2)
    phi, omega = 0.5, torch.nn.functional.softplus(torch.tensor(0.0))
    rest = phi * weights["target"] / (omega + phi)
    torch.testing.assert_close(model.logits(weights, torch.zeros(1, 400, 1))[0], rest, atol=1e-4, rtol=1e-4)


def test_activity_is_the_least_active_layer_by_its_most_active_unit() -> None:
    model = build("cfc", (5, 2), 3, SMALL)
    weights, x = model.init(3), normal("x", shape=(3, 5, 2))
    weight, length = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([5, 2, 5])
    logits, activity = logits_and_activity(model, weights, x, weight=weight, length=length)
    torch.testing.assert_close(logits, model.logits(weights, x, length=length))
    states, read = states_and_read(weights, model.settings, x)
    torch.testing.assert_close(read[:, 1:], states[:, :-1])
    tops = []
    for out in f_outputs(weights, model.settings, x, read):
        rows = torch.cat((out[0], out[1, :2]))  # the samples that count, their valid steps
        tops.append(float(rows.mean(0).max()))
    assert len(tops) == 2
    assert float(activity) == pytest.approx(min(tops), abs=1e-6)


def test_other_shapes_are_read_value_by_value() -> None:
    image, line = build("cfc", (1, 3, 4), 2, SMALL), build("cfc", (12, 1), 2, SMALL)
    weights, x = line.init(0), normal("x", shape=(2, 12, 1))
    torch.testing.assert_close(image.logits(weights, x.view(2, 1, 3, 4)), line.logits(weights, x))


def test_layers_are_three_of_one_or_two() -> None:
    for layers in ([2, 2], [3, 1, 1]):
        with pytest.raises(BadInput, match=r"model\.layers.*1 or 2"):
            build("cfc", (5, 2), 2, {"layers": layers})


@pytest.mark.parametrize("layers", [(2, 2, 2), (1, 1, 1)])
@pytest.mark.parametrize("gate", ["no_gate", "gated"])
@pytest.mark.parametrize("activation", ["lecun_tanh", "silu"])
def test_a_network_begins_with_a_memory(layers: tuple[int, ...], gate: str, activation: str) -> None:
    """What one input left behind is still there after thirty steps of silence, as it was; a usual draw loses it."""

    def change(init: str) -> float:
        settings = {"hidden": 4, "backbone": 9, "head": 8, "layers": layers, "gate": gate, "activation": activation}
        model = build("cfc", (31, 2), 3, {**settings, "init": init})
        weights = {name: w * 0.0 if name.startswith(("g.", "f.")) else w for name, w in model.init(3).items()}
        x = torch.zeros(1, 31, 2)
        x[0, 0] = 0.01  # where all is nearly straight
        (states,) = unroll(weights, model.settings, x)
        return float((states[-1] - states[0]).norm() / states[0].norm())

    assert change("memory") < 0.2
    assert change("xavier") > 0.8


@pytest.mark.parametrize(("backbone", "head"), [(3, 8), (9, 2)])
def test_narrow_layers_remember_what_they_can(backbone: int, head: int) -> None:
    weights = build("cfc", (5, 2), 3, {"hidden": 6, "backbone": backbone, "head": head}).init(0)
    through = weights["h.2.weight"] @ weights["h.1.weight"] @ weights["backbone.weight"][:, 2:] * (1.7159 * 0.666) ** 2
    torch.testing.assert_close(through @ through, through)  # a projection
    assert torch.linalg.matrix_rank(through) == min(backbone, head)


@pytest.mark.parametrize("activation", ["lecun_tanh", "silu"])
def test_half_precision_takes_time_stamps(activation: str) -> None:
    """Differences of time stamps are taken at the clock's precision: late in a long recording float16 has none left."""
    model = build("cfc", (6, 2), 3, {**SMALL, "interval": 0.1, "activation": activation})
    weights, x = model.init(0), normal("x", shape=(2, 6, 2))
    t = 5000.0 + 0.1 * torch.arange(6.0).expand(2, 6)
    half = {name: w.half() for name, w in weights.items()}
    out = model.logits(half, x.half(), t=t)
    assert out.dtype == torch.float16
    torch.testing.assert_close(out.float(), model.logits(weights, x, t=t), atol=0.02, rtol=0)
    slope = grad(lambda w: model.logits(w, x.half(), t=t).float().square().sum())
    (_, pull) = vjp(slope, half)
    assert all(value.dtype == torch.float16 for value in pull(half)[0].values())


def test_time_bias_by_hand() -> None:
    """s = σ(-f tau + b(z)): at first b is 0, and with one number for b the gate moves by it."""
    plain, biased = (build("cfc", (4, 2), 3, {**SMALL, "time_bias": on}) for on in (False, True))
    weights, x = biased.init(0), normal("x", shape=(2, 4, 2))
    t = torch.arange(4.0).expand(2, 4) * 1.7
    same = {name: value for name, value in weights.items() if not name.startswith("time.")}
    torch.testing.assert_close(biased.logits(weights, x, t=t), plain.logits(same, x, t=t))
    still = {name: torch.zeros_like(value) for name, value in weights.items()}
    still["g.2.bias"], still["time.bias"] = torch.full((3,), 20.0), torch.tensor([1.0, 0.0, -1.0])
    states = unroll(still, biased.settings, x, t)
    torch.testing.assert_close(states[0, -1], torch.sigmoid(still["time.bias"]))


def test_two_half_steps_of_a_leaky_cell_are_one_step() -> None:
    model = build("cfc", (2, 2), 3, {**SMALL, "gate": "leaky"})
    weights = model.init(0)
    weights["backbone.weight"] = weights["backbone.weight"].clone()
    weights["backbone.weight"][:, 2:] = 0.0  # z is then the input's alone
    once, twice = torch.ones(1, 1, 2), torch.ones(1, 2, 2)
    halves = unroll(weights, model.settings, twice, torch.tensor([[0.0, 1.0]]))  # the first span is 1
    whole = unroll(weights, model.settings, once)
    torch.testing.assert_close(halves[:, 0], whole[:, 0])
    y = whole[0, 0] / (1 - torch.exp(-torch.nn.functional.softplus(_f(model, weights, once)[0, 0])))
    many = unroll(weights, model.settings, torch.ones(1, 500, 2))
    torch.testing.assert_close(many[0, -1], y, atol=1e-2, rtol=1e-2)  # it comes to rest at y
    quarter = build("cfc", (5, 2), 3, {**SMALL, "gate": "leaky", "interval": 4.0})
    slow = unroll(weights, quarter.settings, torch.ones(1, 5, 2), torch.arange(5.0)[None])
    two = unroll(weights, quarter.settings, torch.ones(1, 2, 2), torch.tensor([[0.0, 4.0]]))
    torch.testing.assert_close(slow[0, -1], two[0, -1])  # four quarters and one whole


def _f(model: Any, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    return f_outputs(weights, model.settings, x, states_and_read(weights, model.settings, x)[1])[-1]


def test_mixed_memory_is_an_lstm_whose_output_the_backbone_reads() -> None:
    model = build("cfc", (5, 2), 3, {**SMALL, "mixed": True})
    weights, x = model.init(0), normal("x", shape=(2, 5, 2))
    cell = torch.nn.LSTMCell(2, 3)
    with torch.no_grad():
        cell.weight_ih.copy_(weights["lstm.weight"][:, :2])
        cell.weight_hh.copy_(weights["lstm.weight"][:, 2:])
        cell.bias_ih.copy_(weights["lstm.bias"])
        cell.bias_hh.zero_()
    plain = {name: value for name, value in weights.items() if not name.startswith("lstm.")}
    state, kept = torch.zeros(2, 3), torch.zeros(2, 3)
    for step in range(5):
        state, kept = cell(x[:, step], (state, kept))
        state = torch.stack([_one(plain, x[i, step], state[i]) for i in range(2)])
    torch.testing.assert_close(unroll(weights, model.settings, x)[:, -1], state, atol=1e-5, rtol=1e-5)


def _one(weights: dict[str, Tensor], x: Tensor, before: Tensor) -> Tensor:
    def act(a: Tensor) -> Tensor:
        return 1.7159 * torch.tanh(0.666 * a)

    z = act(weights["backbone.weight"] @ torch.cat((x, before)) + weights["backbone.bias"])
    f, g, h = (
        weights[f"{n}.2.weight"] @ act(weights[f"{n}.1.weight"] @ z + weights[f"{n}.1.bias"]) + weights[f"{n}.2.bias"]
        for n in "fgh"
    )
    return torch.sigmoid(-f) * torch.tanh(g) + torch.tanh(h)


def test_a_time_bias_has_no_place_in_a_leaky_cell() -> None:
    with pytest.raises(BadInput, match=r"model\.time_bias: must be false"):
        build("cfc", (5, 2), 2, {"gate": "leaky", "time_bias": True})
