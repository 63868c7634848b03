"""The method in the docstring of `potluck.fleet` is complete and learns."""

from __future__ import annotations

import textwrap
from pathlib import Path

import potluck
from potluck import fleet

IMPORTS = """
from dataclasses import dataclass
from torch import Tensor
from potluck.fleet import Done, Params, column
from potluck.learn import sgd
from potluck.tensors import mean
"""


def test_the_example_of_the_docstring_is_a_method(tmp_path: Path) -> None:
    text = str(fleet.__doc__)
    code = text[text.index("    @dataclass") : text.index("Some field names")]
    method = tmp_path / "example.py"
    method.write_text(f'"""An example."""\n{IMPORTS}\n{textwrap.dedent(code)}', encoding="utf-8")
    run = potluck.run(
        {
            "data": {"source": "made"},
            "model": {"name": "softmax"},
            "fleet": {"devices": "pc"},
            "method": {"name": str(method)},
            "faults": {"dropout": 0.2},
            "stop": {"rounds": 10},
            "run": {"out": str(tmp_path / "runs")},
        }
    )
    accuracies = [row["mean"] for row in run.table("evaluations")]
    assert run.summary["lost_clients"] > 0
    assert accuracies[-1] > accuracies[0]
