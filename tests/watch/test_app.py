"""The server of the page, asked over its socket: what it tells, whom it answers, and what it refuses."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from potluck.errors import BadInput

from .conftest import Going, Served

app = pytest.importorskip("potluck.watch.app", reason="the live page needs `pip install potluck[dashboard]`")


def get(address: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=20) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


@pytest.fixture
def page(going: Callable[..., Going], serve: Callable[..., Served]) -> tuple[str, Going]:
    run = going()
    run.round(0.4, refused="c0001")
    run.round(0.8)
    return serve(lambda: [run.folder]).address, run


def test_the_page_is_whole_and_from_here(page: tuple[str, Going]) -> None:
    address, _ = page
    status, text, headers = get(address)
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    for name in ("watch.css", "watch.js"):
        assert f'"{name}"' in text
        status, body, _ = get(address + name)
        assert status == 200
        assert "://" not in body
    assert "://" not in text


def test_what_runs_look_like_at_a_moment(page: tuple[str, Going]) -> None:
    address, run = page
    name = quote(str(run.folder), safe="")
    assert json.loads(get(f"{address}moment?run={name}&at=8")[1])["tiles"] == "araa"
    assert [client["name"] for client in json.loads(get(f"{address}roster?run={name}")[1])] == run.names
    early, late = (get(f"{address}views{query}")[1] for query in ("?at=12", ""))
    assert "By 12\N{NO-BREAK SPACE}s of virtual time: fedavg 40.0\N{NO-BREAK SPACE}%." in early
    assert "as of that moment" in early
    assert "80.0\N{NO-BREAK SPACE}%" in late
    for title in ("Clients by class", "Clusters over time", "The fleet over time", "numbers that are not finite"):
        assert title in late
    card = get(f"{address}card?run={name}&client=c0001")[1]
    assert "pixel-6 on wifi" in card
    assert "1 of 2 updates did not count (numbers that are not finite)." in card


def test_the_stream_says_where_runs_are_and_when_that_changes(page: tuple[str, Going]) -> None:
    address, run = page
    with urllib.request.urlopen(f"{address}events", timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")

        def next_heads() -> list[dict[str, object]]:
            while True:
                line = stream.readline().decode()
                if line.startswith("data: "):
                    found: list[dict[str, object]] = json.loads(line.removeprefix("data: "))
                    return found

        (head,) = next_heads()
        assert (head["round"], head["refused"], head["accuracy"]) == (2, 1, 0.8)
        run.round(0.9)
        (head,) = next_heads()
        assert (head["round"], head["virtual"]) == (3, 30.0)


def test_bad_questions_are_refused_in_a_sentence(page: tuple[str, Going]) -> None:
    address, run = page
    name = quote(str(run.folder), safe="")
    for query, said in (
        ("moment?run=/etc", "run: '/etc' is not known"),
        (f"moment?run={name}&at=soon", "at: must be a virtual time of 0 seconds or more, got 'soon'."),
        (f"moment?run={name}&at=nan", "must be a virtual time of 0 seconds or more"),
        (f"moment?run={name}&at=-1", "must be a virtual time of 0 seconds or more"),
        (f"card?run={name}&client=nobody", "client: 'nobody'"),
    ):
        status, text, _ = get(address + query)
        assert status == 400, query
        assert said in text
    assert get(f"{address}../../etc/passwd")[0] == 404
    assert get(f"{address}nothing")[0] == 404


def test_only_this_machine_under_its_own_name(page: tuple[str, Going]) -> None:
    """A page elsewhere that points a name of its own at 127.0.0.1 gets nothing."""
    address, _ = page
    assert get(address, Host="evil.example")[0] == 400
    assert get(address, Host="localhost")[0] == 200
    assert address.startswith("http://127.0.0.1:")
    assert app.loopback("127.0.0.2")
    assert app.loopback("::1")
    assert not app.loopback("0.0.0.0")


def test_runs_on_unlike_data_have_sections_of_their_own(
    going: Callable[..., Going], serve: Callable[..., Served]
) -> None:
    one, two = going("one"), going("two")
    text = (two.folder / "experiment.toml").read_text().replace('source = "made"', 'source = "uci_har"')
    (two.folder / "experiment.toml").write_text(text)
    status, said, _ = get(f"{serve(lambda: [one.folder, two.folder]).address}views")
    assert status == 200
    for source in ("made", "uci_har"):
        assert f"<summary><b>{source}</b> (1 run)</summary>" in said


def test_a_port_that_is_taken_is_refused(page: tuple[str, Going]) -> None:
    port = int(page[0].rstrip("/").rpartition(":")[2])
    with pytest.raises(BadInput, match=f"--port: 127.0.0.1:{port} cannot be used"):
        app.server(list, "127.0.0.1", port)


def test_runs_that_begin_later_are_found(
    going: Callable[..., Going], serve: Callable[..., Served], tmp_path: Path
) -> None:
    address = serve(lambda: sorted(path.parent for path in tmp_path.glob("runs/*/experiment.toml"))).address
    with urllib.request.urlopen(f"{address}events", timeout=20) as stream:
        lines = (line.decode() for line in stream)
        assert next(line for line in lines if line.startswith("data: ")) == "data: []\n"
        going("later").round()
        told = [json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))]
        while not told[-1] or told[-1][0]["round"] != 1:
            told.append(json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: ")))
        assert told[-1][0]["name"] == "later"
