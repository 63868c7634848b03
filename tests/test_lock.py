"""The lock file: every dependency of the core install, within its bounds, with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def locked() -> dict[str, tuple[str, list[str]]]:
    """name -> version and hashes."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = {}
    for line in lines:
        name, _, version = line[0].partition("==")
        found[canonicalize_name(name)] = (version, line[1:])
    return found


def test_every_package_has_a_version_and_a_hash() -> None:
    packages = locked()
    assert len(packages) > 20
    for name, (version, hashes) in packages.items():
        assert version, name
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), name


def test_the_lock_fits_what_the_project_needs() -> None:
    packages = locked()
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    extras = {"numba"}  # pinned for those who install the extra; the lock is that of the core
    for text in [*needed, *pinned]:
        one = Requirement(text)
        name = canonicalize_name(one.name)
        if name in extras:
            continue
        assert name in packages, f"{name} is not in requirements.lock: run scripts/lock"
        assert one.specifier.contains(packages[name][0]), f"{name}: the lock has {packages[name][0]}, needed {text}"
