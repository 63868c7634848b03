"""The sweeps of FedConv's section 6.4 and 6.5.1, and the paper's own proportions: docs/methods/fedconv_results.md.

    python experiments/fedconv/sweeps.py clients widths share kernel_epochs weight_epochs stride pretrain
    python experiments/fedconv/sweeps.py proportions --seeds 0

Everything that a sweep does not name is as in equal.py, MNIST and alpha 0.1, with three rounds. `proportions` has 5 %
of MNIST at the server and all other rows at 20 clients, of which they train on 70 % of MNIST, in disjoint parts; there
`global` is the global model on all test rows of the clients together, a fifth of the set. Finished runs are read, not
repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import potluck
from potluck.runs.results import Run

sys.path.insert(0, str(Path(__file__).parent))
from equal import experiment, server_seconds, spread
from table import even

SHORT = ("stop.rounds=3", "run.evaluate_every=3")
TUNED = ("method.kernels.compress_epochs={}", "method.kernels.dilate_epochs={}")
Point = tuple[str, str, tuple[str, ...]]  # label, row of equal.py, what is changed


def halves(width: float) -> tuple[str, ...]:
    """Half of the clients at full width, half at another."""
    widths, shares = ([1.0, width], [1, 1]) if width < 1 else ([1.0], [1])
    return f"method.sizes.widths={widths}", f"method.sizes.shares={shares}"


SWEEPS: dict[str, list[Point]] = {
    "clients": [  # Fig. 11: so many of 100 clients in a round
        (f"{count} of 100, {row}", row, (*SHORT, "partition.clients=100", f"method.cohort={count}"))
        for count in (10, 30, 50)
        for row in ("fedconv", "heterofl_server")
    ],
    "widths": [  # Fig. 12
        (f"{width:g}, {row}", row, (*SHORT, *halves(width)))
        for width in (1.0, 0.75, 0.5, 0.25, 0.1, 0.05)
        for row in ("fedconv", "heterofl_server")
    ],
    "share": [  # Fig. 13a
        (f"{share:g}, {row}", row, (*SHORT, f"server.share={share}"))
        for share in (0.002, 0.004, 0.01, 0.02)
        for row in ("fedconv", "serveralone_rows")
    ],
    "kernel_epochs": [  # Fig. 13b
        (str(n), "fedconv", (*SHORT, TUNED[0].format(n), TUNED[1].format(n))) for n in (0, 2, 6, 20, 60)
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
    ("fedconv", "fedconv", (*WHOLE, TUNED[0].format(1), TUNED[1].format(1), "method.mix.epochs=1")),
    ("heterofl_server", "heterofl_server", (*WHOLE, "server.epochs=3")),
    ("serveralone_rows", "serveralone_rows", (*WHOLE[:-1], "method.recipe.epochs=3")),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sweeps", nargs="+", choices=list(SWEEPS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=Path("runs/sweeps"))
    asked = parser.parse_args()
    for sweep in asked.sweeps:
        for label, row, changes in SWEEPS[sweep]:
            found: dict[str, list[float]] = {}
            for seed in asked.seeds:
                wanted = experiment("mnist", row, asked.alpha, seed, list(changes), asked.out)
                wanted = wanted.with_(run={"name": f"{sweep}-{label}-a{asked.alpha:g}-s{seed}".replace(" ", "_")})
                run = Run(asked.out / str(wanted.run.name))
                run = run if run.finished else potluck.run(wanted)
                scores = {"own": run.summary["accuracy"]["mean"], "global": run.summary["accuracy"]["global"]}
                if sweep != "proportions":
                    scores["even"] = even(run)
                for name, value in scores.items():
                    found.setdefault(name, []).append(100 * (value or 0.0))
            line = {name: f"{statistics.mean(v):.1f} ± {spread(v):.1f}" for name, v in found.items()}
            more = {"server_seconds": round(server_seconds(run), 2), "by_round": by_round(run)}
            print(json.dumps({"sweep": sweep, "point": label} | line | more, ensure_ascii=False), flush=True)


def by_round(run: Run) -> list[float]:
    """The global model's accuracy whenever it was evaluated."""
    return [round(100 * row["global"], 1) for row in run.table("evaluations") if row["global"] is not None]


if __name__ == "__main__":
    main()
