"""Memory of a process that makes many runs. In a process of its own: the C library's settings stay for its life."""

import subprocess
import sys

import pytest

GAPS = """
import sys
from potluck.engines import freed
freed.keep()
gaps, left = [], []
for _ in range(200):
    gaps.append(bytearray(1 << 20))
    left.append(bytearray(1 << 10))  # what stays between two gaps, so that the heap cannot shrink
for block in gaps:
    block[::4096] = b"x" * 256
gaps.append(gaps)  # a circle, which only the collector finds
full = freed.resident()
del gaps
freed.give_back(1 << 40)
kept = freed.resident()
freed.give_back(1 << 20)
print(full, kept, freed.resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and sets glibc")
def test_freed_memory_is_kept_for_a_run_and_given_back_between_runs() -> None:
    done = subprocess.run([sys.executable, "-c", GAPS], capture_output=True, text=True, check=True)
    full, kept, after = (int(word) >> 20 for word in done.stdout.split())
    assert full - kept < 20
    assert full - after > 150
