"""Errors for bad input: one sentence that names the field, what it must be and what it is, and a code.

Every refusal has a code, chosen where it is raised. A code stands for one kind of trouble and has one page,
docs/errors/PL-xxx.md, which comes with the package: `potluck explain PL-xxx` shows it.
"""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from pathlib import Path

FAMILIES = {
    "PL-1": "The experiment, its settings and the command line",
    "PL-2": "Data",
    "PL-3": "Clients and partitions",
    "PL-4": "Devices and links",
    "PL-5": "Models",
    "PL-6": "Methods",
    "PL-7": "Runs and reports",
    "PL-8": "Real machines, messages and updates",
    "PL-9": "Extras, firmware and boards",
}


class Code(Enum):
    """Every kind of refusal: its number, which never changes its meaning, and its title."""

    EXPERIMENT_FILE = "PL-101", "The experiment file cannot be read"
    UNKNOWN_SETTING = "PL-102", "Unknown setting"
    SETTING_VALUE = "PL-103", "Wrong value for a setting"
    SETTINGS_CLASH = "PL-104", "Settings that contradict each other"
    SET_FORM = "PL-105", "A --set that cannot be read"
    NOT_SAID = "PL-106", "A required value is missing"
    NEVER_ENDS = "PL-107", "A run without an end"
    PRIVACY = "PL-108", "Privacy settings for which no epsilon would hold"
    SECURE_SUM = "PL-109", "A secure sum that cannot be had"
    COMMAND = "PL-110", "Unknown command or flag"
    FLAG_VALUE = "PL-111", "Wrong value for a flag"
    OUTPUT_PLACE = "PL-112", "An output path that cannot be written"

    DATA_UNKNOWN = "PL-201", "Unknown dataset or file"
    DATA_ABSENT = "PL-202", "A public dataset is not on this machine"
    DATA_FILE = "PL-203", "The data file cannot be read"
    DATA_ARRAY = "PL-204", "An array or a column is missing or ambiguous"
    DATA_SHAPE = "PL-205", "Arrays with shapes that do not match"
    DATA_VALUE = "PL-206", "A value in the data that cannot be used"
    DATA_LABELS = "PL-207", "Labels that cannot be used"
    DATA_SUBJECTS = "PL-208", "Subjects, groups or a split that cannot be used"
    DATA_FUNCTION = "PL-209", "Your data function fails"
    TASK = "PL-210", "A task of learning that does not fit the data"

    PARTITION_ROWS = "PL-301", "Too little data for this partition"
    SERVER_ROWS = "PL-302", "The server cannot get its own rows"
    COHORT = "PL-303", "More clients asked for than there are"
    UNKNOWN_CLIENT = "PL-304", "Unknown client"

    DEVICE_UNKNOWN = "PL-401", "Unknown device, link or fleet"
    DEVICE_FILE = "PL-402", "The devices file cannot be used"
    DEVICE_FIGURE = "PL-403", "An impossible figure of a device, link or trace"
    FLEET_MIX = "PL-404", "Shares or counts of a fleet that do not add up"
    PAIRS = "PL-405", "Access points with a method that does not use them"
    NOT_FITTING = "PL-406", "No device can take part in the run"

    MODEL_UNKNOWN = "PL-501", "Unknown model"
    MODEL_SHAPE = "PL-502", "Samples that the model cannot take"
    MODEL_OWN = "PL-503", "Your model cannot be created"
    MODEL_STATEFUL = "PL-504", "A model with hidden state or its own random numbers"
    ENCODER_FILE = "PL-505", "A file of weights that cannot be used"
    MODEL_CUT = "PL-506", "A model that cannot be split or made narrower"

    METHOD_UNKNOWN = "PL-601", "Unknown method"
    METHOD_OWN = "PL-602", "Your method cannot be loaded"
    METHOD_NEEDS = "PL-603", "The experiment lacks something that the method needs"
    METHOD_TASK = "PL-604", "A method that cannot learn this task"

    RUN_ABSENT = "PL-701", "A folder without a run"
    RUN_DAMAGED = "PL-702", "A run with files that cannot be read"
    BUSY = "PL-703", "Another process uses the folder"
    RUN_STATE = "PL-704", "A run that is not far enough, or already finished"
    COMPARISON = "PL-705", "Methods or runs that cannot be compared"
    ARGUMENT = "PL-706", "The result does not have what you asked for"
    MODEL_EXPORT = "PL-707", "A model that cannot be exported"

    DEPLOY_FOLDER = "PL-801", "Files of a deployment are missing or damaged"
    DEPLOY_NAME = "PL-802", "A client name that a deployment cannot use"
    DEPLOY_SERVER = "PL-803", "A server or a process does not answer"
    PORT = "PL-804", "The port is in use"
    DEPLOY_SETTINGS = "PL-805", "Settings that only a simulation has"
    NOT_JOINED = "PL-806", "A client that cannot take part in this run"
    NOT_ALLOWED = "PL-807", "Code that the machine's owner did not allow"
    TOO_FEW = "PL-808", "Too few clients connected"
    CERTIFICATE = "PL-811", "The server's certificate is not trusted"
    FLOWER_VERSION = "PL-812", "Different versions of Flower"
    CLOCK = "PL-813", "Clocks that disagree"
    KEY = "PL-814", "The server does not accept the client's key"
    MESSAGE = "PL-821", "A message that cannot be read"
    UPDATE_SIZE = "PL-831", "An update that is too large"
    UPDATE_FORM = "PL-832", "An update with other fields or shapes than expected"
    UPDATE_FINITE = "PL-833", "An update with numbers that are not finite"
    UPDATE_EXAMPLES = "PL-834", "An update that claims more examples than its client has"
    UPDATE_REPEATED = "PL-835", "An update that answers no open task"

    EXTRA = "PL-901", "An optional package is not installed"
    TOOLCHAIN = "PL-902", "A tool for the firmware is not installed"
    FIRMWARE_FAILED = "PL-903", "The compiler or the emulator failed"
    BOARD_ADDRESS = "PL-904", "Unknown board or address"
    BOARD_MEMORY = "PL-905", "The network does not fit the board"
    BOARD_SETTINGS = "PL-906", "An experiment that boards cannot run"
    BOARD_LINE = "PL-907", "Unexpected answer from a board"

    title: str

    def __new__(cls, number: str, title: str) -> Code:
        made = object.__new__(cls)
        made._value_ = number
        made.title = title
        return made

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def of(cls, number: str) -> Code | None:
        """The code of this number, such as PL-101."""
        return next((code for code in cls if code.value == number), None)


class BadInput(ValueError):
    """Something that came from outside (a file, a flag, a setting, a client's bytes) cannot be used."""

    def __init__(self, code: Code, sentence: str) -> None:
        if not isinstance(code, Code):
            raise TypeError(f"a refusal needs one of the codes in {__name__}.Code, not {code!r}")
        super().__init__(code, sentence)
        self.add_note(f"potluck explain {code}")  # the last line of a traceback

    @property
    def code(self) -> Code:
        code: Code = self.args[0]
        return code

    @property
    def told(self) -> str:
        """The sentence with its code, for logs and for messages to other machines."""
        return f"{self} [{self.code}]"

    def __str__(self) -> str:
        return str(self.args[1])


class Missing(BadInput):
    """An optional package or a dataset is not on this machine; the message says how to get it."""


def install(*packages: str) -> str:
    """Return the command that installs packages for this Python, whichever `pip` the shell finds."""
    return shlex.join([_near(sys.executable or "python"), "-m", "pip", "install", *packages])


def install_extra(extra: str) -> str:
    """Return the command that adds an extra of Potluck; a checkout is installed from its own folder."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return install("-e", f"{_near(str(checkout))}[{extra}]")
    return install(f"potluck[{extra}]")


def _near(path: str) -> str:
    """Write a path relative to the working folder if it is below it."""
    here = Path.cwd()
    if here == here.parent or not Path(path).is_relative_to(here):
        return path
    below = str(Path(path).relative_to(here))
    return below if "/" in below or below == "." else f"./{below}"  # a bare name means another thing to pip and shells


_SLIP = 0.8  # names this much alike differ by a slip of the pen


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]", "", name.lower())


def _ends_in(option: str, plain: str) -> bool:
    """Whether the first parts of a name, written together, end in such letters: `arduino-nano-33`, `nano33`."""
    parts = re.split(r"[-_.\s]", option.lower())
    return any("".join(parts[: k + 1]).endswith(plain) for k in range(len(parts)))


def nearest(given: str, allowed: Iterable[str], like: float = 0.5) -> str | None:
    """Return the allowed name closest to the given one, or None if none is close.

    A name that ends in the given one, or whose first parts do, is close however long it is: `pi4` is `raspberry-pi-4`.
    """
    lowered = {option.lower(): option for option in allowed}
    close = difflib.get_close_matches(given.lower(), list(lowered), n=1, cutoff=like)
    if close and difflib.SequenceMatcher(None, given.lower(), close[0]).ratio() >= _SLIP:
        return lowered[close[0]]
    plain = _plain(given)
    holding = [name for name in lowered if len(plain) >= 3 and _ends_in(name, plain)]
    best = min(holding, key=lambda name: (len(name), name)) if holding else close[0] if close else None
    return None if best is None else lowered[best]


def no_file(code: Code, what: str, path: Path, where: str = "") -> BadInput:
    """Refuse a file that does not exist, and name a similar one in its folder."""
    try:
        there = [one.name for one in islice(path.parent.iterdir(), 1000)]
    except OSError:
        there = []
    close = nearest(path.name, there, like=0.7)
    hint = "." if close is None else f", did you mean {str(path.with_name(close))!r}?"
    return BadInput(code, f"{what}: there is no file {str(path)!r}{where}{hint}")


def must_be(
    code: Code, field: str, wanted: str, got: object = None, *, shown: str | None = None, fix: str = ""
) -> BadInput:
    """Refuse a value: `field: must be wanted, got value.`

    `shown` describes the value where printing it says too little, such as its shape. `fix` says what to do next.
    """
    sentence = f"{field}: must be {wanted}, got {repr(got) if shown is None else shown}."
    return BadInput(code, f"{sentence} {fix}" if fix else sentence)


def unknown(code: Code, what: str, given: object, allowed: Iterable[str]) -> BadInput:
    """Refuse an unknown name: name the nearest one and all that are allowed."""
    options = sorted(allowed)
    close = nearest(str(given), options)
    hint = f", did you mean {close!r}?" if close else "."
    return BadInput(code, f"{what}: {given!r} is not known{hint} Allowed: {', '.join(options)}.")


_TOLD = re.compile(r"(?s)(.*\S)\s*\[(?:potluck explain )?(PL-\d{3})\]\s*")


def retold(text: str, otherwise: Code) -> BadInput:
    """Make a refusal from the text of another process or machine; `otherwise` is its code if the text has none."""
    found = _TOLD.fullmatch(text)
    code = Code.of(found[2]) if found is not None else None
    return BadInput(otherwise, text.strip()) if found is None or code is None else BadInput(code, found[1])
