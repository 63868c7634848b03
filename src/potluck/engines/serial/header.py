"""The C headers of the protocol, written from the Python records: `python -m potluck.engines.serial.header`.

Fields are copied one by one in the wire's order, never through a cast pointer, so padding and alignment do not matter.
The boards are little-endian, as the wire is.
"""

from __future__ import annotations

import re
import struct
import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from potluck.engines.serial import messages
from potluck.engines.serial.messages import INSTALL, MESSAGES, Kind, Message, Region, Trouble, form, layout

TYPES = {"B": "uint8_t", "H": "uint16_t", "I": "uint32_t", "Q": "uint64_t", "f": "float"}
WHERE = Path(__file__).parents[4] / "firmware" / "src"

TOP = """\
/* The protocol's {what}. Written from src/potluck/engines/serial/messages.py:
       python -m potluck.engines.serial.header
   A test compares the two; change the Python classes, then write this file again. */
#ifndef {guard}
#define {guard}

#include "{needed}"

PL_BEGIN
"""

BOTH: tuple[type[Message], ...] = (messages.Setup,)  # boards also write it, to flash
BOTTOM = "PL_END\n\n#endif\n"


def headers() -> dict[str, str]:
    """The files by name: constants and what installs a network; tasks and all else."""
    install = TOP.format(
        what="constants, and the records that install a network", guard="PL_INSTALL_H", needed="pl_real.h"
    )
    others = TOP.format(what="other records", guard="PL_MESSAGES_H", needed="pl_install.h")
    return {
        "pl_install.h": "\n".join([install, *_constants(), *_records(INSTALL), BOTTOM]),
        "pl_messages.h": "\n".join([others, *_records(MESSAGES[len(INSTALL) :]), BOTTOM]),
    }


def _records(kinds: tuple[type[Message], ...]) -> Iterator[str]:
    return (part for kind in kinds for part in _record(kind))


def _constants() -> Iterator[str]:
    fixed = {"VERSION": messages.VERSION, "PAYLOAD": messages.PAYLOAD, "TAIL": messages.TAIL, "ANSWER": messages.ANSWER}
    yield "enum { " + ", ".join(f"PL_{name} = {value}" for name, value in fixed.items()) + " };"
    yield f"#define PL_NO_TASK {messages.NO_TASK:#x}u\n"
    for enum, prefix in ((Kind, "PL_KIND"), (Region, "PL_REGION"), (Trouble, "PL_TROUBLE")):
        items = ", ".join(f"{prefix}_{item.name}\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{item.value}" for item in enum)
        yield "\n".join(["enum {", _wrapped(items).replace("\N{NO-BREAK SPACE}", " "), "};\n"])


def _record(kind: type[Message]) -> Iterator[str]:
    name = "pl_" + re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    size = struct.calcsize(form(kind))
    fields, at = [], 0
    for field, code in layout(kind):
        width = struct.calcsize("<" + code)
        fields.append((field, code, at, width))
        at += width
    yield "\n".join(["typedef struct {", *_members(kind), f"}} {name}; enum {{ {name.upper()}_SIZE = {size} }};"])
    if kind.KIND < messages.ANSWER or kind in BOTH:
        copies = [_copy(field, code, at, width, reading=True) for field, code, at, width in fields]
        yield "\n".join([f"static inline void {name}_read({name} *m, const uint8_t *b)", "{", *copies, "}\n"])
    if kind.KIND >= messages.ANSWER or kind in BOTH:
        copies = [_copy(field, code, at, width, reading=False) for field, code, at, width in fields]
        yield "\n".join([f"static inline void {name}_write(uint8_t *b, const {name} *m)", "{", *copies, "}\n"])


def _members(kind: type[Message]) -> Iterator[str]:
    """The fields of a record; neighbours of one type stand in one declaration."""
    for code, fields in groupby(layout(kind), key=lambda field: field[1]):
        base, length = ("char", f"[{code[:-1]}]") if code.endswith("s") else (TYPES[code], "")
        yield _wrapped(f"{base} {', '.join(name + length for name, _ in fields)};", "        ")


def _wrapped(text: str, further: str = "    ") -> str:
    return textwrap.fill(text, 110, initial_indent="    ", subsequent_indent=further)


def _copy(field: str, code: str, at: int, width: int, reading: bool) -> str:
    member = f"m->{field}" if code.endswith("s") else f"&m->{field}"
    place = f"b + {at}" if at else "b"
    to, source = (member, place) if reading else (place, member)
    return f"    pl_copy({to}, {source}, {width});"


if __name__ == "__main__":
    for name, text in headers().items():
        (WHERE / name).write_text(text)
        sys.stdout.write(f"wrote {WHERE / name}\n")
