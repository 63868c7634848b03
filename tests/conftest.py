"""Shared by all tests: one thread, quick hypothesis, small fleets made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)
settings.register_profile(
    "potluck", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("potluck")


@pytest.fixture(scope="session")
def shared_datasets() -> Path:
    """The optional real data; tests that need it say so and are skipped without it."""
    for candidate in (os.environ.get("POTLUCK_DATA"), Path(__file__).parents[2] / "shared" / "datasets"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    pytest.skip("needs the public datasets: set POTLUCK_DATA or put them at ../shared/datasets")
