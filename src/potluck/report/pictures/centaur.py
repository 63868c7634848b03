"""Pictures of runs with devices and access points: accuracy against cost, use of the samples, the day.

After Figs. 1 and 7 of Mo et al. (Centaur). Costs are cumulative, per tier: devices on the left of each pair of panels,
access points on the right. `together` draws several runs into one such picture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from potluck.methods.parts.centaur import mobility
from potluck.report.pictures import Picture, svg_of
from potluck.runs.results import Run

STYLES = {"centaur": ("#228833", "o"), "ap": ("#4477aa", "s"), "ucd": ("#ee6677", "^")}
SPENT = {  # label of the axis, and what to divide the recorded units by
    "macs": ("billion MACs", 1e9),
    "bytes": ("MB sent and received", 1e6),
    "seconds": ("seconds, work and links", 1.0),
    "joules": ("joules", 1.0),
}
TIERS = {"device": "devices", "access-point": "access points"}
PARTED = {
    "discarded": ("discarded", "#bbbbbb"),
    "kept": ("trained on the device", "#228833"),
    "chosen": ("chosen for the access point", "#4477aa"),
}


def pictures(run: Run) -> list[Picture]:
    found = [strategies([run])] if run.table("tasks") and run.table("evaluations") else []
    parted = _parted(run)
    found += [parted] if parted is not None else []
    found += [_day(run)] if _mobility(run) is not None else []
    return found


def together(runs: Sequence[Run]) -> list[Picture]:
    return [strategies(runs)]


def strategies(runs: Sequence[Run]) -> Picture:
    """Accuracy against the costs of devices and access points so far: MACs, bytes, time, energy."""
    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    axes = figure.subplots(len(TIERS), len(SPENT), sharey=True)
    lines: dict[str, Any] = {}
    for run in runs:
        name = str(run.experiment.method["name"])
        spent = _spent(run)
        scores = [
            (row["step"], row["global"] if row["global"] is not None else row["mean"])
            for row in run.table("evaluations")
        ]
        colour, marker = STYLES.get(name, ("#444444", "x"))
        for row, tier in enumerate(TIERS):
            for column, (what, (_, unit)) in enumerate(SPENT.items()):
                total = [spent[tier][what].get(step, 0.0) / unit for step, _ in scores]
                if any(total):
                    (line,) = axes[row, column].plot(
                        total, [score for _, score in scores], marker=marker, ms=2.5, lw=1, color=colour
                    )
                    lines.setdefault(name, line)
    for row, said in enumerate(TIERS.values()):
        for column, (what, _) in enumerate(SPENT.values()):
            panel = axes[row, column]
            panel.spines[["top", "right"]].set_visible(False)
            panel.tick_params(labelsize=8)
            panel.locator_params(axis="x", nbins=4)
            panel.set_xlabel(what, fontsize=9)
            panel.set_xlim(left=0.0)
            if column == 0:
                panel.set_ylabel(f"accuracy\nby cost of {said}", fontsize=9)
            if not panel.lines:
                panel.text(0.5, 0.5, "nothing spent", ha="center", va="center", transform=panel.transAxes, fontsize=9)
    if len(runs) > 1:
        figure.legend(list(lines.values()), list(lines), loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    caption = (
        "Test accuracy against the costs so far: above of the devices, below of the access points. A device's bytes "
        "are those of its own short-range link; what passes on to the server is on its access point's account, too. A "
        "method that spends nothing of a kind has no line there."
    )
    return Picture("Accuracy against cost", caption, svg_of(figure, caption))


def _spent(run: Run) -> dict[str, dict[str, dict[int, float]]]:
    """Cumulative cost of each tier after every step."""
    partners = {row["partner"] for row in run.table("clients") if row["partner"]}
    sums: dict[str, defaultdict[str, defaultdict[int, float]]] = {
        tier: defaultdict(lambda: defaultdict(float)) for tier in TIERS
    }
    for task in run.table("tasks"):
        mine = sums["access-point" if task["client"] in partners else "device"]
        step = task["step"]
        mine["macs"][step] += task["macs"]
        mine["bytes"][step] += task["bytes_up"] + task["bytes_down"] + task["bytes_handoff"]
        mine["seconds"][step] += task["arrived"] - task["sent"]
        mine["joules"][step] += task["joules"]
    steps = [row["step"] for row in run.table("steps")]
    return {
        tier: {
            what: dict(zip(steps, np.cumsum([by_step[what][step] for step in steps]).tolist(), strict=True))
            for what in SPENT
        }
        for tier, by_step in sums.items()
    }


def _parted(run: Run) -> Picture | None:
    """Shares of the collected samples that were discarded, trained on and handed to the access point, by round."""
    by_step: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for row in run.table("records"):
        by_step[row["step"]][row["name"]] = float(row["value"])
    rounds = {row["step"]: row["round"] for row in run.table("steps")}
    seen = [(rounds[step], one) for step, one in sorted(by_step.items()) if one.get("collected")]
    if len(seen) < 2 or not any(one["discarded"] or one["chosen"] for _, one in seen):
        return None
    total = np.array([max(1.0, one["discarded"] + one["kept"] + one["chosen"]) for _, one in seen])
    shares = [np.array([one[name] for _, one in seen]) / total for name in PARTED]
    figure = Figure(figsize=(8.0, 2.8), layout="constrained")
    panel: Any = figure.add_subplot()
    panel.spines[["top", "right"]].set_visible(False)
    said = list(PARTED.values())
    panel.stackplot(
        [at for at, _ in seen], *shares, colors=[colour for _, colour in said], labels=[text for text, _ in said]
    )
    sent = np.array([one["handed"] / max(1.0, one["collected"]) for _, one in seen])
    panel.plot([at for at, _ in seen], 1.0 - sent, "--", color="black", lw=1, label="above: handed over")
    panel.set(xlabel="round", ylabel="share of samples", ylim=(0, 1), xlim=(seen[0][0], seen[-1][0]))
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=8, frameon=False)
    means = [float(share.mean()) for share in shares]
    caption = (
        f"What devices did with the samples they had collected: on average {100 * means[0]:.1f} % discarded, "
        f"{100 * means[1]:.1f} % learned from on the spot, {100 * means[2]:.1f} % chosen for the access point, as "
        f"drawn in the first epoch of every round; {100 * float(sent.mean()):.1f} % were handed over."
    )
    return Picture("Use of the samples", caption, svg_of(figure, caption))


def _mobility(run: Run) -> tuple[float, float] | None:
    found = run.experiment.method.get("connection", {}).get("mobility")
    return None if found is None else (float(found[0]), float(found[1]))


def _day(run: Run) -> Picture:
    """Connection probability and expected units offline by time of day, over the clients of the run."""
    low, high = _mobility(run) or (0.0, 0.0)
    seed = int(run.experiment.method.get("seed", run.experiment.run.seed))
    clients = [row["client"] for row in run.table("clients") if row["kind"] != "access-point"]
    chances = np.array(
        [[mobility.connection(seed, c, slot, low, high) for slot in range(mobility.SLOTS)] for c in clients]
    )
    figure = Figure(figsize=(8.0, 2.8), layout="constrained")
    panel: Any = figure.add_subplot()
    panel.spines[["top", "right"]].set_visible(False)
    hours = np.arange(mobility.SLOTS)
    panel.fill_between(
        hours, chances.min(0), chances.max(0), color="#4477aa", alpha=0.2, lw=0, label="lowest to highest"
    )
    panel.plot(hours, chances.mean(0), color="#4477aa", label=f"mean of {len(clients)} wearers")
    panel.step(hours, chances[0], where="mid", color="#ccbb44", lw=1, label=f"the day of {clients[0]}")
    panel.set(xlabel="slot of the day", ylabel="connection probability", xlim=(0, mobility.SLOTS - 1), ylim=(0, 1))
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8, frameon=False)
    units = float(((1.0 - chances) / np.maximum(chances, 1e-2)).mean())
    caption = (
        f"How likely a connection to the access point succeeds by time of day, over {len(clients)} wearers: best at "
        f"home, first and last; in between everybody goes from place to place, so that one day has ups and downs which "
        f"the mean has not. On average {units:.1f} attempts fail before one succeeds. A pair of rounds is a slot."
    )
    return Picture("Connectivity by time of day", caption, svg_of(figure, caption))
