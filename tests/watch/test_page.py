"""The live page in a real Chromium: it opens, follows, scrubs, survives its server, and shows what was refused."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.browser import chromium

from .conftest import Going, Served

pytest.importorskip("starlette", reason="the live page needs `pip install potluck[dashboard]`")
playwright = pytest.importorskip("playwright.sync_api", reason="the page's tests need `pip install playwright`")
expect = playwright.expect
expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def tab(browser: playwright.Browser) -> Iterator[playwright.Page]:
    """A tab that fails its test if the page's script did, or if it asked for anything that is not on this machine."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(30_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    page.on(
        "request",
        lambda asked: (
            None if asked.url.startswith(("http://127.0.0.1:", "data:", "file:")) else wrong.append(asked.url)
        ),
    )
    yield page
    page.close()
    assert wrong == []


def scrub(tab: playwright.Page, share: float) -> None:
    tab.locator("#scrub").evaluate(
        "(bar, share) => { bar.value = share * bar.max; bar.dispatchEvent(new Event('input')); }", share
    )


def states(tab: playwright.Page, run: str = "one") -> str:
    tiles = tab.locator(".run", has_text=run).locator(".tile")
    return "".join(tiles.evaluate_all("all => all.map(one => one.dataset.a)"))


def test_it_opens_and_follows_a_run(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page
) -> None:
    run = going()
    run.round(0.35)
    tab.goto(serve(lambda: [run.folder]).address)
    expect(tab.locator("#status")).to_have_text("Watching one on made")
    expect(tab.locator(".tiles .tile[class*=q]")).to_have_count(4)
    expect(tab.locator(".run .big")).to_have_text("35.0\N{NO-BREAK SPACE}%")
    expect(tab.locator("#views h2").first).to_be_visible()
    run.round(0.55)
    expect(tab.locator(".run .big")).to_have_text("55.0\N{NO-BREAK SPACE}%")
    expect(tab.locator("#moment")).to_have_text("20\N{NO-BREAK SPACE}s of 20\N{NO-BREAK SPACE}s")
    expect(tab.locator(".run p")).to_contain_text("round 2 of 9")
    expect(tab.locator(".tiles .tile.q2")).to_have_count(4)
    run.round(0.85)
    expect(tab.locator("#views")).to_contain_text("85.0\N{NO-BREAK SPACE}%")
    run.finish()
    expect(tab.locator(".run .tag")).to_have_text("finished")


def test_the_bar_of_a_run_that_ends_by_virtual_time(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page
) -> None:
    run = going(rounds=1000, seconds=40.0)
    run.round()
    tab.goto(serve(lambda: [run.folder]).address)
    expect(tab.locator(".run progress")).to_have_attribute("value", "0.25")  # 10 of 40 s, not 1 of 1,000 rounds


def test_it_goes_back_and_forth_in_virtual_time(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page
) -> None:
    run = going()
    for accuracy in (0.1, 0.3, 0.5, 0.7):
        run.round(accuracy)
    run.finish()
    tab.goto(serve(lambda: [run.folder]).address)
    expect(tab.locator(".run .big")).to_have_text("70.0\N{NO-BREAK SPACE}%")
    scrub(tab, 0.6)  # 24 s: in the third round, while everybody trains
    expect(tab.locator(".tiles .tile[data-a=t]")).to_have_count(4)
    expect(tab.locator(".run .big")).to_have_text("30.0\N{NO-BREAK SPACE}%")
    expect(tab.locator("#views .lead")).to_have_text(
        "By 24\N{NO-BREAK SPACE}s of virtual time: fedavg 30.0\N{NO-BREAK SPACE}%."
    )
    expect(tab.locator("#live")).to_have_attribute("aria-pressed", "false")
    run.round(0.9)  # what comes meanwhile does not carry the reader away
    expect(tab.locator("#moment")).to_have_text("24\N{NO-BREAK SPACE}s of 50\N{NO-BREAK SPACE}s")
    assert states(tab) == "tttt"
    tab.locator("#live").click()
    expect(tab.locator(".run .big")).to_have_text("90.0\N{NO-BREAK SPACE}%")
    tab.locator("#scrub").focus()
    tab.keyboard.press("Home")
    expect(tab.locator(".tiles .tile[data-a=d]")).to_have_count(4)
    tab.locator("#play").click()
    expect(tab.locator("#play")).to_have_attribute("aria-label", "Pause")
    expect(tab.locator("#moment")).not_to_have_text(re.compile("^0"))
    tab.locator("#play").click()
    expect(tab.locator("#play")).to_have_attribute("aria-label", "Play")


def test_it_survives_a_restart_of_the_server(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page
) -> None:
    run = going()
    run.round(0.2)
    first = serve(lambda: [run.folder])
    tab.goto(first.address)
    expect(tab.locator(".run .big")).to_have_text("20.0\N{NO-BREAK SPACE}%")
    first.stop()
    expect(tab.locator("#status")).to_have_class("gone")
    expect(tab.locator("#status")).to_contain_text("trying again")
    run.round(0.6)
    serve(lambda: [run.folder], first.port)
    expect(tab.locator(".run .big")).to_have_text("60.0\N{NO-BREAK SPACE}%")
    expect(tab.locator("#status")).to_have_class("on")
    run.round(0.8)
    expect(tab.locator(".run .big")).to_have_text("80.0\N{NO-BREAK SPACE}%")


def test_it_tries_again_where_a_connection_is_taken_and_never_answered(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page
) -> None:
    run = going()
    run.round(0.2)
    first = serve(lambda: [run.folder])
    tab.goto(first.address)
    expect(tab.locator(".run .big")).to_have_text("20.0\N{NO-BREAK SPACE}%")
    first.stop()
    with socket.create_server(("127.0.0.1", first.port)) as mute:
        mute.settimeout(20)
        taken, _ = mute.accept()
    with taken:
        run.round(0.6)
        serve(lambda: [run.folder], first.port)
        expect(tab.locator(".run .big")).to_have_text("60.0\N{NO-BREAK SPACE}%")


def test_it_shows_a_refused_update(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page
) -> None:
    run = going()
    run.round()
    tab.goto(serve(lambda: [run.folder]).address)
    expect(tab.locator("#feed")).to_have_text("None so far.")
    run.round(refused="c0002", lost="c0000")
    expect(tab.locator("#feed .refused")).to_have_text("refused")
    expect(tab.locator("#feed")).to_contain_text("c0002numbers that are not finite")
    expect(tab.locator(".run p")).to_contain_text("1 refused, 1 lost")
    assert states(tab) == "xara"
    expect(tab.locator("#views #troubles")).to_be_visible()
    scrub(tab, 0.5)
    expect(tab.locator("#feed")).to_have_text("None so far.")


def test_several_runs_stand_beside_each_other(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page, tmp_path: Path
) -> None:
    one, two = going("one"), going("two", method="local")
    one.round(0.4)
    two.round(0.6)
    tab.goto(serve(lambda: sorted(path.parent for path in tmp_path.glob("runs/*/experiment.toml"))).address)
    expect(tab.locator(".run")).to_have_count(2)
    boxes = [panel.bounding_box() for panel in tab.locator(".run").all()]
    assert boxes[0]["y"] == boxes[1]["y"]
    expect(tab.locator("#status")).to_have_text("Watching 2 runs on made")
    going("three", method="ftl").round(0.9)
    expect(tab.locator(".run")).to_have_count(3)
    expect(tab.locator("#views .legend li[data-series]")).to_have_count(3)
    tab.locator("#views summary", has_text="Accuracy against its costs").click()
    tab.locator("#views .legend li[data-series=ftl] button").click()
    expect(tab.locator("#views g[data-series=ftl]").first).to_have_class(re.compile("off"))


def test_a_tile_opens_the_card_of_its_device(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page
) -> None:
    run = going()
    run.round(0.5)
    tab.goto(serve(lambda: [run.folder]).address)
    expect(tab.locator(".tiles .tile[class*=q]")).to_have_count(4)
    tab.locator(".tiles .tile").first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    card = tab.locator("#device .card")
    expect(card.locator("h4")).to_have_text("c0001")
    expect(card).to_contain_text("What would help")
    tab.keyboard.press("Escape")
    expect(card).not_to_be_visible()


def test_on_a_phone_nothing_sticks_out(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page
) -> None:
    run = going(clients=30)
    run.round(0.5, refused="c0003")
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.goto(serve(lambda: [run.folder]).address)
    expect(tab.locator("#views #timeline")).to_be_attached()
    assert tab.evaluate("document.documentElement.scrollWidth") == 390


def test_hostile_names_stay_text(
    going: Callable[..., Going], serve: Callable[..., Served], tab: playwright.Page
) -> None:
    run = going("<img src=x onerror=alert(1)>", clients=1)
    name = "<b>c</b><img src=x onerror=alert(2)>"
    run.names = [name]
    run.recorder.clients([(name, "<i>device", "wifi", "client", None, 30, 10)])
    run.round(0.5, refused=name)
    tab.goto(serve(lambda: [run.folder]).address)
    expect(tab.locator("#feed")).to_contain_text(name)
    expect(tab.locator("#views")).to_contain_text(name)
    tab.locator(".tiles .tile", has_text="<b>").click()
    expect(tab.locator("#device .card h4")).to_have_text(name)
    assert tab.locator("img").count() == 0
