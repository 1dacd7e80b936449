"""Pages of messages, downloads, the live view: what they show, refuse and hide."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from tests.checkpoints.conftest import Topic
from tests.ui.conftest import HOSTILE, PLACE, Client, World, application
from tests.ui.test_pages import assert_harmless

from streamfactory.engines.search.browsing import Limits
from streamfactory.ui import feeds, message_values, messages
from streamfactory.wiring.streams.opening import open_sink

LITERAL = "literal-hunter2"


def offsets(text: str) -> list[tuple[int, int]]:
    """Partition and offset of each row of a table of messages."""
    body = (
        text.split("<tbody>")[1].split("</tbody>", maxsplit=1)[0]
        if "<tbody>" in text
        else ""
    )
    found = []
    for row in body.split("<tr>")[1:]:
        partition = int(row.split('<td class="n">')[1].split("<")[0])
        found.append((partition, int(row.split("offset=")[1].split('"')[0])))
    return found


def link(text: str, name: str) -> str:
    """The address of a link."""
    before = text.split(f">{name}</a>", maxsplit=1)[0]
    return before.rsplit('href="', 1)[1].split('"')[0].replace("&amp;", "&")


def test_pages_of_all_partitions_meet(client: Client) -> None:
    newest = client.text("/messages", stream="clicks", count=6)
    assert offsets(newest) == [(0, 8), (0, 9), *((1, at) for at in range(4))]
    earlier = client.text(link(newest, "Earlier"))
    assert offsets(earlier) == [(0, at) for at in range(2, 8)]
    assert offsets(client.text(link(earlier, "Later"))) == offsets(newest)
    first = client.text(link(earlier, "Earlier"))
    assert offsets(first) == [(0, 0), (0, 1)]
    assert ">Earlier</a>" not in first


def test_a_place_can_be_chosen(client: Client) -> None:
    how = {"stream": "clicks", "direction": "forward", "count": 3}
    found = client.text("/messages", **how, **{"from": "1=2", "partition": "1:clicks"})
    assert offsets(found) == [(1, 2), (1, 3)]
    found = client.text("/messages", **how, **{"from": "9"})
    assert offsets(found) == [(0, 9)]
    for wrong in ("never", "0=", "{", "1=2 1=3", "-5"):
        page = client.get("/messages", **how, **{"from": wrong})
        assert page.status_code == 400, wrong
    assert client.get("/messages", stream="nobody").status_code == 404


def test_a_search_shows_what_matches_and_how_far_it_came(client: Client) -> None:
    found = client.text(
        "/messages", stream="clicks", where='_partition = 1 AND "offset" > 1', count=9
    )
    assert offsets(found) == [(1, 2), (1, 3)]
    assert "searched back to offset 0, from 10" in found
    page = client.get("/messages", stream="clicks", where="id =")
    assert page.status_code == 400
    assert "syntax error" in page.get_data(as_text=True)


def test_hostile_messages_are_shown_harmlessly(small: World, client: Client) -> None:
    small.letters(HOSTILE)
    texts = [client.text("/messages", stream="letters")]
    texts += [
        client.text("/message", stream="letters", topic="letters", offset=at)
        for at in range(len(HOSTILE))
    ]
    for text in texts:
        assert_harmless(text)
    assert "0xfffe00" in texts[0]
    huge = texts[1 + list(HOSTILE).index("huge")]
    assert "x" * 1000 in huge
    assert "(3,000,000 bytes)" in huge
    assert len(huge) < 2 * message_values.MOST_VALUE


def test_a_message_that_is_not_there_is_refused(client: Client) -> None:
    page = client.get("/message", stream="clicks", topic="clicks", offset=99)
    assert page.status_code in (200, 400)
    assert "99" in page.get_data(as_text=True)
    page = client.get("/message", stream="clicks", topic="x", offset=0)
    assert "does not exist" in page.get_data(as_text=True)


def test_downloads_have_the_rows(client: Client) -> None:
    how = {"stream": "clicks", "from": "earliest", "direction": "forward"}
    page = client.get("/download", **how, format="json")
    rows = [json.loads(line) for line in page.get_data(as_text=True).splitlines()]
    assert len(rows) == 14
    assert rows[0] == {"id": 0, "_topic": "clicks", "_partition": 0, "_offset": 0}
    named = "attachment; filename*=UTF-8''clicks.jsonl"
    assert page.headers["Content-Disposition"] == named
    table = csv.read_csv(
        pa.BufferReader(client.get("/download", **how, format="csv").data)
    )
    assert table.num_rows == 14
    content = client.get("/download", **how, format="parquet").data
    assert parquet.read_table(pa.BufferReader(content)).num_rows == 14
    assert client.get("/download", **how, format="exe").status_code == 400


def test_a_download_that_a_limit_ended_is_named_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "DOWNLOAD", Limits(messages=3))
    page = client.get("/download", stream="clicks", format="csv")
    assert "clicks.part.csv" in page.headers["Content-Disposition"]
    assert len(page.data.splitlines()) == 4


@pytest.fixture
def leaky(small: World, monkeypatch: pytest.MonkeyPatch) -> Topic:
    """A stream whose rows have the secret of its configuration."""
    monkeypatch.setenv("PLANTED", LITERAL)
    made = Topic(small.folder / "topics", "leaky")
    made.file(small.catalogue, **{"checkpoint.location": "kept/${env:PLANTED}"})
    with open_sink(made.options) as sink:
        rows = {
            "text": [f"see {LITERAL} here", "other"],
            "octets": [LITERAL.encode(), b"x"],
            "inner": [{"a": [LITERAL]}, {"a": ["x"]}],
        }
        sink.put(pa.table(rows), writer_id="w", epoch=0)
    return made


def test_no_door_shows_or_tells_a_secret(leaky: Topic, client: Client) -> None:
    del leaky
    how = {"stream": "leaky", "from": "earliest", "direction": "forward"}
    texts = [
        client.text("/messages", **how),
        client.text("/messages", **how, **{"as": "raw"}),
    ]
    texts += [client.text("/message", stream="leaky", topic="leaky", offset=0)]
    texts += [client.text("/download", **how, format=one) for one in ("json", "csv")]
    content = client.get("/download", **how, format="parquet").data
    texts.append(str(parquet.read_table(pa.BufferReader(content)).to_pylist()))
    for text in texts:
        assert LITERAL not in text
        assert "***" in text or "null" in text.lower() or "None" in text
    asked = client.text(
        "/messages",
        **how,
        where="text LIKE '%hunter%' OR octets LIKE '%hunter%' "
        "OR CAST(inner AS VARCHAR) LIKE '%hunter%'".replace("inner", '"inner"'),
    )
    assert "No messages match." in asked


def test_other_sites_and_head_requests_start_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(feeds, "_Feed", failing)
    monkeypatch.setattr("streamfactory.ui.browse.download", failing)
    paths = ("/events?stream=clicks", "/download?stream=clicks&format=csv")
    for path in paths:
        for site in ("cross-site", "same-site"):
            answer = client.client.get(
                path, base_url=PLACE, headers={"Sec-Fetch-Site": site}
            )
            assert answer.status_code == 403
        answer = client.client.head(path, base_url=PLACE)
        assert (answer.status_code, answer.data) == (200, b"")


def events(text: str) -> list[tuple[str, str, Any]]:
    """Kind, id and data of server-sent events."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if "data" in fields:
            data = json.loads(fields["data"])
            found.append((fields.get("event", ""), fields["id"], data))
    return found


def follow(client: Client, after: str, enough: Any, **arguments: Any) -> list[Any]:
    """Events until there are enough of them."""
    found: list[Any] = []
    deadline = time.monotonic() + 120
    while not enough(found):
        assert time.monotonic() < deadline, found
        text = client.text("/events", stream="clicks", after=after, **arguments)
        new = events(text)
        found += new
        after = new[-1][1] if new else after
        time.sleep(0.05)
    return found


def ready(client: Client) -> None:
    """Wait until the readers of the live views have begun to follow."""
    deadline = time.monotonic() + 120
    while not all(one.following.is_set() for one in client.site.feeds.open()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_live_view_has_new_messages_once(small: World, client: Client) -> None:
    threads = threading.active_count()
    assert events(client.text("/events", stream="clicks")) == []
    ready(client)
    small.topic.write(2, 1)
    found = follow(client, "", lambda some: len(some) >= 3)
    assert {(one["partition"], one["offset"]) for _, _, one in found} == {
        (0, 10),
        (0, 11),
        (1, 4),
    }
    small.topic.write(1, 0)
    (later,) = follow(client, found[-1][1], lambda some: len(some) >= 1)
    assert later[2]["offset"] == 12
    for _ in range(20):  # views of one query share a reader
        client.text("/events", stream="clicks")
    assert threading.active_count() <= threads + 2
    assert (
        "script-src 'self'"
        in client.get("/follow", stream="clicks").headers["Content-Security-Policy"]
    )
    assert "script-src" not in client.get("/").headers["Content-Security-Policy"]


def test_a_reader_that_nobody_asks_ends_and_the_view_says_so(
    small: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.text("/events", stream="clicks")
    ready(client)
    small.topic.write(1, 0)
    (before,) = follow(client, "", lambda some: len(some) >= 1)
    monkeypatch.setattr(feeds, "_UNASKED", 0.0)
    deadline = time.monotonic() + 60
    while any(one.thread.is_alive() for one in client.site.feeds.open()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    monkeypatch.setattr(feeds, "_UNASKED", 600.0)
    kind, _, data = events(client.text("/events", stream="clicks", after=before[1]))[0]
    assert (kind, data) == ("skipped", None)


def test_a_live_view_reads_what_the_changed_file_defines(
    small: World, client: Client
) -> None:
    client.text("/events", stream="clicks")
    [before] = client.site.feeds.open()
    (file,) = small.catalogue.glob("clicks.*")
    body = json.loads(file.read_text())
    body["properties"]["where"] = "no_column = 1"
    file.write_text(json.dumps(body))
    found = follow(client, "", lambda some: len(some) >= 1)
    assert found[-1][0] == "failed"
    before.thread.join(60)
    assert not before.thread.is_alive()


def test_live_views_are_bounded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MOST_FEEDS", 2)
    for partition in ("0:clicks", "1:clicks"):
        page = client.get("/events", stream="clicks", partition=partition)
        assert page.status_code == 200
    page = client.get("/events", stream="clicks")
    assert page.status_code == 503
    assert "2 live views are open" in page.get_data(as_text=True)


def test_a_failure_of_a_live_view_is_an_event(client: Client) -> None:
    (found,) = follow(client, "", lambda some: len(some) >= 1, where="no_column = 1")[
        :1
    ]
    assert found[0] == "failed"


def test_reading_requires_the_log_in_where_pages_do(small: World) -> None:
    del small
    with application(must_log_in=True) as anonymous:
        for path in ("message", "messages", "download", "follow", "events", "map"):
            answer = anonymous.get(f"/{path}", stream="clicks")
            assert answer.status_code == 302
            assert answer.headers["Location"] == "/log-in"
