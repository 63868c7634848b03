"""`potluck calibrate`: how far virtual time is from a clock, on real processes of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from potluck.cli import flags, text
from potluck.errors import BadInput, Code, must_be
from potluck.units import quantity


def calibrate(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="a new folder for what is measured, or one whose measuring goes on"),
    ] = Path("calibration"),
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="METHOD", help="judge on this method; repeatable (default: fedavg, echopfl)"),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            metavar="NETWORK",
            help="judge on this network, as in 'gru hidden=24 batch=32'; repeatable (default: cnn1d-18-32, rnn-51)",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", help="how often everything is measured, 1 to 20")] = 1,
    clients: Annotated[int, typer.Option("--clients", metavar="N", help="client processes, 1 to 6")] = 6,
    rows: Annotated[
        int | None, typer.Option("--rows", metavar="N", help="rows of each client; fewer make shorter tasks")
    ] = None,
    scale: Annotated[
        float, typer.Option("--scale", metavar="X", help="multiplies every client's share of a core")
    ] = 1.0,
    rounds: Annotated[int, typer.Option("--rounds", metavar="N", help="rounds of each judged run")] = 8,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", metavar="M", help="begin no run after so long; the same command goes on later"),
    ] = None,
    fit_only: Annotated[
        bool, typer.Option("--refit", help="fit and judge again what DIR already has; nothing is measured")
    ] = False,
    as_json: flags.Json = False,
) -> None:
    """Run tasks on real processes with a limited processor share, behind slow links, over Flower with TLS.

    Device figures are fitted to nine networks. The local engine then predicts runs of two other networks, and the
    certificate has the errors: time of a task, makespan, bytes, peak memory, order of arrival. It takes about a quarter
    of an hour. The processes are on this machine, so no device is validated by it.
    """
    import importlib.util
    import math
    from dataclasses import replace

    from potluck.calibrate import plan
    from potluck.calibrate.carry import Calibration
    from potluck.calibrate.judge import over_runs
    from potluck.calibrate.throttle import check_share
    from potluck.methods import load
    from potluck.models import build

    if importlib.util.find_spec("flwr") is None and not fit_only:
        from potluck.errors import Missing, install_extra

        raise Missing(Code.EXTRA, f"flwr: not installed; `{install_extra('flower')}` adds it.")
    if not 1 <= clients <= len(plan.CLIENTS):
        raise must_be(Code.FLAG_VALUE, "--clients", f"from 1 to {len(plan.CLIENTS)}", clients)
    if rows is not None and not 50 <= rows <= 100_000:
        raise must_be(Code.FLAG_VALUE, "--rows", "from 50 to 100000", rows)
    if not 1 <= rounds <= 100:
        raise must_be(Code.FLAG_VALUE, "--rounds", "from 1 to 100", rounds)
    chosen = tuple(methods or ("fedavg", "echopfl"))
    for name in chosen:
        load(name)
    if minutes is not None and not minutes > 0:
        raise must_be(Code.FLAG_VALUE, "--minutes", "above 0", minutes)
    measured = (out / "measured.json").exists()
    if fit_only and not measured:
        raise BadInput(Code.OUTPUT_PLACE, f"--refit: {str(out)!r} has no measured.json.")
    if not fit_only and not measured and out.exists() and any(out.iterdir()):
        raise BadInput(Code.OUTPUT_PLACE, f"--out: must be a new or empty folder, {str(out)!r} has files.")
    if not 1 <= repeat <= 20:
        raise must_be(Code.FLAG_VALUE, "--repeat", "from 1 to 20", repeat)
    networks = tuple(map(plan.read_network, judge)) if judge else plan.JUDGE
    plan.not_fitted(networks)
    for network in networks:  # a mistake is told before anything is measured
        settings = {name: value for name, value in network.model.items() if name != "name"}
        build(str(network.model["name"]), (plan.STEPS, plan.CHANNELS), plan.CLASSES, settings)
    limited = [
        replace(one, rows=rows or one.rows, share=check_share(scale * one.share)) for one in plan.CLIENTS[:clients]
    ]
    say = text.line if not as_json else text.doing
    work = Calibration(out, clients=limited, judge=networks, methods=chosen, rounds=rounds, repeat=repeat, say=say)
    if not fit_only and not work.left():
        raise BadInput(Code.OUTPUT_PLACE, f"--out: {str(out)!r} has all runs; --refit fits and judges them again.")
    if not fit_only and not work.measure(math.inf if minutes is None else 60 * minutes):
        text.line(f"{len(work.left())} of {len(work.jobs)} runs are left; the same command goes on with them.")
        return
    found = work.certify()
    if as_json:
        text.as_json({"kept": found.kept, "runs": [dict(run) for run in found.runs]})
        return
    table = text.sheet("method", "network", ">tasks", ">task time", ">makespan", ">bytes", ">peak memory", ">order")
    for run in found.runs:
        errors = (f"{100 * run[name]:.2g} %" for name in ("task_time", "makespan", "nbytes", "memory"))
        order = "–" if run["tau"] is None else f"{run['tau']:.2f}"
        table.add_row(run["method"], run["network"], str(run["tasks"]), *errors, order)
    text.show(table)
    for line in over_runs(found.runs):
        text.line(line)
    text.show(Text(found.sentence))
    longest = max(float(run["real_makespan"]) for run in found.runs)
    text.line(f"longest run {quantity(longest, 's')}; certificate {out / 'certificate.json'}, devices {work.file}")
