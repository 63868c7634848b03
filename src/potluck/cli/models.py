"""`potluck models`: the models there are, with their settings."""

from __future__ import annotations

import dataclasses

from potluck.cli import flags, text


def models(as_json: flags.Json = False) -> None:
    """List the models with their settings.

    Your own model is an nn.Module, given by its import path: package.module:Class.
    """
    from potluck import models as zoo

    if as_json:
        text.as_json({name: dataclasses.asdict(entry) for name, entry in zoo.catalogue().items()})
        return
    text.show(zoo.table())
