"""The sweeps of FedConv's section 6.4 and 6.5.1, and the paper's own proportions: docs/methods/fedconv_results.md.

    python experiments/fedconv/sweeps.py clients widths share kernel_epochs weight_epochs stride pretrain
    python experiments/fedconv/sweeps.py proportions --seeds 0 1
    python experiments/fedconv/sweeps.py clients widths share kernel_epochs weight_epochs pretrain --picture sweeps.png

Everything that a sweep does not name is as in equal.py, MNIST and alpha 0.1, with three rounds. `proportions` has 5 %
of MNIST at the server and all other rows at 20 clients, of which they train on 70 % of MNIST, in disjoint parts; there
`global` is the global model on all test rows of the clients together, a fifth of the set. Finished runs are read, not
repeated. The last lines are FedConv's leads at each point, or over its first point where it is alone, seed by seed,
with 95 % intervals.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from pathlib import Path

import potluck
from potluck.runs.results import Run

sys.path.insert(0, str(Path(__file__).parent))
from equal import T, experiment, server_seconds, spread
from table import even

SHORT = ("stop.rounds=3", "run.evaluate_every=3")
TUNED = ("method.kernels.compress_epochs={}", "method.kernels.dilate_epochs={}")
Point = tuple[str, str, tuple[str, ...]]  # label, row of equal.py, what is changed
Found = dict[str, list[float]]  # figure -> values by seed
LABELS = {"fedconv": "FedConv", "heterofl_server": "HeteroFL", "serveralone_rows": "Serveralone"}
TITLES = {
    "clients": "clients of 100 in a round", "widths": "width of every second client",
    "share": "share of rows at the server", "kernel_epochs": "epochs of kernels a round",
    "weight_epochs": "epochs of weights a round", "pretrain": "round",
}  # fmt: skip


def halves(width: float) -> tuple[str, ...]:
    """Half of the clients at full width, half at another."""
    widths, shares = ([1.0, width], [1, 1]) if width < 1 else ([1.0], [1])
    return f"method.sizes.widths={widths}", f"method.sizes.shares={shares}"


SWEEPS: dict[str, list[Point]] = {
    "clients": [  # Fig. 11: so many of 100 clients in a round
        (f"{count} of 100", row, (*SHORT, "partition.clients=100", f"method.cohort={count}"))
        for count in (10, 30, 50)
        for row in ("fedconv", "heterofl_server")
    ],
    "widths": [  # Fig. 12
        (f"{width:g}", row, (*SHORT, *halves(width)))
        for width in (1.0, 0.75, 0.5, 0.25, 0.1, 0.05)
        for row in ("fedconv", "heterofl_server")
    ],
    "share": [  # Fig. 13a
        (f"{share:g}", row, (*SHORT, f"server.share={share}"))
        for share in (0.002, 0.004, 0.01, 0.02)
        for row in ("fedconv", "serveralone_rows")
    ],
    "kernel_epochs": [  # Fig. 13b
        (str(n), "fedconv", (*SHORT, *(one.format(n) for one in TUNED))) for n in (0, 2, 6, 20, 60)
    ],
    "weight_epochs": [(str(n), "fedconv", (*SHORT, f"method.mix.epochs={n}")) for n in (0, 5, 20, 60)],  # Fig. 13c
    "stride": [  # Fig. 13d: stride and padding, which set the size of the kernel
        (f"stride {s}, padding {p}", "fedconv", (*SHORT, f"method.kernels.stride={s}", f"method.kernels.padding={p}"))
        for s, p in ((1, 0), (1, 2), (2, 0))
    ],
    "pretrain": [  # Fig. 14a
        (f"e_p = {n}", "fedconv", ("run.evaluate_every=1", f"server.pretrain={n}")) for n in (0, 20)
    ],
}
WHOLE = (
    "server.share=0.05", "server.pretrain=5", "partition.samples=", "partition.test_share=0.263", "stop.rounds=20",
    "run.evaluate_every=5", "method.recipe.epochs=1",
)  # fmt: skip
SWEEPS["proportions"] = [
    ("whole", "fedconv", (*WHOLE, *map(str.format, TUNED, "11"), "method.mix.epochs=1")),
    ("whole", "fedconv_long", (*WHOLE, *map(str.format, TUNED, "55"), "method.mix.epochs=10")),  # as in print
    ("whole", "fedconv_server", (*WHOLE, *map(str.format, TUNED, "11"), "method.mix.epochs=1", "server.epochs=3")),
    ("whole", "heterofl_server", (*WHOLE, "server.epochs=3")),
    ("whole", "heterofl_plain_server", (*WHOLE, "server.epochs=3")),
    ("whole", "serveralone_rows", (*WHOLE[:-1], "method.recipe.epochs=3")),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+", choices=list(SWEEPS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--rows", nargs="*", help="of equal.py, among those of the sweeps")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--picture", type=Path, help="a PNG file of all these sweeps")
    parser.add_argument("--out", type=Path, default=Path("runs/sweeps"))
    asked = parser.parse_args()
    every: dict[str, dict[tuple[str, str], Found]] = {}
    for sweep in asked.sweeps:
        points = every.setdefault(sweep, {})
        for label, row, changes in SWEEPS[sweep]:
            if asked.rows and row not in asked.rows:
                continue
            found, curves = points.setdefault((label, row), {}), list[list[float]]()
            for seed in asked.seeds:
                run = ran(sweep, label, row, changes, seed, asked)
                scores = {"own": run.summary["accuracy"]["mean"], "global": run.summary["accuracy"]["global"]}
                if sweep != "proportions":
                    scores["even"] = even(run)
                for name, value in scores.items():
                    found.setdefault(name, []).append(100 * (value or 0.0))
                curves.append(by_round(run))
            found["by round"] = [round(statistics.mean(values), 1) for values in zip(*curves, strict=True)]
            line = {name: f"{statistics.mean(v):.1f} ± {spread(v):.1f}" for name, v in found.items() if name in scores}
            more = {"server_seconds": round(server_seconds(run), 2), "by_round": found["by round"]}
            print(
                json.dumps({"sweep": sweep, "point": label, "row": row} | line | more, ensure_ascii=False), flush=True
            )
        leads(sweep, points)
    if asked.picture:
        picture(every, asked.picture)


def ran(sweep: str, label: str, row: str, changes: tuple[str, ...], seed: int, asked: argparse.Namespace) -> Run:
    wanted = experiment("mnist", row, asked.alpha, seed, list(changes), asked.out)
    name = f"{sweep}-{label}-{row}-a{asked.alpha:g}-s{seed}".replace(" ", "_")
    run = Run(asked.out / name)
    return run if run.finished else potluck.run(wanted.with_(run={"name": name}))


def by_round(run: Run) -> list[float]:
    """The global model's accuracy whenever it was evaluated."""
    return [100 * row["global"] for row in run.table("evaluations") if row["global"] is not None]


def leads(sweep: str, points: dict[tuple[str, str], Found]) -> None:
    """FedConv's leads at each point; where it is alone, each point's over the first."""
    pairs = list(itertools.combinations(points, 2))
    if alone := len({row for _, row in points}) == 1:
        pairs = [(point, next(iter(points))) for point in list(points)[1:]]
    for mine, theirs in pairs:
        for name in ("own", "global", "even"):
            both = [points[point].get(name, []) for point in (mine, theirs)]
            if len(both[0]) in T and (alone or (mine[0] == theirs[0] and mine[1].startswith("fedconv"))):
                gaps = [a - b for a, b in zip(*both, strict=True)]
                wide = T[len(gaps)] * spread(gaps) / len(gaps) ** 0.5
                gap = f"{statistics.mean(gaps):+.1f} ± {wide:.1f}"
                print(f"{sweep} {' '.join(mine)} - {' '.join(theirs)}, {name}: {gap}", flush=True)


def picture(every: dict[str, dict[tuple[str, str], Found]], path: Path) -> None:
    """Accuracy on even rows by what each sweep changes; over the rounds for `pretrain`."""
    from matplotlib.figure import Figure

    shown = [sweep for sweep in every if sweep in TITLES]
    figure = Figure(figsize=(9.0, 2.6 * -(-len(shown) // 3)), layout="constrained")
    for axes, sweep in zip(figure.subplots(-(-len(shown) // 3), 3, squeeze=False).flat, shown, strict=False):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel(TITLES[sweep])
        points = every[sweep]
        if sweep == "pretrain":
            for (label, _), found in points.items():
                curve = found["by round"]
                axes.plot(range(len(curve)), curve, marker="o", label=label)
        for row in dict.fromkeys(row for _, row in points) if sweep != "pretrain" else ():
            mine = [
                (float(label.split()[0]), found["even"]) for (label, which), found in points.items() if which == row
            ]
            x, y = [at for at, _ in mine], [statistics.mean(values) for _, values in mine]
            axes.errorbar(
                x, y, [spread(values) for _, values in mine], marker="o", capsize=3, label=LABELS.get(row, row)
            )
        axes.legend(frameon=False, fontsize=8)
    figure.supylabel("accuracy, %")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
