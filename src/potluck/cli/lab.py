"""`potluck lab`: random federations with faults, checked against what must hold whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from potluck.cli import flags, text


def lab(
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, help="federations to carry out")] = 100,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="S", min=0, help="stop after so many seconds")
    ] = None,
    first: Annotated[
        int, typer.Option("--first", metavar="N", min=0, help="number of the first one; each number is one federation")
    ] = 0,
    method: Annotated[
        list[str] | None, typer.Option("--method", metavar="METHOD", help="only this method; may be repeated")
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="local|wire", help="only this engine (default: both)")
    ] = None,
    repro: Annotated[
        str | None, typer.Option("--repro", metavar="JSON", help="carry out this scenario, as the lab printed it")
    ] = None,
    messages: Annotated[
        int | None,
        typer.Option("--messages", metavar="N", min=1, help="instead: send so many mutated messages to servers"),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Let random federations fail in random ways, and check what must hold whatever happens.

    Faults: killed processes, power cuts with torn and reordered writes, full disks, jumping clocks, hostile clients,
    answers that are lost, late, repeated or stale. A federation in which something does not hold is made short and
    printed as one line. With --messages, hundreds of hostile clients send mutated answers of every kind; the run must
    end as if the refused ones had not been sent. Exit status 0: everything held. 1: something did not. 2: a flag is
    wrong.
    """
    from potluck.errors import Code, unknown
    from potluck.lab import Found, Lab, Scenario, shrink
    from potluck.lab.scenario import ENGINES, read

    if engine is not None and engine not in ENGINES:
        raise unknown(Code.FLAG_VALUE, "--engine", engine, ENGINES)
    if messages is not None:
        _flood(messages, first, method or (), float("inf") if seconds is None else seconds, as_json)
        return
    bench = Lab(method or (), (engine,) if engine else ENGINES)
    found: list[Found] = []
    if repro is not None:
        scenario = read(repro)
        broken = bench.broken(scenario)
        found += [] if broken is None else [Found(scenario, broken)]
        if broken is not None and not as_json:
            text.line(broken)
        bench.done[scenario.engine] += 1
    else:
        for one in bench.search(first, count, float("inf") if seconds is None else seconds):
            if one is not None:
                rule = one.rule  # a shorter scenario must break the same one

                def fails(scenario: Scenario, rule: str = rule) -> bool:
                    return Found(scenario, bench.broken(scenario) or "").rule == rule

                short = shrink(one.scenario, fails)
                found.append(Found(short, bench.broken(short) or one.broken))
                if not as_json:  # at once: the next federations may take hours
                    text.line(f"{found[-1].broken}\n  {found[-1].repro}")
    _told(bench.done, bench.refused, found, as_json)
    if found:
        raise typer.Exit(1)


def _flood(count: int, first: int, methods: Sequence[str], seconds: float, as_json: bool) -> None:
    from potluck.lab.messages import Tally, flood
    from potluck.lab.scenario import names

    tally, found = Tally(), []
    for broken, again in flood(count, first, names(methods), tally, seconds):
        found.append({"broken": broken, "repro": again})
        if not as_json:
            text.line(f"{broken}\n  {again}")
    if as_json:
        sent = {"messages": dict(tally.sent), "accepted": tally.accepted, "runs": tally.runs}
        text.as_json({**sent, "violations": found})
    else:
        kinds = ", ".join(f"{many} {kind}" for kind, many in sorted(tally.sent.items()))
        text.line(f"{tally.total} mutated messages ({kinds}) in {tally.runs} runs, {len(found)} violations.")
        text.line(f"{tally.accepted} answers to tasks were accepted: an honest client could have sent them.")
    if found:
        raise typer.Exit(1)


def _told(done: Counter[str], refused: Counter[str], found: list[Any], as_json: bool) -> None:
    from potluck.lab.scenario import ENGINES, KINDS

    engines = {name: done[name] for name in ENGINES if done[name]}
    faults = {name: done[name] for name in KINDS if done[name]}
    if as_json:
        broken = [{"broken": one.broken, "repro": one.repro} for one in found]
        text.as_json({"federations": engines, "faults": faults, "refused": dict(refused), "violations": broken})
        return
    counts = ", ".join(f"{count} {name}" for name, count in engines.items())
    text.line(f"{sum(engines.values())} federations ({counts or 'none'}), {len(found)} violations.")
    if faults:
        text.line("Faults: " + ", ".join(f"{count} {name}" for name, count in faults.items()) + ".")
    for reason, times in refused.items():
        text.line(f"Left out {times} times: {reason}")
