"""A graph as C99: one header and one source file with the weights, the standardisation and the inference.

No heap, no other library than libm. Values between operations share one static buffer.
"""

from __future__ import annotations

import re
from importlib import resources
from math import prod
from typing import Any

from torch import Tensor

from potluck.export.models.graph import Graph, Op
from potluck.tasks import Ordinal, Task

NEEDS = {  # operations in terms of others
    "gru": ("linear", "logistic"), "lstm": ("linear", "logistic"), "rnn": ("linear",), "cfc": ("linear", "logistic"),
    "act": (), "sigmoid": ("logistic",), "step": ("copy",), "join": ("copy",), "permute": ("move_last",), "reshape": (),
}  # fmt: skip
ROWS = {"gru": 7, "lstm": 10, "rnn": 3}  # rows of `hidden` numbers as work space
PER_LINE = 8
_MARK = re.compile(r"/\*\*\* (\w+) \*\*\*/\n")


def identifier(name: str) -> str:
    """A client's name as a C name."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain and not plain[0].isdigit() else f"m_{plain}"


def operations() -> dict[str, str]:
    """The C text of each operation, in an order in which each finds what it needs."""
    text = resources.files(__package__).joinpath("operations.c").read_text(encoding="utf-8")
    parts = _MARK.split(text)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


class _Memory:
    """Places in the shared buffer: a value keeps its place until its last reader is done."""

    def __init__(self, graph: Graph) -> None:
        reading = ((n, at) for n, op in enumerate(graph.ops) if op.kind != "reshape" for at in op.inputs)
        self.last = {_root(graph, at): n for n, at in reading}
        self.taken: dict[int, tuple[int, int]] = {}
        self.size = 0

    def place(self, value: int, count: int, now: int) -> int:
        self.taken = {key: span for key, span in self.taken.items() if self.last.get(key, now) >= now}
        at = 0
        for start, end in sorted(self.taken.values()):
            if at + count <= start:
                break
            at = max(at, end)
        self.taken[value] = (at, at + count)
        self.size = max(self.size, at + count)
        return at

    def release(self, value: int) -> None:
        self.taken.pop(value, None)


def c_files(graph: Graph, name: str, about: dict[str, str], task: Task | None = None) -> tuple[str, str]:
    """Return the header and the source. Without a task, it is a classifier."""
    memory, tables, lines, used = _Memory(graph), [], [], set()
    where = {0: "x"}
    final = len(graph.ops) - 1
    for n, op in enumerate(graph.ops[1:], start=1):
        if op.kind == "reshape":  # the same numbers in the same order
            where[n] = where[op.inputs[0]]
            continue
        given = {key: f"{key}_{n}" for key in op.weights}
        tables += [_array(given[key], value) for key, value in op.weights.items()]
        where[n] = "scores" if n == final else f"v + {memory.place(n, prod(op.shape), n)}"
        work = _work(op, graph)
        place = f"v + {memory.place(-1, work, n)}" if work else ""
        call, functions = _call(graph, op, [where[at] for at in op.inputs], where[n], given, place)
        memory.release(-1)
        lines.append(call)
        used |= functions
    code = "\n".join(text for key, text in operations().items() if key in used)
    values = {
        "name": name, "upper": name.upper(), "about": "\n".join(f"   {k}: {v}" for k, v in sorted(about.items())),
        "inputs": prod(graph.ops[0].shape), "outputs": prod(graph.ops[-1].shape), "shape": _sizes(graph.ops[0].shape),
        "work": max(1, memory.size), "tables": "\n".join(tables), "lines": "\n".join(f"    {one}" for one in lines),
        "code": code,
    }  # fmt: skip
    chooses = CLASS if task is None or task.has_classes else LEVEL if isinstance(task, Ordinal) else None
    values["count"], values["each"] = ("CLASSES", "class") if chooses is CLASS else ("OUTPUTS", "output")
    declared, defined = (text.format(**values) for text in chooses) if chooses else ("", "")
    return HEADER.format(**values, predict=declared), SOURCE.format(**values, predict=defined)


def _root(graph: Graph, at: int) -> int:
    """The operation whose memory a reshaped value lies in."""
    while graph.ops[at].kind == "reshape":
        at = graph.ops[at].inputs[0]
    return at


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _array(name: str, value: Tensor) -> str:
    numbers = [_float(number) for number in value.reshape(-1).tolist()] or ["0.0f"]
    rows = [", ".join(numbers[k : k + PER_LINE]) for k in range(0, len(numbers), PER_LINE)]
    return f"static const float {name}[{len(numbers)}] = {{\n    " + ",\n    ".join(rows) + "};"


def _float(number: float) -> str:
    text = f"{number:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _work(op: Op, graph: Graph) -> int:
    if op.kind in ROWS:
        return ROWS[op.kind] * op.shape[1]
    if op.kind == "cfc":
        backbone, inside = op.weights["backbone"].shape
        return int(inside + op.weights["first"].shape[0] + backbone + 3 * op.shape[0])
    return 0


def _call(graph: Graph, op: Op, x: list[str], y: str, w: dict[str, str], work: str) -> tuple[str, set[str]]:
    """The C statement of an operation, and the functions that it needs."""
    s: Any = op.settings
    shape, first = op.shape, graph.shape(op.inputs[0])
    n = prod(shape)
    inner = prod(shape[1:])
    given = ", ".join(w.values())
    kind = op.kind
    match kind:
        case "divide":
            text = f"divide({x[0]}, {y}, {n}, {_float(s['by'])});"
        case "standardise":
            channels, inside = shape[s["axis"]], prod(shape[s["axis"] + 1 :])
            text = f"standardise({x[0]}, {y}, {n}, {channels}, {inside}, {given});"
        case "affine":
            text = f"affine({x[0]}, {y}, {shape[0]}, {inner}, {given});"
        case "group_norm":
            text = f"group_norm({x[0]}, {y}, {shape[0]}, {inner}, {s['groups']}, {_float(s['eps'])}, {given});"
        case "act":
            kind = {"tanh": "tanh_all"}.get(s["name"], s["name"])
            text = f"{kind}({x[0]}, {y}, {n});"
        case "apart":
            text = f"apart({x[0]}, {x[1]}, {y}, {prod(first)});"
        case "add":
            text = f"add({x[0]}, {x[1]}, {y}, {n});"
        case "join":
            half = prod(first)
            text = f"copy({x[0]}, {y}, {half}); copy({x[1]}, {y} + {half}, {n - half});"
        case "step":
            text = f"copy({x[0]} + {s['at'] * n}, {y}, {n});"
        case "permute":
            channels = first[-1]  # the last axis comes first; the others keep their order
            text = f"move_last({x[0]}, {y}, {prod(first) // channels}, {channels});"
        case "linear":
            text = f"linear({x[0]}, {y}, {prod(first)}, {n}, {given});"
        case "conv":
            pairs = (tuple(op.weights["weight"].shape[2:]), s["stride"], s["padding"])
            listed = ", ".join(f"{{{a}, {b}}}" for a, b in pairs)
            text = (
                f"conv({x[0]}, {y}, &(const conv_sizes){{{', '.join(map(str, (*first, *shape)))}, {listed}, "
                f"{s['groups']}}}, {given});"
            )
        case "pool":
            text = f"pool({x[0]}, {y}, {', '.join(map(str, (*first, *s['size'])))});"
        case "mean":
            text = f"mean({x[0]}, {y}, {n}, {prod(first[1:])});"
        case "softmax":
            text = f"softmax({x[0]}, {y}, {n});"
        case "gru" | "lstm" | "rnn":
            text = f"{kind}({x[0]}, {y}, {first[0]}, {first[1]}, {shape[1]}, {int(s['back'])}, {given}, {work});"
        case "cfc":
            joined, backbone = op.weights["first"].shape[0], op.weights["backbone"].shape[0]
            direct = int(op.weights["last"].shape[1] != joined)
            sizes = (*first, shape[0], backbone, joined, direct, int(s["silu"]), int(s["gated"]))
            text = f"cfc({x[0]}, {y}, {', '.join(map(str, sizes))}, (const float *const[]){{{given}}}, {work});"
        case _:
            raise AssertionError(kind)
    return text, {kind, *NEEDS.get(kind, NEEDS.get(op.kind, ()))}


HEADER = """/* A model trained with Potluck.
{about}
*/
#ifndef {upper}_H
#define {upper}_H

#ifdef __cplusplus
extern "C" {{
#endif

enum {{ {upper}_INPUTS = {inputs}, {upper}_{count} = {outputs} }};

/* x: one raw sample, {shape}, row by row; the standardisation is inside. scores: one number per {each}.
   Not for two threads at once: both would use the same buffer. */
void {name}_scores(const float x[{upper}_INPUTS], float scores[{upper}_{count}]);
{predict}
#ifdef __cplusplus
}}
#endif

#endif
"""
SOURCE = """/* A model trained with Potluck.
{about}
*/
#include "{name}.h"

#include <math.h>

{tables}

{code}
static float v[{work}];

void {name}_scores(const float x[{upper}_INPUTS], float scores[{upper}_{count}]) {{
{lines}
}}
{predict}"""
CLASS = (
    "int {name}_predict(const float x[{upper}_INPUTS]); /* the class with the highest score */\n",
    """
int {name}_predict(const float x[{upper}_INPUTS]) {{
    float scores[{upper}_CLASSES];
    int best = 0;
    {name}_scores(x, scores);
    for (int i = 1; i < {upper}_CLASSES; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}}
""",
)
LEVEL = (
    "int {name}_predict(const float x[{upper}_INPUTS]); /* the level, from 0 */\n",
    """
int {name}_predict(const float x[{upper}_INPUTS]) {{
    float scores[{upper}_OUTPUTS];
    int level = 0;
    {name}_scores(x, scores);
    for (int i = 0; i < {upper}_OUTPUTS; i++) level += scores[i] > 0.5f;
    return level;
}}
""",
)
