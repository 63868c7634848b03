"""The command line, one file per command. Commands import what they need when they run, so that --help is quick."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Annotated

import typer

from potluck import __version__
from potluck.cli import (
    audit,
    calibrate,
    check_method,
    choose,
    compare,
    compose,
    data,
    datasets,
    demo,
    deploy,
    deploy_keys,
    deploy_unit,
    devices,
    doctor,
    explain,
    export,
    figures,
    firmware,
    fit,
    lab,
    log,
    measure,
    methods,
    models,
    new,
    plan,
    predict,
    pretrain,
    privacy,
    ranks,
    report,
    resume,
    run,
    runs,
    study,
    traces,
    tune,
    watch,
)
from potluck.cli.errors import Commands

__all__ = ["app", "main"]

app = typer.Typer(
    name="potluck",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"potluck {__version__}")
        raise typer.Exit


@app.callback(epilog="Start here: potluck demo")
def _potluck(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Personalised federated learning on unlike devices: run methods, compare them, see what they cost."""


COMMANDS = (
    (demo.demo, "potluck demo --quick"),
    (run.run, "potluck run --method fedavg --data made --rounds 10 --set fleet.devices=boards"),
    (compare.compare, "potluck compare local fedavg ftl --data made --seeds 3 --rounds 10"),
    (choose.choose, "potluck choose mine.npz --fleet everyday --minutes 10"),
    (plan.plan, "potluck plan --fleet mixed --clients 40 --wish 'battery 20 % a day'"),
    (tune.tune, "potluck tune fedavg ftl --data made --trials 9 --rounds 10 --set fleet.devices=boards"),
    (compose.compose, "potluck compose arrivals/clusters/slices/all/all/latest"),
    (new.new, "potluck new experiment mine.toml"),
    (resume.resume, "potluck resume runs/fedavg-made-s0"),
    (watch.watch, "potluck watch runs/fedavg-made-s0 --open"),
    (log.log, "potluck log runs/echopfl-uci_har-s0"),
    (report.report, "potluck report runs/fedavg-made-s0 runs/local-made-s0 --out both.html"),
    (ranks.ranks, "potluck ranks runs/compare-uci_har runs/compare-motionsense"),
    (figures.figures, "potluck figures runs/compare-made --out figures"),
    (export.export, "potluck export runs/compare-made --to csv --out tables"),
    (predict.predict, "potluck predict runs/ftl-mine-s0 --client s07 mine.npz"),
    (pretrain.pretrain, "potluck pretrain encoder.safetensors --data made --model mlp"),
    (methods.methods, "potluck methods scaffold"),
    (check_method.check_method, "potluck check-method mine.py"),
    (lab.lab, "potluck lab --count 200"),
    (models.models, "potluck models"),
    (datasets.datasets, "potluck datasets"),
    (
        data.data,
        "potluck data made --set partition.kind=dirichlet --set partition.alpha=0.1 --picture card.png",
    ),
    (devices.devices, "potluck devices raspberry-pi-4"),
    (measure.measure, "potluck measure kitchen-pi --like raspberry-pi-4"),
    (calibrate.calibrate, "potluck calibrate --out calibration"),
    (traces.traces, "potluck traces 4g_trace.txt --name bus --like lte --out links.toml"),
    (privacy.privacy, "potluck privacy --epsilon 8 --clients 1000 --rounds 100 --parameters 25000"),
    (audit.audit, "potluck audit mine.toml --canaries 1"),
    (fit.fit, "potluck fit cfc --device arduino-nano-33-ble-sense --shape 125x6 --classes 6"),
    (study.study, "potluck study volatility --data uci_har --seeds 5 --picture angles.svg"),
    (doctor.doctor, "potluck doctor"),
    (explain.explain, "potluck explain PL-103"),
)
for _command, _example in COMMANDS:
    app.command(epilog=f"Example: {_example}")(_command)
deploy.app.command(
    epilog="Example: potluck deploy unit client --folder kitchen | sudo tee /etc/systemd/system/potluck.service"
)(deploy_unit.unit)
deploy.app.command(epilog="Example: potluck deploy keys")(deploy_keys.keys)
deploy.app.command(epilog="Example: potluck deploy revoke s01")(deploy_keys.revoke)
deploy.app.command(epilog="Example: potluck deploy rotate s01 --days 90")(deploy_keys.rotate)
app.add_typer(runs.app, name="runs")
app.add_typer(deploy.app, name="deploy")
app.add_typer(firmware.app, name="firmware")


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without ± shows a ? instead of failing
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(errors="replace")
    app(prog_name="potluck")
