"""Each check can fail: methods with one fault each, and the check that must find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from potluck.testing import CHECKS, Trial, run_checks

GOOD = Path(__file__).parents[2] / "examples" / "a_method_of_your_own.py"
DONE = "    return Done(Trained(weights, local.data.weight.sum()))"
NEXT = "        state = State(weights, state.round + 1)"
LOOP = "    while True:\n"
# What is replaced in the good method, the check that must fail, and a part of its sentence.
FAULTS: dict[str, tuple[dict[str, str], str, str]] = {
    "an update instead of Done": (
        {DONE: "    return Trained(weights, local.data.weight.sum())"},
        "runs",
        "must return Done",
    ),
    "a state that cannot be saved": (
        {"    round: int = 0": "    round: int = 0\n    seen: frozenset[int] = frozenset()"},
        "saves",
        "State.seen",
    ),
    "a message that is not frozen": (
        {"@dataclass(frozen=True)\nclass Train:": "@dataclass\nclass Train:"},
        "messages",
        "must be a frozen dataclass",
    ),
    "a server that forgets what it learned": (
        {NEXT: "        state = State(state.weights, state.round + 1)"},
        "learns",
        "still that of the start",
    ),
    "global randomness": (
        {DONE: f"    weights = {{n: w + torch.rand(w.shape) for n, w in weights.items()}}\n{DONE}"},
        "same-seed",
        "two runs with one seed",
    ),
    "state outside of State": (
        {
            LOOP: f"    done = 0\n{LOOP}        done += 1\n",
            NEXT: "        state = State({n: w / done for n, w in weights.items()}, state.round + 1)",
        },
        "resume",
        "started again at every yield",
    ),
    "at least one answer is expected": (
        {" if updates else state.weights": ""},
        "all-lost",
        "IndexError",
    ),
    "a server that never yields": (
        {"        yield state  #": "        if not state.round:\n            yield state  #"},
        "runs",
        "yielded no state",
    ),
    "rounds that are not counted": (
        {NEXT: "        state = State(weights, state.round)"},
        "runs",
        "State.round",
    ),
    "clients of the first round only": (
        {
            LOOP: f"    first = set(fleet.idle)\n{LOOP}",
            "{client: task for client in chosen}": "{client: task for client in chosen if client in first}",
        },
        "late-joiner",
        "asks all clients but",
    ),
}


def with_fault(folder: Path, fault: str) -> Path:
    text = GOOD.read_text(encoding="utf-8")
    for old, new in FAULTS[fault][0].items():
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "faulty.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("fault", FAULTS)
def test_finds(fault: str, tmp_path: Path) -> None:
    _, check, sentence = FAULTS[fault]
    trial = Trial(str(with_fault(tmp_path, fault)))
    (result,) = run_checks(trial, only=[check])
    assert result.outcome == "failed", result
    assert sentence in result.detail


def test_after_a_first_failure_the_rest_is_skipped(tmp_path: Path) -> None:
    results = list(run_checks(Trial(str(with_fault(tmp_path, "a server that never yields")))))
    assert [result.name for result in results] == list(CHECKS)
    assert [result.outcome for result in results[:2]] == ["passed", "failed"]
    assert {result.outcome for result in results[2:]} == {"skipped"}


def test_the_failing_line_of_the_method_is_named(tmp_path: Path) -> None:
    (result,) = run_checks(Trial(str(with_fault(tmp_path, "at least one answer is expected"))), only=["all-lost"])
    assert result.where.startswith("faulty.py:")


def test_every_check_says_what_passing_means() -> None:
    for name, check in CHECKS.items():
        assert (check.__doc__ or "").splitlines()[0].endswith("."), name
