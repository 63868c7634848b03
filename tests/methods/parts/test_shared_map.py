"""A mapping that shares what it can: a plain dict says what it must hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from potluck.methods.parts.shared_map import SharedMap

NAMES = st.text("ab0", max_size=3) | st.integers(0, 400).map(lambda i: f"c{i}")


@given(st.lists(st.tuples(NAMES, st.none() | st.integers())))
def test_it_holds_what_a_dict_would(changes: list[tuple[str, int | None]]) -> None:
    ours, theirs = SharedMap[int](), dict[str, int]()
    kept = []
    for name, value in changes:
        kept.append((ours, dict(theirs)))
        if value is None:
            ours = ours.drop(name)
            theirs.pop(name, None)
        else:
            ours = ours.put(name, value)
            theirs[name] = value
        assert len(ours) == len(theirs)
        assert (name in ours) == (name in theirs)
        assert ours.get(name) == theirs.get(name)
        assert ours.get(name + "?", -5) == theirs.get(name + "?", -5)
    assert dict(ours) == theirs
    assert dict(SharedMap.of(theirs)) == theirs
    for before, had in kept:  # nobody's map was changed behind his back
        assert dict(before) == had


def test_a_large_one_is_changed_by_a_few_small_copies() -> None:
    names = [f"client-{i}" for i in range(5000)]
    ours = SharedMap.of({name: i for i, name in enumerate(names)})
    assert len(ours) == 5000
    assert [ours[name] for name in names] == list(range(5000))
    other = ours.put("client-17", -1)
    same = [a is b for a, b in zip(ours._root, other._root, strict=True)]
    assert same.count(False) == 1
    assert "nobody" not in ours
    assert 3 not in ours
