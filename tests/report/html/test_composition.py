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
        "bytes_up": {"width 0.5": 2000, "gradient": 100, "handover: device": 300},
        "clusters_by_width": {"0/0.5": 3, "1/1": 2},
        "broadcasts": 4,
        "samples": {"handed_so_far": 7.0},
        "server": {"seconds": {"compression": 1.0, "dilation": 2.0}},
    }
    said = lines(found)
    assert said[0] == ("pace", "uploads waited 12 s for the end of their step; mean staleness 1.50 versions")
    assert ("shape", "2 kB up: width 0.5") in said
    assert ("share", "100 B up: gradient") in said
    assert ("local", "300 B up: handover: device") in said
    assert ("grouping", "2 of width 1 in group 1, 3 of width 0.5 in group 0") in said
    assert ("grouping", "4 broadcasts") in said
    assert ("local", "7 samples handed over to access points") in said
    assert ("server", "3 s of work on the server's rows and kernels") in said


def test_what_was_not_recorded_is_not_said() -> None:
    assert lines({"bytes_up": {}}) == [("pace", "uploads waited 0 s for the end of their step")]
