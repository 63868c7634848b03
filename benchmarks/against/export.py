"""Write a federation of Potluck as plain files, so that other libraries train on the very same rows and weights.

    python benchmarks/against/export.py mnist-dirichlet --seed 0 --out exported

The folder holds `clients/<client>.npz` with the arrays x, y and split (0: training, 1: test), `weights-<network>.npz`
with the first weights, and `about.json`. Potluck reads `clients/` too: it is a folder of one .npz per client.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import cases
import numpy as np

from potluck.data import Federation
from potluck.files import write_json
from potluck.models import Model, build
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment


def export(case: str, seed: int, out: Path) -> Path:
    """Write the files of a case; a folder that is complete stays as it is."""
    folder = out / case / str(seed)
    if (folder / "about.json").exists():
        return folder
    (folder / "clients").mkdir(parents=True, exist_ok=True)
    shape, classes = _write_w1(folder) if case == "w1" else _write_federation(case, seed, folder)
    names = ("w1",) if case == "w1" else ("mlp", "cnn")
    networks = {name: cases.NETWORKS[name] for name in names}
    for name, spec in networks.items():
        settings = {key: value for key, value in spec.items() if key != "name"}
        model = build(str(spec["name"]), shape, classes, settings)
        np.savez(folder / f"weights-{name}.npz", **renamed(model, seed))
    about = {"case": case, "seed": seed, "shape": list(shape), "classes": classes, "networks": networks}
    write_json(folder / "about.json", about)  # last: its presence says that the folder is complete
    return folder


def _write_federation(case: str, seed: int, folder: Path) -> tuple[tuple[int, ...], int]:
    federation = federation_of(Experiment.of({**cases.CASES[case], "run": {"seed": seed}}))
    keep = cases.KEEP.get(case, 1.0)
    for i in range(len(federation.names)):
        write_client(folder / "clients" / f"c{i:03d}.npz", *rows_of(federation, i, seed, cases.MULTIPLE, keep))
    return tuple(federation.dataset.sample_shape), federation.dataset.classes


def rows_of(
    federation: Federation, i: int, seed: int, multiple: int, keep: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, y and split of a client: a share of its training rows in random order, cut to a `multiple`.

    PFLlib drops a short last batch, and takes two batches at a time for Per-FedAvg.
    """
    x, y, *_ = federation.materialise(i, "train")
    order = np.random.default_rng([seed, i]).permutation(len(y))
    order = order[: max(1, int(keep * len(y)) // multiple) * multiple]
    x_test, y_test, *_ = federation.materialise(i, "test")
    side = np.repeat([0, 1], [len(order), len(y_test)])
    return np.concatenate([x[order], x_test]), np.concatenate([y[order], y_test]), side


def write_client(path: Path, x: np.ndarray, y: np.ndarray, side: np.ndarray) -> None:
    np.savez(path, x=x.astype(np.float32), y=y.astype(np.int64), split=side.astype(np.int64))


def _write_w1(folder: Path) -> tuple[tuple[int, ...], int]:
    """Write the clients of workload W1; all their rows are for training, and the first ones for testing too."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import workloads

    w = workloads.WORKLOADS["W1"]
    arrays = workloads.Arrays(w)
    for i in range(w.clients):
        x, y = (part.numpy() for part in arrays.client(i))
        few = 10
        side = np.repeat([0, 1], [len(y), few])
        write_client(
            folder / "clients" / f"c{i:03d}.npz", np.concatenate([x, x[:few]]), np.concatenate([y, y[:few]]), side
        )
    return w.shape, w.classes


def renamed(model: Model, seed: int) -> dict[str, np.ndarray]:
    """Return the first weights of a run with this seed under the names of `network.encoder_and_head`."""
    last = model.layers()[-1]
    weights = {}
    for name, value in model.init(seed).items():
        if name not in model.trainable:
            continue
        layer, _, what = name.rpartition(".")
        place = "head" if layer == last else f"encoder.{layer.replace('norm', 'bn')}"
        weights[f"{place}.{what}"] = value.numpy()
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=list(cases.CASES), help="which federation")
    parser.add_argument("--seed", type=int, default=0, help="of the partition and the first weights (default 0)")
    parser.add_argument("--out", type=Path, default=Path("against"), help="a folder for it (default: against)")
    args = parser.parse_args()
    print(export(args.case, args.seed, args.out))


if __name__ == "__main__":
    main()
