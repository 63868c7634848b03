"""The Apple Watch exercises from an installed `seglearn`, without importing it (it needs pandas).

Burns et al., Physiological Measurement 39(7), 2018; the file is BSD 3-clause. It holds pickled objects, so
its hash is checked before anything else, and the unpickler can build NumPy arrays and nothing else.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from potluck.data.dataset import Array
from potluck.errors import BadInput, Code

SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
WINDOW, STEP = 128, 64  # 2.56 s at 50 Hz, half of it shared with the next window
_FILE = "seglearn/data/watch_dataset.npy"
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("_codecs", "encode"),
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # the file is older than the new name
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an array")
        return super().find_class(module, name)


def installed() -> Path | None:
    """Return the path of the file in an installed seglearn, or None."""
    try:
        files = metadata.files("seglearn") or []
    except metadata.PackageNotFoundError:
        return None
    places = [Path(str(file.locate())) for file in files if file.as_posix() == _FILE]
    return next((place for place in places if place.exists()), None)


def read(path: Path) -> dict[str, Array]:
    """Read the windows of all recordings: x, y, subject (person 1..10), side (0 left, 1 right), recording."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise BadInput(
            Code.DATA_FILE, f"{path}: this is not the file of seglearn 1.2.5 (its sha256 differs), so it is not opened."
        )
    recordings = unpickled(content)
    starts = [np.arange(0, len(signal) - WINDOW + 1, STEP) for signal in recordings["X"]]
    recording = np.repeat(np.arange(len(starts)), [len(s) for s in starts])
    windows = [signal[s : s + WINDOW] for signal, cut in zip(recordings["X"], starts, strict=True) for s in cut]
    columns = {name: np.asarray(recordings[name], dtype=np.int64)[recording] for name in ("y", "subject", "side")}
    return {"x": np.stack(windows).astype(np.float32), **columns, "recording": recording}


def unpickled(content: bytes) -> dict[str, Any]:
    """Unpickle the mapping inside an object .npy."""
    stream = io.BytesIO(content)
    np.lib.format.read_magic(stream)
    np.lib.format.read_array_header_1_0(stream)
    # The one place that unpickles (S301): `read` has compared the hash, and only arrays can come out.
    value = _ArraysOnly(stream, encoding="latin1").load()
    mapping: dict[str, Any] = value.item()
    return mapping
