"""`potluck measure`: a short benchmark of this machine that writes its figures as a devices file."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated

import typer

from potluck.cli import flags, text
from potluck.errors import BadInput, Code, must_be


def measure(
    name: Annotated[str, typer.Argument(metavar="NAME", help="what the device is called in the file")],
    like: Annotated[
        str,
        typer.Option("--like", metavar="DEVICE", help="the device whose power, storage and kind it takes"),
    ] = "raspberry-pi-4",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.toml", help="where to write it (default: NAME.toml)")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="how long each of the networks trains")
    ] = 5.0,
    kernels: Annotated[bool, typer.Option("--kernels", help="with the compiled kernels of the extra `fast`")] = False,
    as_json: flags.Json = False,
) -> None:
    """Measure how fast this machine trains, and write its figures with their uncertainty for `fleet.file`.

    Run it on the device itself, with nothing else at work. Power is not measured: it is that of --like.
    """
    import dataclasses

    from potluck import devices
    from potluck.calibrate.devices_file import device_table
    from potluck.calibrate.measure import measure as take
    from potluck.deploy.client.card import free_memory
    from potluck.files import write_text

    if not 0 < seconds <= 600:
        raise must_be(Code.FLAG_VALUE, "--seconds", "above 0 and at most 600", seconds)
    base, place = devices.device(like), out or Path(f"{name}.toml")
    if place.exists():
        raise BadInput(Code.OUTPUT_PLACE, f"--out: must be a new file, {str(place)!r} exists.")
    speed, tasks = take(seconds, kernels=kernels, say=text.doing)
    memory = free_memory() or base.memory
    how = f"potluck measure on {platform.node() or 'this machine'}, {len(tasks)} networks"
    write_text(place, device_table(name, like, base.link, memory, speed, how))
    devices.read_devices(place)
    if as_json:
        text.as_json({"file": str(place), "speed": dataclasses.asdict(speed), "memory": memory})
        return
    for task in tasks:
        text.line(f"{task.network:14} {task.worked:9.4f} s measured  {speed.seconds(task):9.4f} s fitted")
    text.line(f"median error on a network left out of the fit: {100 * (speed.error or 0.0):.0f} %")
    text.line(f"device {name} in {place}: --set fleet.file={place} --set fleet.devices={name}")
