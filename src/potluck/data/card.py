"""The data card: the samples of each client and possible leaks of the split, as figures, text and picture."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from potluck.data import card_samples as samples
from potluck.data import hopkins
from potluck.data.dataset import Array, Ints, Taken
from potluck.data.federation import Federation

SHOWN = 200  # clients whose classes are counted one by one; of more, evenly spaced ones
_IN_TERMINAL = 30
_NAMED = 8  # names in one line
_SHADES = " ░▒▓█"


def figures(federation: Federation) -> dict[str, Any]:
    """Return plain numbers and lists; `counts` (training rows) has a row for each client in `counted`."""
    data, check = federation.dataset, federation.check
    shown = _spaced(len(federation), SHOWN)
    twins = int((data.twins != np.arange(len(data))).sum()) if check.twins_across is not None else None
    return {
        "data": data.name,
        "rows": len(data),
        "sample_shape": list(data.sample_shape),
        "kind": data.kind,
        "class_names": list(data.class_names),
        "class_rows": np.bincount(data.y[data.y >= 0], minlength=data.classes).tolist(),
        "unlabelled_rows": int((data.y < 0).sum()),
        "partition": federation.spec.kind,
        "split": federation.spec.split,
        "standardise": federation.standardise,
        "clients": len(federation),
        "sizes": _summary(federation.sizes),
        "test_sizes": _summary(federation.test_sizes),
        "valid_sizes": _summary(federation.valid_sizes),
        "counted": [federation.names[int(i)] for i in shown],
        "counts": federation.class_counts(shown).tolist(),
        "leakage": None
        if check.leak is None
        else {
            "groups": check.leak.groups,
            "on_both_sides": check.leak.both_sides,
            "overlapping": check.leak.touching,
        },
        "duplicates": {"rows": twins, "across_the_split": check.twins_across},
        "hopkins": hopkins.of_federation(federation),
        "taken": [asdict(one) for one in data.taken],
        "notes": list(federation.notes),
    }


def _spaced(count: int, most: int) -> Ints:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _summary(sizes: Ints) -> dict[str, float]:
    return {
        "total": int(sizes.sum()),
        "least": int(sizes.min()),
        "median": float(np.median(sizes)),
        "most": int(sizes.max()),
    }


def render(federation: Federation) -> RenderableType:
    """Format the card for a terminal."""
    card = figures(federation)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    facts.add_row(
        "data", f"{card['data']}: {card['rows']} rows of shape {tuple(card['sample_shape'])} ({card['kind']})"
    )
    kinds = "classes" if federation.dataset.target is None else "target"
    facts.add_row(kinds, ", ".join(_short(card["class_names"], 12)))
    facts.add_row("clients", f"{card['clients']} by {card['partition']}, split {card['split']}")
    for name, field in (
        ("training rows", "sizes"),
        ("test rows", "test_sizes"),
        ("validation rows", "valid_sizes"),
    ):
        s = card[field]
        if s["total"]:
            facts.add_row(name, f"{s['least']} to {s['most']} per client, median {s['median']:g}, {s['total']} in all")
    facts.add_row("leakage", _leak_line(card))
    facts.add_row("duplicates", _twin_line(card["duplicates"]))
    facts.add_row("groups", _groups_line(card["hopkins"]))
    notes = [Text(f"• {note}", style="yellow" if note.startswith("Leak") else "") for note in card["notes"]]
    taken: list[RenderableType] = [_taken(federation.dataset.taken), ""] if federation.dataset.taken else []
    return Group(facts, "", *taken, _grid(federation), *notes)


def _taken(taken: tuple[Taken, ...]) -> Table:
    """List what each array or column was taken for; those with the same role and reason share a line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in taken:
        alike.setdefault((one.role, one.why), []).append(one.name)
    table = Table(box=None, padding=(0, 1), title_justify="left")
    for heading in ("array or column", "taken for", "because"):
        table.add_column(heading)
    for (role, why), names in alike.items():
        count = f" ({len(names)})" if len(names) > _NAMED else ""
        style = "dim" if role == "ignored" else ""
        table.add_row(Text(", ".join(_short(names, _NAMED)) + count, style=style), Text(role, style=style), why)
    return table


def _short(names: list[str], most: int) -> list[str]:
    return names if len(names) <= most else [*names[: most - 1], f"... {len(names)} in all"]


def _leak_line(card: dict[str, Any]) -> str:
    leak = card["leakage"]
    if leak is None:
        return "no recordings or groups are known, so rows count as independent"
    return (
        f"{leak['overlapping']} of {leak['groups']} groups with training rows next to test rows, "
        f"{leak['on_both_sides']} groups on both sides"
    )


def _twin_line(duplicates: dict[str, int | None]) -> str:
    if duplicates["rows"] is None:
        return "not looked for, the data is large"
    across = duplicates["across_the_split"]
    return f"{duplicates['rows']} rows equal an earlier one, {across} test rows a training row"


def _groups_line(hopkins: float | None) -> str:
    if hopkins is None:
        return "not known, every class has too few rows"
    return f"Hopkins statistic {hopkins:.2f}; 0.5: rows of a class are spread evenly, 1: they form groups"


def _heading(name: str) -> str:
    """A class in eight letters; of a range of numbers its upper end, as the one before has the lower."""
    _, between, high = name.partition(" to ")
    return f"to {high}" if between and len(name) > 8 else name[:8]


def _grid(federation: Federation) -> Table:
    """Draw training rows by client and class; darker means more."""
    shown = _spaced(len(federation), _IN_TERMINAL)
    counts = federation.class_counts(shown)
    most = max(1, int(counts.max()))
    classes = list(range(min(federation.dataset.classes, 16)))
    table = Table(box=None, padding=(0, 1), title_justify="left")
    table.add_column("client", no_wrap=True)
    for c in classes:
        table.add_column(_heading(federation.dataset.class_names[c]), justify="right", no_wrap=True)
    blank = federation.dataset.unlabelled is not None
    if blank:
        table.add_column("no label", justify="right")
    table.add_column("train", justify="right")
    table.add_column("test", justify="right")
    for i, row in zip(shown.tolist(), counts, strict=True):
        cells = [f"{_shade(int(row[c]), most)} {int(row[c])}" for c in classes]
        if blank:
            cells.append(str(int(federation.sizes[i] - row.sum())))
        table.add_row(federation.names[i], *cells, str(federation.sizes[i]), str(federation.test_sizes[i]))
    if len(federation) > len(shown):
        table.caption = f"{len(shown)} of {len(federation)} clients"
    return table


def _shade(count: int, most: int) -> str:
    return _SHADES[0] if count == 0 else _SHADES[1 + round((len(_SHADES) - 2) * count / most)]


def picture(federation: Federation, path: Path | str) -> Path:
    """Draw a PNG: a heat map of rows per client and class, the sizes of the clients, and a few samples below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    shown = _spaced(len(federation), SHOWN)
    counts = federation.class_counts(shown)
    clients, classes = counts.shape
    height = min(4.0 + 0.22 * clients, 13.0)
    width, below = min(7.0 + 0.45 * classes, 17.0), samples.height(federation)
    whole = Figure(figsize=(width, height + below), dpi=130, layout="constrained")
    FigureCanvasAgg(whole)
    figure: Any = whole
    if below:
        parts: Any = whole.subfigures(2, 1, height_ratios=(height, below))
        figure = parts[0]
        samples.draw(parts[1], federation)
    heat, bars = figure.subplots(1, 2, sharey=True, width_ratios=(max(2.0, 0.45 * classes), 2.0))
    # cividis reads the same with and without colour vision; the root keeps small counts apart from none.
    norm = PowerNorm(0.5, vmin=0, vmax=max(1, int(counts.max())))
    image = heat.imshow(counts, aspect="auto", cmap="cividis", interpolation="nearest", norm=norm)
    heat.set_xticks(range(classes), federation.dataset.class_names, rotation=45, ha="right", rotation_mode="anchor")
    every = max(1, -(-clients // 45))
    labelled = range(0, clients, every)
    heat.set_yticks(labelled, [federation.names[int(shown[k])] for k in labelled], fontsize=8)
    heat.set_title("training rows per client and class", fontsize=11)
    if clients * classes <= 320:
        _write_counts(heat, counts, norm)
    figure.colorbar(image, ax=heat, label="rows", shrink=0.8)
    _size_bars(bars, federation, shown)
    figure.legend(loc="outside lower right", ncols=3, frameon=False, fontsize=9)
    of_all = f" ({clients} shown)" if clients < len(federation) else ""
    figure.suptitle(
        f"{federation.dataset.name}: {len(federation)} clients by {federation.spec.kind}{of_all}", fontsize=13
    )
    path = Path(path)
    whole.savefig(path)
    return path


def _write_counts(axes: Any, counts: Array, norm: Any) -> None:
    for (row, column), count in np.ndenumerate(counts):
        colour = "black" if norm(count) > 0.55 else "white"
        axes.text(column, row, str(count), ha="center", va="center", fontsize=7, color=colour)


def _size_bars(axes: Any, federation: Federation, shown: Ints) -> None:
    """Blend Okabe and Ito's blue into their orange."""
    places = np.arange(len(shown))
    train, test, valid = federation.sizes[shown], federation.test_sizes[shown], federation.valid_sizes[shown]
    axes.barh(places, train, height=0.8, color="#0072B2", label="train")
    axes.barh(places, test, left=train, height=0.8, color="#E69F00", label="test")
    if valid.any():
        axes.barh(places, valid, left=train + test, height=0.8, color="#999999", label="validation")
    axes.tick_params(axis="y", labelleft=False)
    axes.set_title("rows per client", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
