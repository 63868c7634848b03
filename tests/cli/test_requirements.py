"""What Potluck needs, read from lines of package metadata."""

from __future__ import annotations

from potluck.cli.requirements import requirements


def test_lines_are_sorted_by_extra() -> None:
    lines = [
        "torch>=2.6",
        "scikit-learn>=1.4",
        "click<8.4; extra == 'flower'",
        'flwr==1.41.0 ; extra == "flower"',
        "rich",
    ]
    assert requirements(lines) == {
        "": {"torch": ">=2.6", "scikit-learn": ">=1.4", "rich": ""},
        "flower": {"click": "<8.4", "flwr": "==1.41.0"},
    }


def test_the_installed_package_names_its_own() -> None:
    assert {"torch", "numpy", "rich"} <= requirements()[""].keys()
