"""What a client may say: one strict schema for each kind of answer.

Every head of a client passes here before anything else sees it. Numbers are bounded and finite, texts are short and
printable, unknown fields are refused. What fails raises BadInput with one sentence, which the run counts and shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from potluck.engines.flower.protocol import PROTOCOL, Envelope
from potluck.errors import BadInput, Code, retold
from potluck.fleet import ClientId, Profile

MOST_CLASSES = 1000  # names of labels of one client
MOST_TEXT = 200  # characters of a name or a path
MOST_REASON = 500  # characters of a reason that a client gives
AP_SUFFIX = "-ap"


@dataclass(frozen=True)
class Registered:
    """What the operator registered for a key. None: nothing, and the client is taken at its word, within bounds."""

    rows: int | None = None  # most rows, of training, validation and test together
    classes: tuple[str, ...] | None = None


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be printable text")
    return text


Text = Annotated[str, Field(max_length=MOST_TEXT), AfterValidator(_printable)]
Name = Annotated[str, Field(min_length=1, max_length=MOST_TEXT), AfterValidator(_printable)]
Rows = Annotated[int, Field(ge=0, le=10**9)]
Bytes = Annotated[int, Field(ge=0, le=1 << 50)]
Axis = Annotated[int, Field(ge=1, le=10**6)]
Share = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]  # right answers, summed losses
Pair = Annotated[list[Share], Field(min_length=2, max_length=2)]


class _Word(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Card(_Word):
    """One client in the answer to a hello."""

    name: Name
    kind: Literal["client", "device", "access-point"]
    partner: Name | None
    device: Name
    link: Name
    memory: Bytes | None
    storage: Bytes | None
    macs_per_second: Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)] | None
    train: Rows
    test: Rows
    valid: Rows
    shape: Annotated[list[Axis], Field(min_length=1, max_length=8)]
    classes: Annotated[list[Text], Field(min_length=1, max_length=MOST_CLASSES)]
    times: bool
    lengths: bool

    @property
    def profile(self) -> Profile:
        return Profile(
            device=self.device,
            link=self.link,
            samples=self.train,
            kind=self.kind,
            partner=self.partner,
            memory=self.memory,
            macs_per_second=self.macs_per_second,
            storage=self.storage,
        )


class Greeting(_Word):
    """The answer to a hello: a client, or a device and its access point."""

    kind: Literal["hello"]
    protocol: int
    clients: Annotated[list[Card], Field(min_length=1, max_length=2)]
    versions: Annotated[dict[Text, Text], Field(max_length=20)] = {}


class Joined(_Word):
    """The answer to a join."""

    kind: Literal["join"]
    joined: Literal[True]


class Answer(_Word):
    """The answer to a task: which leg of which ticket is done. The last leg brings a body."""

    kind: Literal["task"]
    client: Name
    ticket: Name
    leg: Annotated[int, Field(ge=0, le=10**6)]
    worked: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0  # seconds, by the client's own clock
    handed: Annotated[int, Field(ge=0, le=1 << 50)] = 0  # bytes that it gave its partner


class Scored(_Word):
    """The answer to an evaluate: right answers and summed losses on the client's test rows."""

    kind: Literal["evaluate"]
    client: Name
    samples: Rows
    right: Share | None = None
    loss: Share | None = None
    shared: Share | None = None  # right answers of the shared model
    received: Pair | None = None  # right answers and loss of the model that the server would send
    own: Pair | None = None  # the same of the model as training left it
    kept: Annotated[str, Field(max_length=1000), AfterValidator(_printable)] | None = None  # where its model is


class Secured(_Word):
    """The answer to one step of a secure sum; its bytes are in the body."""

    kind: Literal["secure"]
    client: Name
    sum: Name
    step: Literal["keys", "shares", "masked", "opened"]


W = TypeVar("W", bound=_Word)


def read(kind: type[W], head: Mapping[str, Any]) -> W:
    """Read a head as an answer of this kind. A refusal in it, or anything else, raises BadInput."""
    if "refused" in head:
        raise retold(reason(head["refused"]), Code.NOT_JOINED)
    try:
        return kind.model_validate(dict(head))
    except Exception as error:
        raise BadInput(Code.MESSAGE, _sentence(error)) from None


def _sentence(error: Exception) -> str:
    """What is wrong with a head. Python itself refuses to print some numbers."""
    try:
        assert isinstance(error, ValidationError)
        first = error.errors(include_url=False)[0]
        where = reason(".".join(str(part) for part in first["loc"]))[:MOST_TEXT]
        wanted = reason(first["msg"].replace("Input should be", "must be"))
        return f"{where}: {wanted}, got {reason(repr(first['input'])[:80])}."
    except Exception:
        return f"message: it cannot be read ({type(error).__name__})."


def reason(given: Any) -> str:
    """A text from a client that a log can hold: one line, printable, not longer than MOST_REASON."""
    text = given if isinstance(given, str) else f"a reason that is no text ({type(given).__name__})"
    cut = text[: 2 * MOST_REASON]
    line = "".join(sign if sign.isprintable() else " " if sign.isspace() else "?" for sign in cut)
    line = " ".join(line.split())
    return line if len(line) <= MOST_REASON else line[: MOST_REASON - 3] + "..."


def greeting(
    head: Mapping[str, Any], registered: str, pairs: bool, known: Callable[[ClientId], Registered]
) -> list[Card]:
    """The clients of a machine, checked against its name and against what the operator registered for its key."""
    if "refused" not in head and head.get("protocol") != PROTOCOL:
        given = head.get("protocol")
        got = given if isinstance(given, int) and abs(given) < 10**9 else "another"
        raise BadInput(Code.NOT_JOINED, f"its protocol must be {PROTOCOL}, got {got}; update potluck on that machine.")
    cards = read(Greeting, head).clients
    own = cards[0].name
    if registered and own != registered:
        raise BadInput(Code.NOT_JOINED, f"it claims the name {own!r} but is registered as {registered!r}.")
    _one_machine(cards, pairs)
    for card in cards:
        _plausible(card, known(own))
    return cards


def _one_machine(cards: list[Card], pairs: bool) -> None:
    """A machine is one client, or a device and its access point, which are partners."""
    seen = [(card.name, card.kind, card.partner) for card in cards]
    name = cards[0].name
    point = f"{name}{AP_SUFFIX}"
    both = [(name, "device", point), (point, "access-point", name)]
    if seen not in ([(name, "client", None)], both):
        told = ", ".join(f"{one} ({kind}, partner {partner})" for one, kind, partner in seen)
        raise BadInput(Code.NOT_JOINED, f"clients: must be {name!r} alone or with {point!r}, got {told[:MOST_TEXT]}.")
    if len(cards) > 1 and not pairs:
        raise BadInput(Code.PAIRS, "the method works with devices alone; start the client without --access-point.")


def _plausible(card: Card, known: Registered) -> None:
    rows = card.train + card.test + card.valid
    if known.rows is not None and rows > known.rows:
        raise BadInput(Code.NOT_JOINED, f"{card.name}: must have at most {known.rows} rows as registered, got {rows}.")
    if len(set(card.classes)) < len(card.classes):
        raise BadInput(Code.NOT_JOINED, f"{card.name}: its labels must differ from each other.")
    if card.kind == "access-point" and rows:
        raise BadInput(Code.NOT_JOINED, f"{card.name}: an access point has no rows, got {rows}.")
    strange = sorted(set(card.classes) - set(known.classes)) if known.classes is not None else []
    if strange:
        raise BadInput(Code.NOT_JOINED, f"{card.name}: has the label {strange[0]!r}, which was not registered.")


def scores(head: Mapping[str, Any], client: ClientId, tests: int) -> Scored:
    """A client's scores: its own, with no more right answers than it has test rows."""
    found = read(Scored, head)
    if found.client != client:
        raise BadInput(Code.MESSAGE, f"client: must be {client!r}, got {found.client!r}.")
    if tests and (found.right is None or found.loss is None):
        raise BadInput(Code.MESSAGE, "right: must be there with loss, got nothing.")
    pairs = [pair[0] for pair in (found.received, found.own) if pair is not None]
    most = max(found.right or 0.0, found.shared or 0.0, *pairs, 0.0)
    if most > tests:
        raise BadInput(Code.MESSAGE, f"right: must be at most {tests}, its test rows, got {most:g}.")
    return found


def secured(said: Envelope, asked: Mapping[str, Any], client: ClientId) -> bytes:
    """The body of an answer to a step of a secure sum."""
    word = read(Secured, said.head)
    if (word.client, word.sum, word.step) != (client, asked["sum"], asked["step"]):
        raise BadInput(Code.MESSAGE, f"secure: must answer {asked['step']} of this sum for {client}.")
    return said.body
