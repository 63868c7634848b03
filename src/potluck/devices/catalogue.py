"""The devices, links and fleets that come with Potluck, and people's own beside them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from potluck.devices.profile import Device, Link
from potluck.devices.reading import Contents, Fleet, parse, read
from potluck.errors import BadInput, Code, no_file, unknown

_FILE = "catalogue.toml"


@lru_cache(maxsize=1)
def _shipped() -> Contents:
    text = resources.files("potluck.devices").joinpath(_FILE).read_text(encoding="utf-8")
    return read(parse(text, _FILE), _FILE, Contents(), shipped=True)


def catalogue() -> dict[str, Device]:
    return dict(_shipped().devices)


def links() -> dict[str, Link]:
    return dict(_shipped().links)


ALSO_CALLED = {"arduino-nano-ble-sense": "arduino-nano-33-ble-sense"}  # as FedCFC writes it


def device(name: str, own: Mapping[str, Device] | None = None) -> Device:
    """A device of the catalogue, or of one's own beside it."""
    name = ALSO_CALLED.get(name, name)
    known = {**_shipped().devices, **(own or {})}
    if name not in known:
        raise unknown(Code.DEVICE_UNKNOWN, "device", name, known)
    return known[name]


def link(name: str) -> Link:
    if name not in _shipped().links:
        raise unknown(Code.DEVICE_UNKNOWN, "link", name, _shipped().links)
    return _shipped().links[name]


PRESETS: Mapping[str, Fleet] = _shipped().fleets


class Own(NamedTuple):
    devices: dict[str, Device]
    links: dict[str, Link]


def read_devices(path: Path) -> Own:
    """One's own devices and links, and only those; they may refer to the catalogue's."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise no_file(Code.DEVICE_FILE, "fleet.file", path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(Code.DEVICE_FILE, f"devices file: {path} cannot be read as text: {error}.") from None
    own = read(parse(text, path.name), path.name, _shipped(), shipped=False)
    if not own.devices and not own.links:
        raise BadInput(Code.DEVICE_FILE, f"devices file: {path} has neither a [devices.name] nor a [links.name] table.")
    return Own(dict(own.devices), dict(own.links))
