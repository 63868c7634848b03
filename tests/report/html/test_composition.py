"""The section on what each part of a composed method did."""

from __future__ import annotations

from potluck.report.html import composition


def lines(found: dict[str, object]) -> list[tuple[str, str]]:
    """With ordinary spaces between numbers and units."""
    return [(part, said.replace("\xa0", " ")) for part, said in composition.lines(found)]


def test_every_part_that_did_something_has_a_line() -> None:
    found = {
        "waited_seconds": 12.0,
        "staleness_mean": 1.5,
        "bytes_down": {"width 0.5": 4000},
        "bytes_up": {"width 0.5": 2000, "gradient": 100, "handover: device": 300},
        "clusters_by_width": {"0/0.5": 3, "1/1": 2, "0/1": 1},
        "broadcasts": 4,
        "samples": {"handed_so_far": 7.0},
        "server": {"seconds": {"compression": 1.0, "dilation": 2.0}},
    }
    said = lines(found)
    assert said[0] == ("pace", "uploads waited 12 s for the end of their step; mean staleness 1.50 versions")
    assert ("shape", "4 kB down in tasks and 2 kB up: width 0.5") in said
    assert ("share", "100 B up: gradient") in said
    assert ("local", "300 B up: handover: device") in said
    assert ("grouping", "group 0 has 1 of width 1, 3 of width 0.5") in said
    assert ("grouping", "group 1 has 2 of width 1") in said
    assert ("grouping", "4 broadcasts") in said
    assert ("local", "7 samples handed over to access points") in said
    assert ("server", "3 s of work on the server's rows and kernels") in said


def test_what_was_not_recorded_is_not_said() -> None:
    assert lines({"bytes_up": {}}) == [("pace", "uploads waited 0 s for the end of their step")]


def test_the_parts_that_were_chosen_are_named() -> None:
    said = lines({"parts": "arrivals/clusters/slices/all/all/latest", "bytes_up": {"width 1": 10}, "broadcasts": 1})
    assert [part for part, _ in said] == ["pace: arrivals", "grouping: clusters", "shape: slices"]
