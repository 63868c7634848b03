"""Pictures of ClusterFL: similarity of clients over the rounds, clusters, accuracies, participation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from potluck.report.pictures import Picture, svg_of
from potluck.runs.results import Run

PANELS = 4  # relation matrices shown
MOST_CLIENTS = 60  # rows and columns of a picture; more would not be readable
MOST_CELLS = 4000  # of the picture of participation
HUES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#997700", "#555555")
STATES = {"took part": "#4477aa", "no update accepted": "#ee6677", "dropped": "#ccbb44", "not asked": "#eeeeee"}


def pictures(run: Run) -> list[Picture]:
    """Those of the four pictures that the run has data for."""
    records = run.table("records")
    relations = [(row["step"], json.loads(row["value"])) for row in records if row["name"] == "relation"]
    dropped = [json.loads(row["value"]) for row in records if row["name"] == "dropped"]
    found: list[Picture | None] = []
    if relations and len(relations[-1][1]["clients"]) <= MOST_CLIENTS:
        found.append(_relations(run, relations))
    found += [_clusters(run), _accuracies(run), _part(run, dropped[-1] if dropped else {})]
    return [one for one in found if one is not None]


def known_groups(clients: Sequence[str]) -> dict[str, str]:
    """Groups from the names of the clients (`room-1`, `room-2`, `corridor-1`); empty if the names have none."""
    groups = {client: client.rpartition("-")[0] for client in clients}
    kinds = set(groups.values())
    return groups if "" not in kinds and 1 < len(kinds) < len(groups) else {}


def followed(history: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Renumber clusters: each keeps the number of the earlier cluster it shares the most clients with.

    A method numbers its clusters anew whenever it learns them; colours that jumped would show changes that are none.
    """
    before: dict[str, int] = {}
    out: list[dict[str, int]] = []
    fresh = 0
    for now in history:
        labels, known = sorted(set(now.values())), sorted(set(before.values()))
        overlap = np.zeros((len(labels), len(known)))
        for client, label in now.items():
            if client in before:
                overlap[labels.index(label), known.index(before[client])] += 1
        pairs = zip(*linear_sum_assignment(overlap, maximize=True), strict=True)
        number = {labels[i]: known[j] for i, j in pairs if overlap[i, j] > 0}
        for label in labels:
            if label not in number:
                number[label], fresh = fresh, fresh + 1
        before = {**before, **{client: number[label] for client, label in now.items()}}
        out.append({client: before[client] for client in now})
    return out


def _history(run: Run) -> dict[int, dict[str, int]]:
    """Step -> client -> cluster, with stable numbers."""
    found: dict[int, dict[str, int]] = {}
    for row in run.table("clusters"):
        found.setdefault(row["step"], {})[row["client"]] = row["cluster"]
    steps = sorted(found)
    return dict(zip(steps, followed([found[step] for step in steps]), strict=True))


def _round_of(run: Run) -> dict[int, int]:
    return {row["step"]: row["round"] for row in run.table("steps")}


def _mesh(axes: Any, values: np.ndarray, colours: Any, low: float, high: float) -> None:
    """Draw cells as vectors: a bitmap inside an SVG is a data URL, which the page's policy forbids."""
    rows, columns = values.shape
    corners = [[(c, r), (c + 1, r), (c + 1, r + 1), (c, r + 1)] for r in range(rows) for c in range(columns)]
    cells = PolyCollection(corners, array=values.ravel(), cmap=colours, edgecolors="face", linewidths=0.1)
    cells.set_clim(low, high)
    axes.add_collection(cells)
    axes.set(xlim=(0, columns), ylim=(rows, 0))


def _relations(run: Run, relations: Sequence[tuple[int, Mapping[str, Any]]]) -> Picture:
    last, rounds = relations[-1][1], _round_of(run)
    order = [client for _, client in sorted(zip(last["cluster"], last["clients"], strict=True))]
    early = {client for _, one in relations for client in one["clients"]} - set(order)
    order += sorted(early)  # clients that were dropped since
    chosen = [relations[int(i)] for i in np.unique(np.linspace(0, len(relations) - 1, PANELS).astype(int))]
    figure = Figure(figsize=(8.0, 2.6), layout="constrained")
    for place, (step, one) in enumerate(chosen, 1):
        at = {client: i for i, client in enumerate(one["clients"])}
        shown = [client for client in order if client in at]
        matrix = np.array(one["matrix"])[np.ix_([at[c] for c in shown], [at[c] for c in shown])]
        axes = figure.add_subplot(1, len(chosen), place)
        _mesh(axes, matrix, "PuOr_r", -1.0, 1.0)
        axes.set_aspect("equal")
        axes.set_title(f"round {rounds.get(step, step)}", fontsize=8)
        axes.set_xticks([])
        few = len(shown) <= 12 and place == 1
        axes.set_yticks([i + 0.5 for i in range(len(shown))] if few else [], shown if few else [], fontsize=6)
    alike = len(set(last["cluster"]))
    caption = (
        f"Correlation of the rows of F, from -1 (violet) to 1 (orange), in the order of the last clusters ({alike}). "
        "Blocks along the diagonal are clients that learn from one another."
    )
    return Picture("Similarity of clients", caption, svg_of(figure, caption))


def _clusters(run: Run) -> Picture | None:
    history = _history(run)
    steps = list(history)
    clients = sorted({client for now in history.values() for client in now})
    if not clients or len(clients) > MOST_CLIENTS:
        return None
    groups, rounds = known_groups(clients), _round_of(run)
    clients.sort(key=lambda client: (groups.get(client, ""), client))
    steps = [steps[int(i)] for i in np.unique(np.linspace(0, len(steps) - 1, 40).astype(int))]
    place = {client: i for i, client in enumerate(clients)}
    grid = np.full((len(clients), len(steps)), np.nan)
    column = {step: i for i, step in enumerate(steps)}
    agreement = []
    for step in steps:
        now = history[step]
        for client, cluster in now.items():
            grid[place[client], column[step]] = cluster % len(HUES)
        if groups:
            agreement.append(adjusted_rand_score([groups[c] for c in now], list(now.values())))
    figure = Figure(figsize=(8.0, 1.0 + 0.16 * len(clients)), layout="constrained")
    axes = figure.add_subplot()
    _mesh(axes, grid, ListedColormap(HUES), -0.5, len(HUES) - 0.5)
    axes.set_yticks([i + 0.5 for i in range(len(clients))], clients, fontsize=6)
    some = np.unique(np.linspace(0, len(steps) - 1, 8).astype(int))
    axes.set_xticks([int(i) + 0.5 for i in some], [str(rounds.get(steps[int(i)])) for i in some], fontsize=7)
    axes.set_xlabel("round")
    caption = "Each client's cluster, one colour each; a cluster keeps its colour while most of its clients stay."
    if agreement:
        caption += (
            f" Adjusted Rand index with the {len(set(groups.values()))} groups that the names tell: "
            f"{agreement[0]:.2f} at first, {agreement[-1]:.2f} at the end (1 is agreement, 0 is chance)."
        )
    return Picture("Clusters over the rounds", caption, svg_of(figure, caption))


def _accuracies(run: Run) -> Picture | None:
    rows = run.table("accuracies")
    if not rows:
        return None
    first, last = min(row["step"] for row in rows), max(row["step"] for row in rows)
    begin = {row["client"]: row["accuracy"] for row in rows if row["step"] == first}
    end = {row["client"]: row["accuracy"] for row in rows if row["step"] == last}
    if len(end) > MOST_CLIENTS:
        return None
    history = _history(run)
    cluster = history[max(history)] if history else {}
    order = sorted(end, key=lambda client: (cluster.get(client, -1), -end[client]))
    figure = Figure(figsize=(8.0, 3.0), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.scatter(
        range(len(order)), [100 * begin.get(c, np.nan) for c in order], s=10, color="#bbbbbb", label="first evaluation"
    )
    colours = [HUES[cluster[c] % len(HUES)] if c in cluster else "#555555" for c in order]
    axes.scatter(range(len(order)), [100 * end[c] for c in order], s=22, c=colours)
    axes.set_xticks(range(len(order)), order, rotation=90, fontsize=6)
    axes.set_ylabel("accuracy, %")
    caption = "Accuracy of each client at the first evaluation (grey) and at the last (in the colour of its cluster)."
    return Picture("Accuracy of all clients", caption, svg_of(figure, caption))


def _part(run: Run, dropped: Mapping[str, Sequence[Any]]) -> Picture | None:
    rounds, clients = _round_of(run), [row["client"] for row in run.table("clients")]
    tasks = [task for task in run.table("tasks") if task["program"] == "Train" and rounds.get(task["step"], 0) > 0]
    count = max(rounds.values(), default=0)
    if not tasks or len(clients) > MOST_CLIENTS or len(clients) * count > MOST_CELLS:
        return None
    names, place = list(STATES), {client: i for i, client in enumerate(clients)}
    grid = np.full((len(clients), count), float(names.index("not asked")))
    for task in tasks:
        state = "took part" if task["outcome"] == "accepted" else "no update accepted"
        grid[place[task["client"]], rounds[task["step"]] - 1] = names.index(state)
    for client, (since, _) in dropped.items():
        grid[place[client], int(since) :] = names.index("dropped")
    figure = Figure(figsize=(8.0, 1.2 + 0.13 * len(clients)), layout="constrained")
    axes = figure.add_subplot()
    _mesh(axes, grid, ListedColormap(list(STATES.values())), -0.5, len(names) - 0.5)
    axes.set_yticks([i + 0.5 for i in range(len(clients))], clients, fontsize=6)
    axes.set_xlabel("round")
    seen = [name for i, name in enumerate(names) if bool((grid == i).any())]
    handles = [Patch(color=STATES[name], label=name) for name in seen]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, fontsize=7, frameon=False)
    saved = float((grid == names.index("dropped")).mean())
    who = ", ".join(f"{client} ({cause}, round {since})" for client, (since, cause) in dropped.items()) or "no client"
    caption = f"Participation by round. Dropped: {who}; this saved {100 * saved:.0f} % of all client-rounds."
    return Picture("Participation and dropped clients", caption, svg_of(figure, caption))
