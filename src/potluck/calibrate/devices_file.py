"""Write measured figures as a devices file (`docs/devices.md`), each with its source and its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from potluck.calibrate.fit import NO_LIMIT, Speed, Way
from potluck.runs.experiment import as_toml


def device_table(name: str, like: str, link: str, memory: int, speed: Speed, how: str) -> str:
    """One [devices.name] table; power and storage are those of another device, because neither is measured."""
    error = "" if speed.error is None else f"; median error on a network left out of the fit: {100 * speed.error:.2g} %"
    source = f"{how}{error}"
    figures = {
        "macs_per_second": _number(speed.macs_per_second, source),
        "moves_per_second": _number(speed.moves_per_second, source),
        "fresh_per_second": _number(speed.fresh_per_second, source),
        "op_seconds": [float(f"{speed.op_seconds:.4g}"), source],
        "recorded_op_seconds": [float(f"{speed.recorded_op_seconds:.4g}"), source],
        "speed_jitter": [float(f"{speed.jitter:.3g}"), source],
        "memory": [memory, how],
    }
    return _table(f"devices.{name}", {"like": like, "title": how, "link": link, **figures})


def link_table(name: str, like: str, up: float, down: float, way: Way, how: str) -> str:
    figures = {
        "up": [round(way.rate(up)), f"{how}: {up:g} bit/s of the proxy, and what the process takes per byte"],
        "down": [round(way.rate(down)), f"{how}: {down:g} bit/s of the proxy, and what the process takes per byte"],
        "latency": [float(f"{way.latency:.4g}"), f"{how}: half of what a task took beyond its work and its bytes"],
        "jitter": [float(f"{way.jitter:.3g}"), f"{how}: spread of the same"],
    }
    return _table(f"links.{name}", {"like": like, "title": how, "along": True, **figures})


def _number(rate: float, source: str) -> list[Any]:
    if rate >= NO_LIMIT:
        return [NO_LIMIT, f"{source}; no part of the time went with it"]
    return [float(f"{rate:.4g}"), source]


def _table(head: str, values: Mapping[str, Any]) -> str:
    return "\n".join([f"[{head}]", *(f"{key} = {as_toml(value)}" for key, value in values.items())]) + "\n"
