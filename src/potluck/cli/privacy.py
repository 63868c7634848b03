"""`potluck privacy`: how many clients a round an epsilon needs, before a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli import flags, text
from potluck.errors import BadInput, Code

if TYPE_CHECKING:
    from potluck.privacy.need import Need

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the clients, in the table


def privacy(
    epsilon: Annotated[float, typer.Option("--epsilon", metavar="E", help="what each client may be charged")] = 8.0,
    clients: Annotated[int, typer.Option("--clients", metavar="N", help="clients of the fleet")] = 1000,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", help="rounds of the run")] = 100,
    parameters: Annotated[
        int, typer.Option("--parameters", metavar="N", help="numbers that a client releases: those of the model")
    ] = 10_000,
    delta: Annotated[float, typer.Option("--delta", metavar="D", help="below one by the number of clients")] = 1e-5,
    ratio: Annotated[
        float, typer.Option("--ratio", metavar="R", help="largest norm of the noise, by that of the clipped signal")
    ] = 1.0,
    as_json: flags.Json = False,
) -> None:
    """Say how many clients a round an epsilon needs, at client-level privacy with noise on the sum.

    The noise is accounted by Rényi differential privacy, which is quick. A run accounts more tightly.
    """
    from potluck.privacy import need

    for name, value, least, most in (
        ("epsilon", epsilon, 1e-3, 1e6),
        ("clients", clients, 1, need.MOST),
        ("rounds", rounds, 1, 10**6),
        ("parameters", parameters, 1, 10**12),
        ("delta", delta, 1e-30, 0.5),
        ("ratio", ratio, 1e-6, 1e6),
    ):
        if not least <= value <= most:
            raise BadInput(Code.FLAG_VALUE, f"--{name}: must be from {least:g} to {most:g}, got {value:g}.")
    found = need.least(clients, epsilon, delta, rounds, parameters, ratio)
    in_all = None if found else need.clients_for(epsilon, delta, rounds, parameters, ratio)
    cohorts = sorted({max(1, round(share * clients)) for share in SHARES})
    rows = [need.at(cohort, clients, epsilon, delta, rounds, parameters) for cohort in cohorts]
    if as_json:
        told = {"needs": None if found is None else asdict(found), "clients": in_all}
        text.as_json({**told, "choices": [asdict(row) for row in rows]})
        return
    text.line(_sentence(found, in_all, epsilon, delta, rounds, parameters, clients))
    table = text.sheet("clients a round", "privacy.rate", "privacy.noise", "noise by signal")
    for row in rows:
        table.add_row(f"{row.cohort:,}", f"{row.rate:.3g}", f"{row.noise:.3g}", f"{row.ratio:.3g}")
    text.show(table)


def _sentence(
    found: Need | None, in_all: int | None, epsilon: float, delta: float, rounds: int, parameters: int, clients: int
) -> str:
    settings = f"Epsilon {epsilon:g} at delta {delta:g} over {rounds:,} rounds of {parameters:,} parameters"
    if found is not None:
        return (
            f"{settings} needs about {found.cohort:,} clients a round (privacy.rate = {found.rate:.3g}, "
            f"privacy.noise = {found.noise:.3g})."
        )
    return (
        f"{settings} needs about {in_all:,} clients, all asked in every round; there are {clients:,}. Ask for fewer "
        "rounds, a smaller model or a larger epsilon, or share fewer layers."
    )
