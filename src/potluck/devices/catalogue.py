"""The devices, links and fleets that come with Potluck, and your own."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple, TypeVar

from potluck.devices.profile import Device, Link
from potluck.devices.reading import Contents, Fleet, parse, read
from potluck.errors import BadInput, Code, no_file, unknown
from potluck.plugins import Plugin, plugin, plugins

T = TypeVar("T")

_FILE = "catalogue.toml"


@lru_cache(maxsize=1)
def _shipped() -> Contents:
    text = resources.files("potluck.devices").joinpath(_FILE).read_text(encoding="utf-8")
    return read(parse(text, _FILE), _FILE, Contents(), shipped=True)


def catalogue() -> Mapping[str, Device]:
    """All devices by name: the shipped ones, and those of installed packages, which are read when looked up."""
    return _Devices()


def links() -> Mapping[str, Link]:
    """All links by name: the shipped ones, and those that come with the devices of installed packages."""
    return _Links()


def additions() -> dict[str, Plugin]:
    """The devices that installed packages add, by name."""
    return plugins("devices", _shipped().devices)


def either(own: Mapping[str, T], others: Mapping[str, T]) -> Mapping[str, T]:
    """Look names up in `own`, then in `others`; nothing is read before it is looked up."""
    return ChainMap(own, others)  # type: ignore[arg-type]


class _Devices(Mapping[str, Device]):
    def __getitem__(self, name: str) -> Device:
        added = plugin("devices", name, _shipped().devices)
        return _shipped().devices[name] if added is None else _added(added).devices[name]

    def __contains__(self, name: object) -> bool:
        return name in _shipped().devices or name in additions()

    def __iter__(self) -> Iterator[str]:
        yield from _shipped().devices
        yield from (name for name, one in additions().items() if not one.clash)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Links(Mapping[str, Link]):
    def __getitem__(self, name: str) -> Link:
        shipped = _shipped().links
        return shipped[name] if name in shipped else self._of_packages()[name]

    def __iter__(self) -> Iterator[str]:
        yield from _shipped().links
        yield from (name for name in self._of_packages() if name not in _shipped().links)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _of_packages(self) -> dict[str, Link]:
        found: dict[str, Link] = {}
        for one in additions().values():
            with suppress(BadInput):  # told where the device itself is used
                found |= _added(one).links
        return found


def _added(one: Plugin) -> Own:
    """Read the file that a package's function names; it must define the device of that name."""
    make = one.load()
    try:
        path = Path(make())
    except Exception as error:
        raise BadInput(
            Code.DEVICE_FILE,
            f"device: {one.name!r} of the package {one.package} failed ({type(error).__name__}: {error}).",
        ) from error
    own = read_devices(path)
    if one.name not in own.devices:
        raise BadInput(Code.DEVICE_FILE, f"device: {path} of the package {one.package} has no [devices.{one.name}].")
    return own


ALSO_CALLED = {"arduino-nano-ble-sense": "arduino-nano-33-ble-sense"}  # as FedCFC writes it


def device(name: str, own: Mapping[str, Device] | None = None) -> Device:
    """Find a device of the catalogue, or one of `own`."""
    name = ALSO_CALLED.get(name, name)
    known = either(own or {}, catalogue())
    if name not in known:
        raise unknown(Code.DEVICE_UNKNOWN, "device", name, known)
    return known[name]


def link(name: str) -> Link:
    if name not in links():
        raise unknown(Code.DEVICE_UNKNOWN, "link", name, links())
    return links()[name]


PRESETS: Mapping[str, Fleet] = _shipped().fleets


class Own(NamedTuple):
    devices: dict[str, Device]
    links: dict[str, Link]


def read_devices(path: Path) -> Own:
    """Read your own devices and links; they may refer to those of the catalogue."""
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
