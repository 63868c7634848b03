"""Which client has which device and link: a mix of shares or counts, dealt out by client index."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from potluck import keys
from potluck.devices.catalogue import PRESETS, catalogue, either, links
from potluck.devices.draws import uniform
from potluck.devices.profile import Device, Link
from potluck.errors import BadInput, Code, must_be, unknown

EXACT = 10_000  # up to so many clients the shares are met to the nearest client; above, each client draws its own


@dataclass(frozen=True)
class Mix:
    """Client i of n has the device `of(i, n)` and the link `link_of(i, n)`, at every call.

    >>> mix = Mix.parse({"raspberry-pi-4": 0.75, "jetson-nano": 0.25}, seed=1)
    >>> sorted(mix.all(4))
    ['jetson-nano', 'raspberry-pi-4', 'raspberry-pi-4', 'raspberry-pi-4']
    """

    devices: tuple[str, ...]  # one entry per kind of client; a device may come again with another link
    links: tuple[str, ...]
    shares: tuple[float, ...]  # of each entry, summing to 1
    seed: int = 0
    order: tuple[int, ...] = ()  # the entry of every position, where devices were listed one by one

    @classmethod
    def parse(
        cls,
        spec: str | Mapping[str, float] | Sequence[str],
        seed: int = 0,
        link: str | None = None,
        devices: Mapping[str, Device] | None = None,
        links: Mapping[str, Link] | None = None,
    ) -> Mix:
        """Make a mix from shares or counts by device (or "device@link"), one device, a list with one device per
        client, or the name of a preset.

        `link` puts every client on that link. `devices` and `links` are your own, in addition to the catalogue.
        """
        return _parse(spec, seed, link, devices or {}, links or {})

    def codes(self, n: int) -> NDArray[np.int64]:
        """Return the entry of every client, as an index into `devices` and `links`."""
        if self.order:
            if len(self.order) != n:
                raise BadInput(
                    Code.FLEET_MIX, f"fleet.devices: {len(self.order)} devices are listed, there are {n} clients."
                )
            return np.array(self.order, dtype=np.int64)
        return _dealt(self.shares, self.seed, n) if n <= EXACT else self._drawn(np.arange(n))

    def code(self, i: int, n: int) -> int:
        if not 0 <= i < n:
            raise IndexError(f"position {i} of {n} clients")
        return int(self.codes(n)[i] if self.order or n <= EXACT else self._drawn(np.array([i]))[0])

    def of(self, i: int, n: int) -> str:
        return self.devices[self.code(i, n)]

    def link_of(self, i: int, n: int) -> str:
        return self.links[self.code(i, n)]

    def all(self, n: int) -> NDArray[np.object_]:
        return np.array(self.devices, dtype=object)[self.codes(n)]

    def all_links(self, n: int) -> NDArray[np.object_]:
        return np.array(self.links, dtype=object)[self.codes(n)]

    def _drawn(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        # The draw does not depend on n: registering more clients does not change anyone's device.
        edges = np.cumsum(self.shares)[:-1]
        return np.searchsorted(edges, uniform(positions, f"mix {self.seed}"), side="right")


def quotas(shares: tuple[float, ...], n: int) -> list[int]:
    """Divide n clients by the shares: the whole part, then one each to the largest remainders."""
    wanted = [share * n for share in shares]
    given = [math.floor(want + 1e-9) for want in wanted]
    by_remainder = sorted(range(len(shares)), key=lambda j: (given[j] - wanted[j], j))
    for j in by_remainder[: n - sum(given)]:
        given[j] += 1
    return given


@lru_cache(maxsize=16)
def _dealt(shares: tuple[float, ...], seed: int, n: int) -> NDArray[np.int64]:
    hand = np.repeat(np.arange(len(shares)), quotas(shares, n))
    dealt: NDArray[np.int64] = keys.rng("mix", seed, n).permutation(hand)
    dealt.setflags(write=False)  # read-only, because it is cached
    return dealt


def _parse(
    spec: str | Mapping[str, float] | Sequence[str],
    seed: int,
    link: str | None,
    own_devices: Mapping[str, Device],
    own_links: Mapping[str, Link],
) -> Mix:
    devices, known_links = either(own_devices, catalogue()), either(own_links, links())
    if isinstance(spec, str):
        if spec in PRESETS:
            spec = PRESETS[spec].mix
        elif spec.partition("@")[0] in devices:
            spec = {spec: 1}
        else:
            raise unknown(Code.DEVICE_UNKNOWN, "fleet.devices", spec, {*PRESETS, *devices})
    if not spec:
        raise must_be(Code.FLEET_MIX, "fleet.devices", "one device or more", shown="none")
    order: tuple[int, ...] = ()
    if not isinstance(spec, Mapping):
        names = list(dict.fromkeys(spec))
        order = tuple(names.index(name) for name in spec)
        spec = Counter(spec)
    for name, share in spec.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < math.inf:
            raise must_be(Code.FLEET_MIX, f"fleet.devices.{name}", "a share or a count above 0", share)
    total = math.fsum(spec.values())
    counts = all(isinstance(share, int) for share in spec.values())
    if not counts and abs(total - 1) > 1e-6:
        raise BadInput(
            Code.FLEET_MIX,
            f"fleet.devices: the shares must add up to 1, got {total:g}. Use whole numbers only for counts.",
        )
    entries = [_entry(name, link, devices, known_links) for name in spec]
    return Mix(
        devices=tuple(device for device, _ in entries),
        links=tuple(own for _, own in entries),
        shares=tuple(share / total for share in spec.values()),
        seed=seed,
        order=order,
    )


def _entry(
    name: str, link: str | None, devices: Mapping[str, Device], known_links: Mapping[str, Link]
) -> tuple[str, str]:
    device, _, own_link = name.partition("@")
    if device not in devices:
        raise unknown(Code.DEVICE_UNKNOWN, "fleet.devices: device", device, devices)
    chosen = link or own_link or devices[device].link
    if chosen not in known_links:
        raise unknown(Code.DEVICE_UNKNOWN, "fleet.devices: link", chosen, known_links)
    return device, chosen
