"""What the tests of the firmware share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.boards import Process


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """The client as a process under the sanitizers, its flash in a file."""
    one = Process(tmp_path / "flash", sanitize=True)
    yield one
    one.kill()
