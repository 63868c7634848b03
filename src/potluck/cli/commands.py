"""All commands by name: what each does, in its own first words, and an example. `potluck --help` reads nothing else."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    about: str  # the first sentence of its help; a test compares them
    example: str | None = None  # None for a group of commands, which have examples of their own
    parts: tuple[str, ...] = ()  # modules that add commands to a group


COMMANDS = {
    "demo": Entry(
        "Eight methods where people have little labelled data, on real Apple Watch data, in about a minute.",
        "potluck demo --quick",
    ),
    "run": Entry(
        "Run one experiment: a TOML file, flags, or both.",
        "potluck run --method fedavg --data made --rounds 10 --set fleet.devices=boards",
    ),
    "compare": Entry(
        "Compare methods on the same fleet, the same split and the same seeds: one table, one report.",
        "potluck compare local fedavg ftl --data made --seeds 3 --rounds 10",
    ),
    "choose": Entry(
        "Look at the data and the devices, propose methods, tune them lightly, compare them, and recommend one.",
        "potluck choose mine.npz --fleet everyday --minutes 10",
    ),
    "plan": Entry(
        "Say what a federation will cost, without training: time, bytes, joules, memory and battery, "
        "by method and device.",
        "potluck plan --fleet mixed --clients 40 --wish 'battery 20 % a day'",
    ),
    "tune": Entry(
        "Choose the settings of methods on validation rows, never on test rows, "
        "with the same compute for every method.",
        "potluck tune fedavg ftl --data made --trials 9 --rounds 10 --set fleet.devices=boards",
    ),
    "compose": Entry(
        "List the parts that a method can be composed of, what each needs, and which pairs do not fit.",
        "potluck compose arrivals/clusters/slices/all/all/latest",
    ),
    "new": Entry("Write a first file that works as it is: change it step by step.", "potluck new experiment mine.toml"),
    "resume": Entry(
        "Continue a run that was stopped or killed; the result is bit-identical to an uninterrupted run.",
        "potluck resume runs/fedavg-made-s0",
    ),
    "watch": Entry(
        "Follow runs in the browser while they go on, or replay them.", "potluck watch runs/fedavg-made-s0 --open"
    ),
    "log": Entry(
        "Show the history of the clusters of an EchoPFL run: where they split and merged, and the updates in between.",
        "potluck log runs/echopfl-uci_har-s0",
    ),
    "report": Entry(
        "Write the report of one or several runs: one HTML file that needs no network.",
        "potluck report runs/fedavg-made-s0 runs/local-made-s0 --out both.html",
    ),
    "ranks": Entry(
        "Rank methods over the datasets of several comparisons, and draw the critical-difference plot.",
        "potluck ranks runs/compare-uci_har runs/compare-motionsense",
    ),
    "figures": Entry(
        "Draw runs for a paper: PDF, PNG and SVG, colour-blind safe, with the names and units of the report.",
        "potluck figures runs/compare-made --out figures",
    ),
    "export": Entry(
        "Write runs for other tools: CSV, Parquet, TensorBoard or MLflow. "
        "Write their models as safetensors, ONNX or C.",
        "potluck export runs/compare-made --to csv --out tables",
    ),
    "predict": Entry(
        "Predict the class (or number, labels, anomaly score) of each sample of a file with a trained model.",
        "potluck predict runs/ftl-mine-s0 --client s07 mine.npz",
    ),
    "pretrain": Entry(
        "Train a model centrally on a dataset and keep its encoder, the part before the classifier.",
        "potluck pretrain encoder.safetensors --data made --model mlp",
    ),
    "methods": Entry(
        "List the methods. With a name, show one method: the settings that matter most first, then all others.",
        "potluck methods scaffold",
    ),
    "check-method": Entry(
        "Run the battery on a method: small runs that check what Potluck promises of every method.",
        "potluck check-method mine.py",
    ),
    "lab": Entry(
        "Let random federations fail in random ways, and check what must hold whatever happens.",
        "potluck lab --count 200",
    ),
    "models": Entry("List the models with their settings.", "potluck models"),
    "datasets": Entry("List the public datasets, and which of them are on this machine.", "potluck datasets"),
    "data": Entry(
        "Show the data card: what each client holds of each class, how the data is split, and whether anything leaks.",
        "potluck data made --set partition.kind=dirichlet --set partition.alpha=0.1 --picture card.png",
    ),
    "devices": Entry(
        "List devices, links and fleets. With a name, show one of them and the source of each figure.",
        "potluck devices raspberry-pi-4",
    ),
    "measure": Entry(
        "Measure how fast this machine trains, and write its figures with their uncertainty for `fleet.file`.",
        "potluck measure kitchen-pi --like raspberry-pi-4",
    ),
    "calibrate": Entry(
        "Run tasks on real processes with a limited processor share, behind slow links, over Flower with TLS.",
        "potluck calibrate --out calibration",
    ),
    "traces": Entry(
        "Read a public trace and print what it says; with --out, write it as a link for `fleet.file`.",
        "potluck traces 4g_trace.txt --name bus --like lte --out links.toml",
    ),
    "privacy": Entry(
        "Say how many clients a round an epsilon needs, at client-level privacy with noise on the sum.",
        "potluck privacy --epsilon 8 --clients 1000 --rounds 100 --parameters 25000",
    ),
    "audit": Entry(
        "Run an experiment with canary clients, then without, and attack both.", "potluck audit mine.toml --canaries 1"
    ),
    "fit": Entry(
        "Show how many bytes training needs on a device, part by part, and what to shrink if it does not fit.",
        "potluck fit cfc --device arduino-nano-33-ble-sense --shape 125x6 --classes 6",
    ),
    "study": Entry(
        "Repeat an experiment that is not a run, with figures over seeds.",
        "potluck study volatility --data uci_har --seeds 5 --picture angles.svg",
    ),
    "doctor": Entry(
        "Check this machine: installation, memory, disk, data, extras, firmware tools and ports. Name the remedies.",
        "potluck doctor",
    ),
    "explain": Entry(
        "Explain an error by the code at its end: what it means, an example, the usual causes, what to do.",
        "potluck explain PL-103",
    ),
    "runs": Entry("List runs with the settings that differ; compare two, tag them, or delete them."),
    "deploy": Entry(
        "Run an experiment on real machines: a server, clients, TLS and keys.", parts=("deploy_unit", "deploy_keys")
    ),
    "firmware": Entry("Build the FedCFC client for a microcontroller, and run it under emulation."),
}
