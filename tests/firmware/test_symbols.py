"""The client as part of somebody's program: C++ reads its headers, and its names do not meet others."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from potluck.firmware.toolchain import CLIENT, host_compiler, sources

CXX = shutil.which(os.environ.get("CXX", "g++"))
SKETCH = """
#include "pl_client.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
static pl_client client;
static uint8_t arena[1024];
int main()
{
    std::memset(arena, 0, sizeof arena);
    std::memcpy(arena, arena + 512, 8);
    using namespace std;
    vector<pl_real> some(4, pl_real(2));
    pl_client_init(&client, arena, sizeof arena);
    pl_client_byte(&client, 0);
    return int(min(some[0], pl_real(0))) + int(pl_exp(0.0f)) - 1;
}
"""


@pytest.mark.skipif(CXX is None, reason="needs a C++ compiler: g++ is not on this machine")
def test_a_cpp_program_uses_the_headers_and_links(tmp_path: Path) -> None:
    top = sources()
    (tmp_path / "sketch.cpp").write_text(SKETCH)
    assert CXX is not None
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{top / 'src'}"]
    subprocess.run([CXX, *flags, "-c", "sketch.cpp", "-o", "sketch.o"], cwd=tmp_path, check=True)
    wanted = subprocess.run(["nm", "-u", "sketch.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert " pl_client_init\n" in wanted  # a C name


def test_all_names_that_a_linker_sees_have_the_prefix(tmp_path: Path) -> None:
    top = sources()
    for name in CLIENT:
        made = tmp_path / f"{name}.o"
        subprocess.run(
            [host_compiler(), "-std=c11", f"-I{top / 'src'}", "-c", str(top / "src" / f"{name}.c"), "-o", str(made)],
            check=True,
        )
        listing = subprocess.run(
            ["nm", "-g", "--defined-only", str(made)], capture_output=True, text=True, check=True
        ).stdout
        names = [line.split()[2] for line in listing.splitlines()]
        assert names
        assert all(each.startswith("pl_") for each in names), names
    assert {path.stem for path in (top / "src").glob("*.c")} == set(CLIENT)  # none is left out
