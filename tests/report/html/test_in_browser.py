"""The report in a real Chromium: opened from a file, on a phone, on paper, and touched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.browser import chromium
from helpers.made_runs import flat, made_run, with_classes, with_clusters

from potluck import report

playwright = pytest.importorskip("playwright.sync_api", reason="the page's tests need `pip install playwright`")
expect = playwright.expect
expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[playwright.Page]:
    """A report of two methods and thirty clients; the test fails if its script did or asked for anything."""
    folder = tmp_path_factory.mktemp("report")
    names = [f"c{i:02}" for i in range(30)]
    runs = []
    for method, lift in (("clusterfl", 0.2), ("local", 0.0)):
        rounds = [{name: min(1.0, lift + i / 40 + 0.1 * step) for i, name in enumerate(names)} for step in range(3)]
        run = made_run(folder, method, rounds=rounds, tasks=[(name, "accepted", "") for name in names])
        with_classes(run, ["still", "walk"], {name: ([5, 5], [4, 4], [i % 5, 4]) for i, name in enumerate(names)})
        runs.append(run)
    with_clusters(runs[0], [{name: i % 3 for i, name in enumerate(names)}] * 3)
    path = report.write(runs, folder / "report.html")
    with chromium() as browser:
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        wrong: list[str] = []
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda said: wrong.append(said.text))
        tab.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith("file:") else None)
        tab.goto(path.as_uri())
        first = tab.locator("#recommendation, figure.first, details.section")
        assert first.nth(0).get_attribute("id") == "recommendation"  # then the picture, then the sections, folded
        assert "first" in str(first.nth(1).get_attribute("class"))
        expect(tab.locator("details.section[open]")).to_have_count(0)
        tab.locator("nav a[href='#clients']").click()
        expect(tab.locator("details.section[open]")).to_have_count(1)  # a link opens its section
        tab.evaluate("document.querySelectorAll('details.section').forEach((one) => { one.open = true; })")
        yield tab
        assert wrong == []


def test_methods_take_turns_in_tabs(page: playwright.Page) -> None:
    tabs = page.locator("section:has(#classes) .tabs")
    expect(tabs.locator(".tab:visible")).to_have_count(1)
    tabs.get_by_role("tab", name="local").click()
    expect(tabs.get_by_role("tab", name="local")).to_have_attribute("aria-selected", "true")
    expect(tabs.locator(".tab:visible")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(tabs.get_by_role("tab", name="clusterfl")).to_have_attribute("aria-selected", "true")


def test_a_method_can_be_faded(page: playwright.Page) -> None:
    button = page.locator(".legend li[data-series=local] button").first
    button.click()
    faded = page.locator("g[data-series=local]")
    for i in range(faded.count()):
        expect(faded.nth(i)).to_have_class(re.compile("off"))
    button.click()
    expect(page.locator("g.off")).to_have_count(0)


def test_a_mark_says_what_it_is(page: playwright.Page) -> None:
    mark = page.locator("section:has(#curves) svg.chart .dot").first
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    expect(page.locator("#tip")).to_have_text(re.compile(r", \d+\ss: \d"))


def test_a_device_is_found(page: playwright.Page) -> None:
    find = page.get_by_label("Find a device by its name, kind or link")
    find.fill("c27")
    expect(page.locator(".card:visible")).to_have_count(1)
    expect(page.locator(".card:visible h4")).to_have_text("c27")
    find.fill("")
    expect(page.locator(".card:visible")).to_have_count(6)


def test_clients_are_sorted_and_found(page: playwright.Page) -> None:
    """All of them: also those that are laid out only when somebody scrolls there."""
    table, first = (
        page.locator("#client-table"),
        page.locator("#client-table tbody tr th, #client-table tbody tr td").first,
    )
    everybody = table.locator("tbody tr").count()
    name = table.locator("thead th button").first
    name.click()
    ascending = first.text_content()
    name.click()
    assert first.text_content() != ascending
    find = page.get_by_label("Find a client, device or link")
    find.fill("c27")
    expect(table.locator("tbody tr")).to_have_count(1)
    find.fill("")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(table.locator("tbody tr")).to_have_count(everybody)


def test_on_a_phone_nothing_sticks_out(page: playwright.Page) -> None:
    cut = "[...document.querySelectorAll('.stacked')].filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert page.evaluate(cut) == 0  # at 1280 pixels no column of a table is cut
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate(cut) == 0  # nor on a phone
    page.set_viewport_size({"width": 1280, "height": 900})


def test_long_intervals_are_not_cut(page: playwright.Page, tmp_path: Path) -> None:
    """Two seeds have wide intervals of time, bytes and joules, at six accuracies."""
    runs = [
        made_run(tmp_path, method, seed, flat(*(0.38 + 0.005 * (2 * step + seed) for step in range(1, 60))))
        for method in ("clusterfl", "centralised_clusters", "local")
        for seed in (0, 1)
    ]
    path = report.write(runs, tmp_path / "report.html")
    tab = page.context.browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(path.as_uri())
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    cut = "all => all.filter((one) => one.scrollWidth > one.parentElement.clientWidth + 1).map((one) => one.innerText)"
    assert tab.locator("table").evaluate_all(cut) == []
    tab.close()


def test_on_paper_all_methods_and_the_worst_devices_are_shown(page: playwright.Page) -> None:
    page.emulate_media(media="print")
    expect(page.locator("section:has(#classes) .tab:visible")).to_have_count(2)
    expect(page.locator(".tabbar:visible")).to_have_count(0)
    expect(page.locator(".card:visible")).to_have_count(6)
    assert page.pdf(format="A4").startswith(b"%PDF-")
    page.emulate_media(media="screen")


def test_every_chart_has_words(page: playwright.Page) -> None:
    charts = page.locator("svg[role=img]")
    assert charts.count() >= 10
    assert all(
        len(label) > 40 for label in charts.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    )


def test_headings_and_names_are_in_order(page: playwright.Page) -> None:
    """What a screen reader goes by: one first heading, no level left out, no id twice, a name for every control."""
    levels = page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(one => Number(one.tagName[1]))")
    assert levels.count(1) == 1
    ids = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(set(ids)) == len(ids)
    nameless = page.locator("button, input").evaluate_all(
        "all => all.filter(one => !(one.textContent.trim() || one.getAttribute('aria-label'))).length"
    )
    assert nameless == 0
