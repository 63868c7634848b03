"""How kernels are loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from potluck import compiled

LOADED = """
import sys
from potluck import compiled
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
