"""Compare the versions of a lock file with published advisories: which locked package has a known vulnerability?

    python scripts/audit.py ADVISORIES [--lock requirements.lock]

ADVISORIES is a folder or a zip of records in the OSV format: a clone of https://github.com/pypa/advisory-database, or
https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip. Nothing is downloaded. `--plain` prints `name==version`
for each package, without hashes and without the mark of a build such as `+cpu`, which is what pip-audit can look up.
Exit code 0: nothing found, 1: found, 2: bad input.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version


class Refused(Exception):
    """Bad input, in one sentence."""


def locked(path: Path) -> dict[str, Version]:
    """Read name -> version from a lock file of pip; the mark of a build (`+cpu`) is no part of a release."""
    try:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: the lock cannot be read: {error}.") from None
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, _, version = line.split()[0].partition("==")
            try:
                found[str(canonicalize_name(name))] = Version(Version(version).public)
            except InvalidVersion:
                raise Refused(f"{path}: must have lines NAME==VERSION, got {line.split()[0]!r}.") from None
    if not found:
        raise Refused(f"{path}: must name packages, got none.")
    return found


def records(source: Path) -> Iterator[dict[str, Any]]:
    """All records of a folder or a zip."""
    if source.is_dir():
        for path in sorted([*source.rglob("*.yaml"), *source.rglob("*.json")]):
            if not any(part.startswith(".") for part in path.relative_to(source).parts):
                yield from _read(str(path), path.read_bytes())
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith((".yaml", ".json")):
                    yield from _read(f"{source}:{name}", archive.read(name))
    else:
        raise Refused(f"{source}: must be a folder or a zip of OSV records.")


def _read(name: str, content: bytes) -> Iterator[dict[str, Any]]:
    try:
        if name.endswith(".json"):
            one = json.loads(content)
        else:
            import yaml

            loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # all values stay text: 1.10 is no number
            try:
                one = yaml.load(io.BytesIO(content), Loader=loader)
            except yaml.YAMLError as error:
                raise ValueError(" ".join(str(error).split())) from None
    except ImportError:
        raise Refused("records in YAML need the package pyyaml: python -m pip install pyyaml") from None
    except ValueError as error:
        raise Refused(f"{name}: cannot be read: {error}.") from None
    if isinstance(one, dict) and "affected" in one:
        yield one


def affects(affected: dict[str, Any], version: Version) -> bool:
    """Whether one `affected` entry holds for a version, as the OSV specification says: by list or by range."""
    if version in {_read_version(text) for text in affected.get("versions", [])}:
        return True
    return any(
        _within(one.get("events", []), version)
        for one in affected.get("ranges", [])
        if one.get("type") in ("ECOSYSTEM", "SEMVER")
    )


def _read_version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:  # of the time before PEP 440; no lock can have it
        return None


def _within(events: list[dict[str, str]], version: Version) -> bool:
    steps = []
    for event in events:
        for kind, text in event.items():
            at = Version("0.dev0") if text == "0" else _read_version(text)
            if at is not None:
                steps.append((at, kind))
    inside = False
    for at, kind in sorted(steps):
        if kind == "introduced" and version >= at:
            inside = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            inside = False
    return inside


def audit(packages: dict[str, Version], source: Path) -> tuple[list[str], str]:
    """What was found, a line each, and a sentence about what was looked at."""
    found, count, about, newest = [], 0, set(), ""
    for one in records(source):
        count += 1
        newest = max(newest, str(one.get("modified", "")))
        if one.get("withdrawn"):
            continue
        for affected in one["affected"]:
            package = affected.get("package", {})
            name = str(canonicalize_name(package.get("name", "")))
            if package.get("ecosystem") != "PyPI" or name not in packages:
                continue
            about.add(name)
            if affects(affected, packages[name]):
                said = " ".join(str(one.get("summary") or one.get("details", "")).split())[:160]
                found.append(f"{name} {packages[name]}: {one.get('id')} {' '.join(one.get('aliases', []))}: {said}")
    if not count:
        raise Refused(f"{source}: must hold OSV records, got none.")
    looked = (
        f"{len(packages)} packages compared with {count} records, the newest of {newest[:10]}; "
        f"{len(about)} of the packages have a record of some version."
    )
    return sorted(set(found)), looked


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("advisories", type=Path, nargs="?", help="a folder or a zip of OSV records")
    parser.add_argument("--lock", type=Path, default=Path(__file__).parent.parent / "requirements.lock")
    parser.add_argument("--plain", action="store_true", help="print name==version of each package, and stop")
    given = parser.parse_args(argv)
    try:
        packages = locked(given.lock)
        if given.plain:
            print("\n".join(f"{name}=={version}" for name, version in packages.items()))
            return 0
        if given.advisories is None:
            raise Refused("advisories: must be given, as a folder or a zip of OSV records.")
        found, looked = audit(packages, given.advisories)
    except Refused as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    print("\n".join([*found, looked, f"{len(found)} known vulnerabilities."]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
