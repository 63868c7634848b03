from __future__ import annotations

import json
from pathlib import Path

import pytest

from potluck.cli import explain
from potluck.errors import FAMILIES, Code

from .conftest import Potluck


@pytest.mark.parametrize("given", ["PL-103", "pl-103", "103"])
def test_a_code_is_explained_by_its_page(potluck: Potluck, given: str) -> None:
    result = potluck("explain", given)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"# PL-103: {Code.SETTING_VALUE.title}\n")
    assert "## What to do" in result.stdout


def test_a_page_is_made_for_a_terminal(potluck: Potluck) -> None:
    """Without remarks for the tests, and with the names of files, which a site shows as titles."""
    assert "<!--" not in potluck("explain", "PL-901").stdout
    assert "`my-devices.toml`:\n\n```toml\n" in potluck("explain", "PL-403").stdout


def test_all_codes_are_listed_by_family(potluck: Potluck) -> None:
    lines = potluck("explain").stdout.splitlines()
    assert [line for line in lines if line in FAMILIES.values()] == list(FAMILIES.values())
    assert [line.split()[0] for line in lines if line.startswith("PL-")] == [str(code) for code in Code]


def test_as_json(potluck: Potluck) -> None:
    one = json.loads(potluck("explain", "PL-804", "--json").stdout)
    assert (one["code"], one["title"]) == ("PL-804", Code.PORT.title)
    assert one["page"].startswith("# PL-804")
    assert len(json.loads(potluck("explain", "--json").stdout)) == len(Code)


def test_a_code_that_does_not_exist(potluck: Potluck) -> None:
    result = potluck("explain", "PL-1003")
    assert result.exit_code == 2
    assert "'PL-1003' is not known, did you mean 'PL-103'?" in result.stderr


def test_an_installation_without_pages_still_says_the_title(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(explain, "__file__", str(tmp_path / "src" / "potluck" / "cli" / "explain.py"))
    assert explain.page(Code.PORT).startswith(f"# PL-804: {Code.PORT.title}\n")
    pages = tmp_path / "src" / "potluck" / "_errors"  # as in a wheel
    pages.mkdir(parents=True)
    (pages / "PL-804.md").write_text("# its page\n")
    assert explain.page(Code.PORT) == "# its page\n"
