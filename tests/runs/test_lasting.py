"""Objects from before a run are out of the search for garbage while it lasts, and back in it afterwards."""

from __future__ import annotations

import gc

import pytest

from potluck.runs.lasting import imports, lasting


def test_what_was_there_is_left_out() -> None:
    with lasting():
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0


def test_it_comes_back_after_an_error() -> None:
    with pytest.raises(RuntimeError), lasting():
        raise RuntimeError
    assert gc.get_freeze_count() == 0


def test_imports_are_not_searched_and_left_out_as_long_as_the_run_lasts() -> None:
    with lasting():
        before = gc.get_freeze_count()
        with imports():
            assert not gc.isenabled()
            more = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() >= before + len(more)
    assert gc.get_freeze_count() == 0
