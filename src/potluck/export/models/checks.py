"""Compare an exported model with PyTorch, on the same samples."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.export.models.whole import raw_shape
from potluck.runs.results import Personal

SAMPLES = 16
CLOSE = 1e-3  # of the largest score; float32 sums in another order differ by about a millionth
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Werror")
MAIN = """#include <stdio.h>
#include "{name}.h"
int main(void) {{
    static float x[{upper}_INPUTS], scores[{count}];
    while (fread(x, sizeof x, 1, stdin) == 1) {{
        {name}_scores(x, scores);
        if ({predicted} < 0 || fwrite(scores, sizeof scores, 1, stdout) != 1) return 1;
    }}
    return 0;
}}
"""

Floats = NDArray[np.float32]


def samples(one: Personal) -> Floats:
    """Samples of the size that the model expects, the same in each call."""
    shape = (SAMPLES, *raw_shape(one))
    drawn = keys.normal(keys.key("export", one.client), shape).numpy().astype(np.float32)
    if one.about["bytes"]:
        return np.asarray(np.clip(128 + 50 * drawn, 0, 255).round(), dtype=np.float32)
    if one.scale is None:
        return drawn
    mean, factor = (part.numpy() for part in one.scale)
    if one.about["kind"] == "image" and not one.about["channels_last"]:
        mean, factor = mean[:, None, None], factor[:, None, None]
        drawn = drawn.reshape(SAMPLES, *one.model.shape)
    return np.asarray(mean + drawn / factor, dtype=np.float32).reshape(shape)


def difference(one: Personal, x: Floats, found: Any) -> float:
    """The largest difference to PyTorch's scores. What is too large raises BadInput."""
    wanted = one.scores(x)
    most = float(np.abs(wanted - np.asarray(found, dtype=np.float32)).max())
    limit = CLOSE * max(1.0, float(np.abs(wanted).max()))
    if not most <= limit:
        raise BadInput(
            Code.MODEL_EXPORT,
            f"export: the scores of {one.client!r} must be PyTorch's to {limit:.1e}, got a difference of {most:.1e}.",
        )
    return most


def run_onnx(data: bytes, x: Floats, output: str = "scores") -> Any:
    """Scores, or another output, by ONNX Runtime, or by ONNX's own interpreter where that is not installed."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(data).run([output], {"x": x})[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run([output], {"x": x})[0]


def run_c(folder: Path, name: str, x: Floats) -> Any:
    """Scores by the C code, compiled for this machine; None without a compiler."""
    compiler = next((found for one in COMPILERS if (found := shutil.which(one))), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as place:
        main, program = Path(place) / "main.c", Path(place) / "program"
        header, upper = (folder / f"{name}.h").read_text(encoding="utf-8"), name.upper()
        count = f"{upper}_CLASSES" if f"{upper}_CLASSES" in header else f"{upper}_OUTPUTS"
        predicted = f"{name}_predict(x)" if f"{name}_predict" in header else "0"
        main.write_text(MAIN.format(name=name, upper=upper, count=count, predicted=predicted), encoding="utf-8")
        words = [compiler, *FLAGS, f"-I{folder}", str(main), str(folder / f"{name}.c"), "-o", str(program), "-lm"]
        built = subprocess.run(words, capture_output=True, text=True)
        if built.returncode:
            raise BadInput(Code.MODEL_EXPORT, f"export: {compiler} refuses {name}.c ({built.stderr.strip()[:300]}).")
        ran = subprocess.run([str(program)], input=x.tobytes(), capture_output=True)
    if ran.returncode:
        raise BadInput(Code.MODEL_EXPORT, f"export: the program of {name}.c ended with {ran.returncode}.")
    return np.frombuffer(ran.stdout, dtype=np.float32).reshape(len(x), -1)
