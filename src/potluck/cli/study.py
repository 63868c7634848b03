"""`potluck study`: experiments that are not a run: of the FedCFC paper, and what modules of a network are worth."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli import flags, study_modules, text
from potluck.cli.columns import loaded, reads_own_data, sections
from potluck.errors import BadInput, Code, unknown
from potluck.units import plural

if TYPE_CHECKING:
    from potluck.data.dataset import Dataset

STUDIES = {
    "volatility": "principal angles of f, g and h between networks trained on different classes (FedCFC Figure 4)",
    "sampling": "networks trained at 50 Hz, tested at 30 and 100 Hz (FedCFC Figure 3)",
    "irregular": "networks on irregular series (FedCFC Table 2)",
    "incremental": "new classes one at a time: accuracy on the new and the old ones (FedCFC Figure 11)",
    "modules": "what each module of a network is worth: frozen, trained alone, shared, bound",
}
FILES = {"incremental": "experiments/fedcfc/incremental.toml", "modules": "experiments/fedcfc/modules.toml"}

DATA = {"volatility": "uci_har", "sampling": "uci_har", "irregular": "air_quality"}  # unless --data says otherwise


@reads_own_data()
def study(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="; ".join(f"{k}: {v}" for k, v in STUDIES.items()))],
    experiment: Annotated[
        Path | None, typer.Argument(metavar="EXPERIMENT.toml", help="incremental, modules: the experiment to run")
    ] = None,
    data: flags.Data = None,
    models: Annotated[
        str, typer.Option("--models", metavar="A,B", help="sampling, irregular: networks to compare")
    ] = "cfc,gru,lstm,rnn",
    hidden: Annotated[int, typer.Option("--hidden", metavar="N", help="hidden units of every network")] = 16,
    rows: Annotated[
        int,
        typer.Option(
            "--rows", metavar="N", help="training samples; for volatility per class; 0 takes the default of the study"
        ),
    ] = 0,
    epochs: Annotated[
        int, typer.Option("--epochs", metavar="N", help="passes over the samples; 0 takes the default of the study")
    ] = 0,
    lr: Annotated[
        float,
        typer.Option(
            "--lr",
            help="learning rate; 0 means 0.03 for volatility (0.005 with adam), for sampling and irregular the best of "
            "four on validation rows, for each network, and for modules the best of three, for each way to train",
        ),
    ] = 0.0,
    optimiser: Annotated[str, typer.Option("--optimiser", help="volatility: sgd or adam; the others use adam")] = "sgd",
    seed: flags.Seed = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="K", help="number of seeds")] = 1,
    only: Annotated[
        str,
        typer.Option(
            "--only", metavar="A,B", help="modules: these modules; network is all ways that concern all of it"
        ),
    ] = "",
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="draw the result: .svg, .png or .pdf")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="incremental, modules: any setting of the experiment; other studies: a setting of the CFC, such as "
            "model.init=xavier",
        ),
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Repeat an experiment that is not a run, with figures over seeds."""
    if name not in STUDIES:
        raise unknown(Code.FLAG_VALUE, "study", name, STUDIES)
    if seeds < 1 or hidden < 2 or rows < 0 or epochs < 0 or lr < 0:
        raise BadInput(
            Code.FLAG_VALUE,
            "study: --seeds must be at least 1, --hidden at least 2, --rows, --epochs and --lr at least 0.",
        )
    if picture is not None:
        from potluck.studies import plots

        plots.check(picture)
    first = seed or 0
    if name in FILES:
        if experiment is None:
            raise BadInput(Code.NOT_SAID, f"study {name}: name an experiment file, such as {FILES[name]}.")
        if name == "incremental":
            _incremental(experiment, range(first, first + seeds), settings or [], picture, as_json)
        else:
            changes = [*(settings or []), *([] if data is None else [f"data.source={data}"])]
            study_modules.ask(experiment, changes, list(range(first, first + seeds)), lr, only, picture, as_json)
        return
    given = sections(settings or [], "study")
    cfc = dict(given.get("model", {}))
    dataset = loaded(data or DATA[name], given)
    if name == "volatility":
        training: dict[str, Any] = {"rows": rows or 100, "epochs": epochs or 10, "optimiser": optimiser}
        training["lr"] = lr or (0.005 if optimiser == "adam" else 0.03)
        _volatility(dataset, range(first, first + seeds), hidden, cfc, training, picture, as_json)
    else:
        chosen = [part.strip() for part in models.split(",") if part.strip()]
        options = {"hidden": hidden, "rows": rows or 1200, "epochs": epochs or 6, "lr": lr, "cfc": cfc}
        _models(name, dataset, chosen, list(range(first, first + seeds)), options, picture, as_json)


def _volatility(
    data: Dataset,
    seeds: range,
    hidden: int,
    cfc: dict[str, Any],
    training: dict[str, Any],
    picture: Path | None,
    as_json: bool,
) -> None:
    from potluck.studies import plots, volatility

    settings: dict[str, object] = {"hidden": hidden, "backbone": 3 * hidden // 2, "head": hidden, **cfc}
    found = []
    for seed in seeds:
        text.doing(f"seed {seed}: training a network for each pair of classes")
        found.append(volatility.measure(data, settings, seed=seed, **training))
    if picture is not None:
        plots.angles(found, picture)
    if as_json:
        text.as_json([asdict(one) for one in found])
        return
    table = text.sheet("head", ">median angle", ">largest", ">smallest")
    for head in found[0].angles:
        angles = [sorted(one.angles[head]) for one in found]
        table.add_row(
            head, *(f"{statistics.mean(pick(a) for a in angles):.1f}°" for pick in (statistics.median, max, min))
        )
    text.show(table)
    known = statistics.mean(value for one in found for value in one.accuracy)
    many = f"{len(found[0].accuracy)} networks per seed, {plural(len(seeds), 'seed')}"
    text.line(f"{many}; accuracy on their own samples {known:.3f}")


def _models(
    name: str,
    data: Dataset,
    chosen: list[str],
    seeds: list[int],
    options: dict[str, Any],
    picture: Path | None,
    as_json: bool,
) -> None:
    from potluck.studies import models, plots

    ask = models.sampling if name == "sampling" else models.irregular
    found = ask(data, chosen, models.Training(seeds, say=text.doing, **options))
    if picture is not None:
        plots.scores(found, picture)
    if as_json:
        text.as_json([asdict(row) for row in found])
        return
    table = text.sheet("model", ">parameters", ">learning rate", *(f">{test}" for test in found[0].scores))
    for row in found:
        table.add_row(
            row.model, f"{row.parameters:,}", f"{row.lr:g}", *(text.spread(values) for values in row.scores.values())
        )
    text.show(table)


def _incremental(path: Path, seeds: range, settings: list[str], picture: Path | None, as_json: bool) -> None:
    from potluck.runs.experiment import Experiment
    from potluck.studies import incremental, plots

    found = []
    for seed in seeds:
        text.doing(f"seed {seed}: adding one class after another")
        found.append(incremental.measure(Experiment.read(path, [*settings, f"run.seed={seed}"])))
    if picture is not None:
        plots.classes(found, picture)
    if as_json:
        text.as_json([[_plain(asdict(stage)) for stage in one] for one in found])
        return
    table = text.sheet(">classes", ">accuracy on the newest", ">on the first classes", ">forgotten of the first")
    for k, stages in enumerate(zip(*found, strict=True)):
        new, old = ([value for stage in stages for value in getattr(stage, side)] for side in ("new", "old"))
        lost = [incremental.forgotten(one, k) for one in found]
        table.add_row(str(stages[0].classes), text.spread(new), text.spread(old), text.spread(lost))
    text.show(table)


def _plain(stage: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON does not have."""
    sides = {side: [None if math.isnan(value) else value for value in stage[side]] for side in ("new", "old")}
    return {**stage, **sides}
