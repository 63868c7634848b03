"""What the page knows of a run: everybody at any moment, read on as it is written, and anew after it was taken back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from potluck.errors import BadInput
from potluck.watch.follow import Follower

from .conftest import Going


@pytest.mark.parametrize(
    ("at", "tiles"),
    [(0.5, "dddd"), (1.0, "tttt"), (5.9, "tttt"), (6.0, "uuuu"), (7.9, "uuuu"), (8.0, "arxa"), (10.0, "arxa")],
)
def test_what_everybody_does_at_a_moment(going: Callable[..., Going], at: float, tiles: str) -> None:
    """A task takes 1 s to come, 5 s to train and 2 s to go; then what became of it shows."""
    run = going()
    run.round(refused="c0001", lost="c0002")
    assert Follower(run.folder).moment(at)["tiles"] == tiles


def test_between_two_answers_clients_wait(going: Callable[..., Going]) -> None:
    run = going()
    run.round()
    run.round()
    assert Follower(run.folder).moment(8.5)["tiles"] == "aaaa"
    assert Follower(run.folder).moment(10.0)["tiles"] == "dddd"
    assert Follower(run.folder).moment(20.0)["tiles"] == "aaaa"
    quiet = going("quiet", clients=2)
    quiet.round()
    quiet.unfit("c0001")  # a step in which nobody is asked
    assert Follower(quiet.folder).moment(None)["tiles"] == "wn"


def test_too_small_to_train_is_not_lost(going: Callable[..., Going]) -> None:
    run = going(clients=2)
    run.round(lost="c0000")
    run.unfit("c0001")
    follower = Follower(run.folder)
    assert (follower.head()["lost"], follower.head()["unfit"]) == (1, 1)
    found = follower.moment(None)
    assert (found["lost"], found["unfit"], found["tiles"]) == (1, 1, "xn")
    told = {one["client"]: (one["what"], one["why"]) for one in found["troubles"]}
    assert told["c0001"] == ("unfit", "does not fit: too small.")


def test_before_anything_happened(going: Callable[..., Going]) -> None:
    run = going(clients=2)
    follower = Follower(run.folder)
    assert follower.head()["step"] == 0
    assert follower.moment(None) == {
        "at": 0.0, "step": 0, "round": 0, "accuracy": None, "tiles": "--", "shares": [-1, -1], "refused": 0, "lost": 0,
        "unfit": 0, "troubles": [],
    }  # fmt: skip


def test_accuracies_are_those_known_by_then(going: Callable[..., Going]) -> None:
    run = going(clients=2)
    run.round(0.25)
    run.round(0.75)
    follower = Follower(run.folder)
    assert follower.moment(9.9)["shares"] == [-1, -1]
    assert follower.moment(10.0)["shares"] == [25, 25]
    assert follower.moment(25.0)["shares"] == [75, 75]
    assert follower.moment(15.0)["accuracy"] == 0.25


def test_a_refused_update_is_told_with_its_reason(going: Callable[..., Going]) -> None:
    run = going()
    follower = Follower(run.folder)
    run.round()
    assert follower.head()["refused"] == 0
    run.round(refused="c0003")
    assert follower.head()["refused"] == 1
    (told,) = follower.moment(None)["troubles"]
    assert told == {"at": 18.0, "client": "c0003", "what": "refused", "why": "numbers that are not finite"}
    assert follower.moment(17.9)["troubles"] == []


def test_a_run_that_was_taken_back_is_read_anew(going: Callable[..., Going]) -> None:
    run = going(clients=2)
    for accuracy in (0.2, 0.4, 0.6):
        run.round(accuracy, lost="c0000")
    follower = Follower(run.folder)
    assert follower.head()["round"] == 3
    run.recorder.rewind(1)
    run.done = 1
    run.round(0.9)
    head = follower.head()
    assert (head["round"], head["accuracy"], head["lost"]) == (2, 0.9, 1)
    assert follower.moment(None)["tiles"] == "aa"


def test_reading_on_and_reading_at_once_agree(going: Callable[..., Going]) -> None:
    run = going()
    follower = Follower(run.folder)
    for i in range(5):
        run.round(0.1 * i, refused=f"c000{i % 4}", lost=f"c000{(i + 1) % 4}")
        follower.head()
    fresh = Follower(run.folder)
    for at in (None, 0.0, 7.0, 13.3, 28.0, 44.4, 99.0):
        assert follower.moment(at) == fresh.moment(at)


def test_a_broken_database_is_refused_in_a_sentence(going: Callable[..., Going]) -> None:
    run = going()
    run.recorder.close()
    (run.folder / "run.db").write_bytes(b"not a database" * 100)
    for beside in run.folder.glob("run.db-*"):
        beside.unlink()
    with pytest.raises(BadInput, match="cannot be read"):
        Follower(run.folder).head()
