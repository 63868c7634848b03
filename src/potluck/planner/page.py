"""A plan as one HTML page that needs no network: the recommendation, the methods, and each kind of device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from potluck.errors import BadInput, Code
from potluck.files import write_text
from potluck.planner.costs import Joules
from potluck.planner.interval import Interval
from potluck.planner.plan import MethodPlan, Plan
from potluck.planner.words import Advice, rough, told, untold
from potluck.report.html.page import asset, palette
from potluck.report.html.parts import section, swatches
from potluck.report.html.tables import cell, table
from potluck.report.markup import Html, named, prose, tag
from potluck.units import NOTHING, number, percent, quantity

PARTS = (("h0", "training"), ("h1", "radio"), ("hg", "idle"), ("h3", "sleep"))
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE = (
    ".bar{display:block;width:100%;min-width:10rem;height:.9rem}.bar rect{fill:currentColor}"
    ".advice+dl{margin-top:.8rem}.swatch{background:currentColor}"  # the colours of the parts are colours of text
)


def write(plan: Plan, advice: Advice, path: Path) -> Path:
    """Write the page and return its path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page(plan, advice))
    except OSError as error:
        raise BadInput(
            Code.OUTPUT_PLACE, f"--out: {str(path)!r} cannot be written ({error.strerror or error})."
        ) from None
    return path


def page(plan: Plan, advice: Advice) -> str:
    title = f"A plan for {plan.clients} clients"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} – Potluck"),
        tag("style", Html(palette() + asset("page.css") + STYLE)),
    )
    facts = {
        "Data": plan.data or "sizes only",
        "Clients": f"{plan.clients:,}",
        "Model": f"{plan.model}, {plan.parameters:,} parameters",
    }
    body = tag(
        "body",
        tag(
            "header",
            tag("h1", title),
            _advice(advice),
            tag("dl", [tag("div", tag("dt", name), tag("dd", named(value))) for name, value in facts.items()]),
            tag("ul", [tag("li", prose(note)) for note in plan.notes], class_="notes"),
        ),
        tag("main", _methods(plan), [_devices(one, one.name == advice.method) for one in plan.able]),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _advice(advice: Advice) -> Html:
    rows = [
        ("Because", advice.because),
        ("Cannot be told apart", (advice.alike,)),
        ("What would change it", advice.would_change),
    ]
    parts = [
        tag("div", tag("dt", name), tag("dd", [tag("p", prose(one)) for one in said if one]))
        for name, said in rows
        if any(said)
    ]
    return tag("section", tag("h2", advice.use, id="recommendation"), tag("dl", parts), class_="advice")


def _methods(plan: Plan) -> Html:
    predicted = any(one.prediction for one in plan.able)
    head = [
        *("Method", "Rounds", "A round", "The run", "Up, per client", "Down, per client", "Energy, per client"),
        *("Of it idle", "Left out", "Straggler"),
    ]
    head += ["Accuracy at the end"] if predicted else []
    rows = [_method(one, plan, predicted) for one in plan.able]
    unable = [tag("li", named(one.name), f": {one.why_not}") for one in plan.methods if one.figures is None]
    said = "Small print: the interval in which another seed will be with a probability of 80 %."
    roughly = [tag("li", said) for said in (*(rough(one) for one in plan.able if one.rough), *untold(plan))]
    return section(
        "methods",
        "Methods",
        table("What each method costs", head, rows, words=(0, 9)),
        tag("p", said, class_="about"),
        tag("ul", [*unable, *roughly], class_="notes") if unable or roughly else None,
        folded=False,
    )


def _method(one: MethodPlan, plan: Plan, predicted: bool) -> list[Html]:
    figures, count = one.figures, max(1, plan.clients)
    assert figures is not None
    cells = [
        tag("th", named(one.name), scope="row", class_="stick method"),
        cell(f"{figures.rounds:,}"),
        cell(quantity(figures.round_seconds, "s")),
        _ranged(one.seconds, "s"),
        cell(quantity(figures.bytes_up / count, "B")),
        cell(quantity(figures.bytes_down / count, "B")),
        _ranged(one.joules.times(1 / count), "J"),
        cell(_idle(figures.joules)),
        cell(str(one.unfit)),
        tag("td", f"{figures.straggler}, {percent(figures.straggles, 0)} of the rounds"),
    ]
    return [*cells, cell(told(one))] if predicted else cells


def _devices(one: MethodPlan, opened: bool) -> Html:
    figures, day = one.figures, one.day
    assert figures is not None
    assert day is not None
    head = [
        *("Device", "Clients", "Memory", "A task", "Of it training", "Bytes a day", "Joules a day"),
        *("By cause", "Battery a day", "It lasts"),
    ]
    most = max((d.joules.total for d in day.devices), default=0.0)
    rows = []
    for cost, a_day in zip(figures.devices, day.devices, strict=True):
        fits = f"{quantity(cost.needs, 'B')} of {quantity(cost.memory, 'B')}"
        rows.append(
            [
                tag("th", named(f"{cost.device} on {cost.link}"), scope="row", class_="stick plain"),
                cell(f"{cost.clients:,}"),
                cell(fits, "does not fit" if cost.unfit else None),
                cell(quantity(cost.task_seconds, "s") if cost.tasks else NOTHING),
                cell(quantity(cost.training_seconds, "s") if cost.tasks else NOTHING),
                cell(quantity(a_day.bytes, "B"), f"at most {quantity(a_day.most_bytes, 'B')}"),
                cell(quantity(a_day.joules.total, "J"), f"at most {quantity(a_day.most_joules, 'J')}"),
                tag("td", _bar([getattr(a_day.joules, name) for _, name in PARTS], most)),
                cell("on the mains" if a_day.battery is None else percent(a_day.battery)),
                cell(NOTHING if a_day.battery_days is None else quantity(a_day.battery_days * 86400.0, "s")),
            ]
        )
    hints = tag("ul", [tag("li", prose(hint)) for hint in one.hints], class_="notes") if one.hints else None
    rounds = number(day.rounds, 3)
    each = "round" if rounds == "1" else "rounds"
    said = f"{rounds} {each} a day. What a device uses outside of the run is not counted."
    title = f"{one.name}: a day of each device"
    shown = table(title, head, rows, words=(0, 7))
    return section(
        f"devices-{one.name}", title, swatches(PARTS), shown, tag("p", said, class_="about"), hints, folded=not opened
    )


def _bar(parts: Sequence[float], most: float) -> Html:
    """Joules by what they are for, as one bar; all bars of a table have one scale."""
    at, drawn = 0.0, []
    for (css, name), value in zip(PARTS, parts, strict=True):
        width = 100 * value / most if most else 0.0
        words = f"{name}: {quantity(value, 'J')}"
        drawn.append(
            tag("rect", tag("title", words), x=round(at, 3), y=0, width=round(width, 3), height=10, class_=css)
        )
        at += width
    said = ", ".join(f"{name} {quantity(value, 'J')}" for (_, name), value in zip(PARTS, parts, strict=True))
    box = {"viewBox": "0 0 100 10", "preserveAspectRatio": "none"}
    return tag("svg", drawn, class_="bar", role="img", aria_label=said, **box)


def _idle(joules: Joules) -> str:
    return percent(joules.idle / joules.total if joules.total else 0.0, 0)


def _ranged(found: Interval, kind: str) -> Html:
    never = found.value == float("inf")
    low, high = (quantity(v, kind) if v not in (None, float("inf")) else "never" for v in (found.low, found.high))
    around = None if found.low is None else f"{low} to {high}"
    return cell("never" if never else quantity(found.value, kind), around)
