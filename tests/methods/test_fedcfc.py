"""FedCFC on a fleet: what crosses the wire, the variants, and how clients start."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from helpers.fleets import fleet_of, run

from potluck import keys, methods
from potluck.errors import BadInput
from potluck.fleet import Data, Local
from potluck.learn import Recipe
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc import cud, depths, precision
from potluck.methods.parts.fedcfc.precision import Format
from potluck.methods.parts.fedcfc.quantised import packed, unpacked
from potluck.methods.parts.fedcfc.start import Begin, Begun
from potluck.methods.parts.fedcfc.variants import Variant
from potluck.methods.parts.starts import Pretrain, pretrained
from potluck.models import Model, build
from potluck.testing import Trial, assert_same
from potluck.wire.codec import flatten, size

METHOD = methods.load("fedcfc")
SMALL: dict[str, Any] = {"hidden": 3, "backbone": 5, "head": 4}
D = 3 * 4
LAST = "f.2.weight"


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
    assert not state.weights  # the server has no client's modules
    for place in range(3):
        assert fleet.mine(place).weights.keys() == state.starts[0].keys()


def test_the_server_binds_to_what_was_reported() -> None:
    _, state, messages = ran(rounds=1)
    reported = [unpacked(m.lud) for m in messages if isinstance(m, fedcfc.Report)]
    running = cud.nothing(D)
    for lud in reported:
        running = cud.absorb(running, lud)
    torch.testing.assert_close(state.aims[0].cud, cud.direction(running))
    assert float(state.aims[0].cud.norm()) == pytest.approx(1.0, abs=1e-6)
    assert float(state.aims[0].cum) == pytest.approx(float(np.mean([lud.norm() for lud in reported])), rel=1e-5)


@pytest.mark.parametrize("variant", get_args(Variant))
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
def test_boards_of_unlike_depth_share_one_direction(extra: dict[str, Any]) -> None:
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


def test_without_a_common_start_each_client_draws_its_own() -> None:
    fleet, state, _ = ran(rounds=1, common_start=False)
    firsts = [fleet.mine(i).weights[LAST] for i in range(3)]
    assert not torch.equal(firsts[0], firsts[1])
    assert state.round == 1


def test_the_run_ends_when_no_client_gains() -> None:
    """Without validation rows each client counts as gaining: only a state that has settled ends the run."""
    config = METHOD.configure({"recipe.batch": 4, "settle": 0.5})
    fleet, state = fleet_of(METHOD, config, series(), model=build("cfc", (6, 2), 3, SMALL))
    assert len(list(METHOD.server(fleet, replace(state, settled=1), config))) == 1
    assert run(METHOD, config, fleet, state, 3).settled == 0


def test_refuses_what_it_cannot_do() -> None:
    with pytest.raises(BadInput, match=r"model\.name"):
        fedcfc.start(build("softmax", (4,), 3, {}).init(0), fedcfc.Config())
    with pytest.raises(BadInput, match=r"method\.variant"):
        METHOD.configure({"variant": "fbond"})
    with pytest.raises(BadInput, match=r"method\.precisions"):
        METHOD.configure({"precisions": ["int4"]})
    with pytest.raises(BadInput, match=r"method\.depths: must be empty with favg"):
        METHOD.configure({"variant": "favg", "depths": ["1-1-1"]})
    model = build("cfc", (6, 2), 3, SMALL)
    nothing = Data(torch.zeros(0, 6, 2), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    fleet: Any = SimpleNamespace(home=Local(model, nothing, None, keys.key(0)))
    with pytest.raises(BadInput, match=r"method\.pretrain.*server\.share"):
        pretrained(fleet, model.init(0), Pretrain(epochs=1), Recipe(), seed=0)


def test_all_clients_start_pre_trained() -> None:
    fleet, state, messages = ran(rounds=1, **{"pretrain.epochs": 2})
    assert {type(m) for m in messages} == {Begin, Begun}
    for place in range(3):
        assert torch.equal(fleet.mine(place).weights[LAST], state.starts[0][LAST])
    assert not torch.equal(state.starts[0][LAST], build("cfc", (6, 2), 3, SMALL).init(0)[LAST])


def volume(variant: Variant, model: Model, wire: Format = "float32") -> int:
    """Bytes of one client's round, both ways, as they are encoded."""
    cfg = fedcfc.Config(variant=variant, wire=wire)
    state = fedcfc.start(model.init(0), cfg)
    task = fedcfc.task_of(state, cfg, 0, 0)
    report = fedcfc.Report(task.cud, torch.tensor(-1.0), state.weights, state.control)
    return size(task) + size(report)


def test_ten_times_fewer_bytes_than_sharing_f() -> None:
    """A state of 16 and a backbone of 192: the shape that the published volumes imply."""
    wide = build("cfc", (128, 9), 6, {"hidden": 16, "backbone": 192, "head": 16})
    assert volume("favg", wide) >= 10 * volume("fbind", wide)
    assert volume("fbind", wide) < 3000  # published: about 2.5 kB
    assert volume("fbind", wide, "int8") < volume("fbind", wide, "float16") < volume("fbind", wide)


def test_rounding_to_int8_draws_the_same_in_a_stack_as_alone() -> None:
    """A stack pads small clients with empty batches, which must not count as steps."""
    trial = Trial("fedcfc", {"precisions": ["int8"]})
    together, alone = (trial.run(2, run={"stacking": stacking}).models for stacking in ("always", "never"))
    assert_same(together, alone, "stacked and one by one")
