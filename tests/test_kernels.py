"""How kernels are loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from potluck import compiled
from potluck.compiled import pages

LOADED = """
import sys
from potluck import compiled
from potluck.compiled import pages
compiled.kernels("forward")
assert "scipy.linalg" not in sys.modules
assert "scipy.linalg.cython_blas" not in sys.modules
from numba.np import arraymath
assert arraymath._HAVE_BLAS
import scipy.linalg.cython_blas as real
assert real.__file__
"""


def test_kernels_need_no_scipy_yet_others_may_use_it() -> None:
    pytest.importorskip("scipy")
    if not compiled.ready():
        pytest.skip("kernels need the extra fast")
    subprocess.run([sys.executable, "-c", LOADED], check=True, timeout=300)


MOVED = """
import sys
import torch
from potluck import compiled
from potluck.compiled import pages
from potluck.tensors import mean, mix
models = [{"w": torch.full((40,), float(i))} for i in range(3)]
assert mean(models)["w"].tolist() == [1.0] * 40
assert mix(models[0], models[1], 0.25)["w"].tolist() == [0.25] * 40
kernel, called = compiled.kernels("merging").weighted, compiled.kernels("merging")._two
assert len(kernel.signatures) == 1
print(len(called.signatures), "numba.np.npyimpl" in sys.modules)
"""


def test_kernels_on_disk_need_neither_the_compiler_nor_what_they_call(tmp_path: Path) -> None:
    if not compiled.ready():
        pytest.skip("kernels need the extra fast")
    found = [
        subprocess.run(
            [sys.executable, "-c", MOVED],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout.split()
        for _ in range(2)
    ]
    assert found == [["1", "True"], ["0", "False"]]


def _doubled(value: int) -> int:
    return 2 * value


def test_kernels_are_read_as_numba_does_where_its_parts_have_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled.ready():
        pytest.skip("kernels need the extra fast")
    from potluck.compiled import jit

    assert jit.QUICK  # with the numba that is installed
    monkeypatch.setattr(jit, "QUICK", False)
    kernel = jit.exact(jit.INT)(_doubled)
    assert not hasattr(kernel, "declared")
    assert kernel(21) == 42


@pytest.mark.parametrize("rows", [0, 3, 1025])  # none, less than a page, and some
def test_memory_in_large_pages_is_memory(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    usual = pages._advise()
    monkeypatch.setattr(pages, "_advise", lambda: lambda *given: asked.append(given) or (usual(*given) if usual else 0))
    value = pages.room((rows, 64, 64))
    assert value.shape == (rows, 64, 64)
    assert value.is_contiguous()
    assert value.fill_(1.0).sum() == value.numel()
    assert bool(asked) == (4 * value.numel() >= pages.LEAST)
    for begin, count, _ in asked:
        assert begin % pages.PAGE == count % pages.PAGE == 0
        assert value.data_ptr() <= begin
        assert begin + count <= value.data_ptr() + 4 * value.numel()
