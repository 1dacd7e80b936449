"""What the pages show, with nothing between them and a client but HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from deltalake import write_deltalake
from tests.checkpoints.conftest import Topic
from tests.proving.ports import free_port
from tests.ui.conftest import HOSTILE, SCRIPT

import streamfactory
from streamfactory.backends.memory import store
from streamfactory.spark.checkpoints import Place
from streamfactory.spark.checkpoints.copied import position_store
from streamfactory.spark.pipelines.overriding import Overrides
from streamfactory.spark.pipelines.rowwise.running import run_rowwise
from streamfactory.spi import (
    BatchState,
    Checkpoint,
    MessageBatch,
    Partition,
    PartitionInfo,
    Skipped,
)
from streamfactory.ui import letters, looking
from streamfactory.ui.cells import cell_rows
from streamfactory.ui.pipelines import pipelines
from streamfactory.wiring.controls.states import Controls, JobState, Pause
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from tests.ui.conftest import Browser, Page, World

    from streamfactory.wiring.reading.reader import Reader

    Serve = Callable[..., Browser]


class _Tags(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def assert_harmless(text: str) -> None:
    """No script, no handler, and no character that a terminal or reader acts upon."""
    found = _Tags()
    found.feed(text)
    assert not {"script", "img", "iframe", "style", "object"} & set(found.tags)
    names = {name for name, _ in found.attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    assert all(one.isprintable() or one == "\n" for one in text)


def test_each_page_names_the_profile(
    small: World, serve: Callable[..., Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "profile" not in serve().get("/process").text
    folder = small.catalogue.parent / "profiles"
    folder.mkdir()
    (folder / "notes.txt").touch()
    assert "profile" not in serve().get("/process").text
    (folder / "prod.toml").touch()
    assert '<span class="profile">no profile</span>' in serve().get("/").text
    monkeypatch.setenv("STREAMFACTORY_PROFILE", "prod")
    (folder / "prod.toml").write_text('[streams.clicks]\n"batch.rows" = 17\n')
    browser = serve()
    for path in ("/", "/stream?name=clicks", "/process", "/map"):
        assert "profile <strong>prod</strong>" in browser.get(path).text
    assert "prod.toml:2" in browser.get("/stream?name=clicks").text


def test_overview_lists_streams_and_pipelines(world: World, serve: Serve) -> None:
    (world.catalogue / "torn.toml").write_text("[properties\n")
    page = serve().get("/")
    assert page.status == 200
    for text in ("clicks", "exactly-once", "delays", "torn.toml cannot be read"):
        assert text in page.text
    assert page.text.count('<td class="n">14</td>') == 1  # offsets held


def test_a_changed_file_of_the_catalogue_is_read_again(
    world: World, serve: Serve
) -> None:
    browser = serve()
    assert "later.toml" not in browser.get("/").text
    (world.catalogue / "later.toml").write_text("[properties\n")
    deadline = time.monotonic() + 60
    while "later.toml" not in browser.get("/").text:
        assert time.monotonic() < deadline


def test_a_stream_has_bounds_guarantee_groups_schema_and_configuration(
    world: World, serve: Serve
) -> None:
    text = serve().get("/stream", name="clicks").text
    assert "As a source: " in text
    assert "2 partitions hold 14 offsets." in text
    assert '<td>1</td><td class="n">0</td><td class="n">4</td>' in text
    assert 'group=billing">billing</a></th><td class="n">10</td>' in text
    assert "<code>stream.file.partitions</code></th><td>2</td>" in text
    assert "clicks.json" in text  # the origin of a value
    assert '<th scope="row">id</th><td>int64</td>' in text


def test_a_group_has_its_lag_by_partition(world: World, serve: Serve) -> None:
    browser = serve()
    text = browser.get("/group", stream="clicks", group="billing").text
    assert "Lag: 10 offsets in 2 partitions." in text
    assert "New position" not in text  # nobody is logged in
    assert browser.get("/group", stream="clicks", group="nobody").status == 404


def test_first_and_last_messages_are_shown(world: World, serve: Serve) -> None:
    wide = Topic(world.folder / "topics", "wide")
    wide.file(world.catalogue)
    with open_sink(wide.options) as sink:
        partitions = pa.array([0] * 50, pa.int32())
        rows = pa.table(
            {"_partition": partitions, "n": [f"row {i}" for i in range(50)]}
        )
        sink.put(rows, writer_id="w", epoch=0)
    browser = serve()
    place = {"from": "earliest", "direction": "forward", "count": "20"}
    first = browser.get("/messages", stream="wide", **place).text
    last = browser.get("/messages", stream="wide", count="20").text
    assert "row 0<" in first
    assert "row 19<" in first
    assert "row 20<" not in first
    assert "row 49<" in last
    assert "row 29<" not in last
    empty = browser.get("/messages", stream="wide", partition="1:wide").text
    assert "No messages are here." in empty


@dataclass
class Messages:
    """A reader of messages of several rows each, with gaps between their offsets."""

    counts: dict[int, int]
    """Rows by offset."""
    size: int = 1
    """Bytes of one message."""

    def fetch(
        self, start: int, *, end: int, max_rows: int, **_: object
    ) -> MessageBatch:
        found = [at for at in sorted(self.counts) if start <= at < end][:max_rows]
        offsets = [at for at in found for _ in range(self.counts[at])]
        numbers = [n for at in found for n in range(self.counts[at])]
        complete = len(found) < max_rows
        return MessageBatch(
            Partition("t", 0),
            pa.record_batch({"n": numbers}),
            start,
            end if complete else found[-1] + 1,
            BatchState.DATA if found else BatchState.CAUGHT_UP,
            offsets=pa.array(offsets, pa.int64()),
            size=len(found) * self.size,
        )


def last_rows(reader: Messages, latest: int) -> looking.Found:
    info = PartitionInfo(Partition("t", 0), earliest=0, latest=latest)
    return looking.look(cast("Reader", reader), info, ["n"], last=True)


def test_the_last_rows_are_those_of_the_last_messages() -> None:
    found = last_rows(Messages(dict.fromkeys(range(100), 7)), 100)
    assert [one["offset"] for one in found.rows] == [97] * 6 + [98] * 7 + [99] * 7
    assert found.rows[0]["cells"] == ["1"]
    assert (found.cut, found.among) == (False, 4)


def test_rows_before_a_gap_at_the_end_are_found() -> None:
    found = last_rows(Messages(dict.fromkeys(range(30), 1)), 700)
    assert [one["offset"] for one in found.rows] == list(range(10, 30))
    found = last_rows(Messages(dict.fromkeys(range(30), 1)), 1 << 40)
    assert [one["offset"] for one in found.rows] == list(range(10, 30))
    found = last_rows(Messages({}), 700)
    assert (found.rows, found.cut, found.among) == ([], False, None)


def test_the_newest_rows_are_found_where_messages_are_large() -> None:
    found = last_rows(Messages(dict.fromkeys(range(100), 1), 3_000_000), 100)
    assert [one["offset"] for one in found.rows] == [96, 97, 98, 99]
    assert (found.cut, found.among) == (True, 4)


def test_letters_that_were_not_read_in_time_are_not_called_none(
    world: World, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.letters({"decode": b"x"})
    browser = serve()
    monkeypatch.setattr(letters, "_SECONDS", -1.0)
    for end in ("first", "last"):
        text = browser.get("/dead-letters", stream="letters", end=end).text
        assert "the dead letters could not all be read within" in text


def test_a_pipeline_has_its_batches_guarantee_and_checkpoint(
    world: World, serve: Serve
) -> None:
    browser = serve()
    text = browser.get("/pipeline", name="delays").text
    assert "a-query" in text
    assert '<th scope="row" class="n">1</th>' in text
    assert "4 offsets behind." in text
    moved = browser.get("/checkpoint", name="delays", first=0, second=1).text
    assert '<td class="n">3</td><td class="n">7</td><td class="n">4</td>' in moved
    gone = browser.get("/checkpoint", name="delays", first=0, second=9).text
    assert "<code>position_refused</code>" in gone
    assert browser.get("/pipeline", name="nobody").status == 404


def test_a_pipeline_without_spark_has_its_lag_and_what_it_skipped(
    world: World, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.catalogue.parent / "pipelines" / "quick.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("""
engine = "datafusion"
checkpoint = "checkpoints/quick"
[source]
stream = "clicks"
startingOffsets = "earliest"
[[steps]]
id = "good"
sql = "select * from input"
[[sinks]]
stream = "copied"
""")
    Topic(world.folder / "topics", "copied").file(world.catalogue)
    monkeypatch.chdir(world.folder)
    run_rowwise([path], Overrides(), threading.Event(), lambda _: None)
    saved = world.folder / "checkpoints" / "quick" / "1"
    text = serve().get("/pipeline", name="quick").text
    assert "0 offsets behind." in text
    assert "Generation 1: there is no checkpoint" in text
    assert "Move the position" not in text
    assert "skipped in" not in text
    kept = position_store(Place.of(str(saved)))
    [group] = kept.groups()
    [(instance, one)] = kept.load(group).items()
    (partition, end) = next(iter(one.position.items()))
    incarnation = one.position.incarnations.get(partition)
    skipped = (Skipped(partition, 0, end, incarnation),)
    position = one.position.skipping(skipped)
    kept.save(group, instance, Checkpoint(position, one.generation + 1))
    text = serve().get("/pipeline", name="quick").text
    assert f"{end} skipped in 1 range<" in text


def test_a_pipeline_has_its_lookups_expectations_and_pause(
    world: World, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    controls = Controls(world.folder / "controls")
    monkeypatch.setenv("STREAMFACTORY_CONTROLS", str(controls.folder))
    path = world.catalogue.parent / "pipelines" / "rich.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("""
checkpoint = "checkpoints/rich"
[source]
stream = "clicks"
[[lookups]]
id = "people"
format = "jdbc"
"option.url" = "jdbc:postgresql://host/db?password=hunter2"
refresh = "10m"
[[lookups]]
id = "latest"
stream = "clicks"
key = "id"
refresh = "batch"
[[steps]]
id = "good"
sql = "select * from input"
[[expectations]]
name = "positive"
condition = "id > 0 /* <b> */"
"on.failure" = "drop"
[[sinks]]
stream = "clicks"
""")
    browser = serve()
    text = browser.get("/pipeline", name="rich").text
    assert "hunter2" not in text
    for shown in (
        "<dt>Lookup people</dt><dd>jdbc <code></code>, read again after 600 s</dd>",
        "by id, read for each batch</dd>",
        '<th scope="row">positive</th><td>good</td>',
        "<code>id &gt; 0 /* &lt;b&gt; */</code></td><td>drop</td>",
    ):
        assert shown in text
    assert "paused" not in text
    why = "<img src=x> full\x1b[2J"
    controls.change(
        "pipeline/rich", lambda _: JobState(Pause("2026-11-29", "ann", why))
    )
    controls.change("copy/a/b", lambda _: JobState(Pause("2026-11-30", "tom", "")))
    browser = serve()  # another server: answers are kept for a while
    text = browser.get("/pipeline", name="rich").text
    assert_harmless(text)
    assert "paused since 2026-11-29 by ann: &lt;img" in text
    text = browser.get("/").text
    assert "copy/a/b</strong> is paused since 2026-11-30 by tom</p>" in text
    assert "pipeline/rich</strong> is paused" in text


def test_dead_letters_have_reason_and_payload(world: World, serve: Serve) -> None:
    world.letters(HOSTILE)
    where = {"decode.on.error": "dead-letter", "dead.letter.stream": "letters"}
    where |= {"checkpoint.location": str(world.folder / "groups")}
    raw = {
        "streamType": "memory",
        "stream.memory.topic.name": "m",
        "stream.memory.messages": "true",
        "stream.memory.decoder.class.name": "text",
    }
    Topic(world.folder / "topics", "source").file(world.catalogue, streamType="memory")
    lines = [f"{key!r} = {value!r}" for key, value in {**raw, **where}.items()]
    text = "name = 'messages'\n[properties]\n" + "\n".join(lines)
    (world.catalogue / "messages.toml").write_text(text)
    browser = serve()
    assert "letters</a></th><td>messages</td>" in browser.get("/dead-letters").text
    page = browser.get("/dead-letters", stream="letters")
    assert_harmless(page.text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x" in page.text
    assert "0xfffe00" in page.text
    assert r"a\x00b\x1b[31mred\x07\r\nnext" in page.text
    assert r"user\u202etxt.exe\u2066\u200b" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "(3000000 bytes)" in page.text
    assert len(page.text) < 100_000
    assert "cannot read &lt;script&gt;" in page.text


def test_names_of_others_are_escaped_everywhere(world: World, serve: Serve) -> None:
    name = f"evil {SCRIPT}\u202e\" onload='x"
    topic = Topic(world.folder / "topics", "evil")
    path = topic.file(world.catalogue)
    path.write_text(
        path.read_text().replace('"name": "evil"', f'"name": {json.dumps(name)}')
    )
    with open_sink(topic.options) as sink:
        rows = pa.table({f"<b onclick=alert(1)>{SCRIPT}": [SCRIPT]})
        sink.put(rows, writer_id="w", epoch=0)
    browser = serve()
    for path_, arguments in {
        "/": {},
        "/stream": {"name": name},
        "/messages": {"stream": name},
        "/dead-letters": {"stream": name},
        "/group": {"stream": name, "group": SCRIPT},
        "/pipeline": {"name": SCRIPT},
        f"/{SCRIPT}": {},
        "/checkpoint": {"name": "delays", "first": SCRIPT, "second": "1e9"},
    }.items():
        page = browser.get(path_.replace("<", "%3C").replace(">", "%3E"), **arguments)
        assert page.status in (200, 400, 404)
        assert_harmless(page.text)
    assert "&lt;script&gt;" in browser.get("/stream", name=name).text
    assert "&lt;script&gt;" in browser.get("/messages", stream=name).text


def test_values_that_no_library_converts_are_named_by_their_type() -> None:
    huge = pa.array([["x" * 200_000]], pa.list_(pa.string()))
    text = pa.array(["é" * 200_000])
    rows = pa.record_batch({"list": huge, "text": text, "none": pa.nulls(1)})
    ((listed, long, none),) = cell_rows(rows, ["list", "text", "none"])
    assert listed.startswith("<list<")
    assert long.endswith("(400000 bytes)")
    assert len(long) < 500
    assert none == "null"


def test_an_unreachable_stream_delays_no_page(world: World, serve: Serve) -> None:
    (world.catalogue / "far.toml").write_text(
        "name = 'far'\n[properties]\nstreamType = 'kafka'\n"
        "'stream.kafka.topic.name' = 't'\n'stream.kafka.decoder.class.name' = 'raw'\n"
        "'stream.kafka.broker.list' = '127.0.0.1:1'\n"
        "'stream.kafka.connection.timeout.millis' = '1s'\n"
    )
    browser = serve()
    browser.get("/stream", name="clicks")  # what is loaded once is loaded
    seconds = []
    for _ in range(5):
        begin = time.monotonic()
        page = browser.ask("/stream?name=far")
        seconds.append(time.monotonic() - begin)
        assert page.status == 200
    assert min(seconds) < 1  # less than the timeout, on a busy machine too
    settled = browser.get("/stream", name="far").text
    assert "<code>connection_failed</code>" in settled or "timeout</code>" in settled
    assert "Remedy: " in settled
    assert "14 offsets" in browser.get("/stream", name="clicks").text


def test_a_thousand_partitions_fit_one_page(world: World, serve: Serve) -> None:
    schema = pa.schema([("id", pa.int64())])
    store().create("thousand", schema, partitions=1001)
    try:
        (world.catalogue / "thousand.toml").write_text(
            "[properties]\nstreamType = 'memory'\n"
            "'stream.memory.topic.name' = 'thousand'\n"
        )
        browser = serve()
        text = browser.get("/stream", name="thousand").text
        assert text.count("<tr><td>thousand</td>") == 1000
        assert "Page 1 of 2" in text
        second = browser.get("/stream", name="thousand", page=2).text
        assert second.count("<tr><td>thousand</td>") == 1
        seconds = []
        for _ in range(5):
            begin = time.monotonic()
            browser.get("/stream", name="thousand")
            seconds.append(time.monotonic() - begin)
        assert min(seconds) < 1  # 0.05 where nothing else runs
    finally:
        store().delete("thousand")


def test_a_transport_that_can_be_read_once_is_not_connected_to(
    world: World, serve: Serve
) -> None:
    port = free_port()
    (world.catalogue / "pull.toml").write_text(
        "name = 'pull'\n[properties]\nstreamType = 'zeromq'\n"
        "'stream.zeromq.topic.name' = 't'\n'stream.zeromq.pattern' = 'push-pull'\n"
        f"'stream.zeromq.bind' = 'tcp://127.0.0.1:{port}'\n"
    )
    browser = serve()
    text = browser.get("/stream", name="pull").text
    assert "this transport can be read once" in text
    assert "Remedy: set spool.path" in text
    assert "not looked up" in browser.get("/").text
    page = browser.get("/messages", stream="pull")
    assert "this transport can be read once" in page.text
    socket.create_server(("127.0.0.1", port)).close()  # nothing has bound it


def test_a_look_at_rows_is_not_counted_by_the_metrics(
    world: World, serve: Serve
) -> None:
    watched = Topic(world.folder / "topics", "watched")
    watched.file(world.catalogue)
    watched.write(3, 0)

    def counted() -> list[str]:
        return [text for text in map(str, registry.samples()) if "watched" in text]

    before = counted()
    page = serve().get("/messages", stream="watched")
    assert "offset=2" in page.text
    assert counted() == before


def test_a_pipeline_that_is_found_by_two_paths_is_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.folder)
    given = Path("configs/pipelines/delays.toml")
    assert list(pipelines([given, given.resolve()])) == ["delays"]


def test_metrics_of_the_process_are_shown(serve: Serve) -> None:
    assert "process.started.seconds" in serve().get("/process").text


def test_pages_are_complete_without_script_and_load_nothing_else(
    world: World, serve: Serve
) -> None:
    browser = serve()
    for path in ("/", "/stream?name=clicks", "/pipeline?name=delays"):
        check_page(browser.ask(path))


def check_page(page: Page) -> None:
    found = _Tags()
    found.feed(page.text)
    assert {"main", "header", "nav", "h1", "title"} <= set(found.tags)
    assert ("lang", "en") in found.attributes
    loaded = [v for k, v in found.attributes if k in ("src", "href", "action")]
    assert all(str(url).startswith(("/", "#", "?")) for url in loaded)
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    for name in ("X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy"):
        assert name in page.headers


def test_the_lag_of_a_table_is_shown_in_commits(
    world: World, serve: Serve, tmp_path: Path
) -> None:
    table, groups = tmp_path / "lake", tmp_path / "lake-groups"
    write_deltalake(str(table), pa.table({"number": [1, 2]}))
    (world.catalogue / "lake.toml").write_text(
        '[properties]\nstreamType = "delta"\n'
        f'stream.delta.path = "{table}"\ncheckpoint.location = "{groups}"\n'
    )
    with streamfactory.open("lake", follow=False) as stream:
        assert sum(batch.num_rows for batch in stream) == 2
        store = FileCheckpointStore(groups)
        store.save("billing", "0-of-1", Checkpoint(stream.position, 1))
    for number in (3, 4, 5):
        write_deltalake(str(table), pa.table({"number": [number]}), mode="append")
    browser = serve()
    text = browser.get("/group", stream="lake", group="billing").text
    assert "Lag: 3 offsets (3 commits) in 1 partitions." in text
    assert '<th scope="col" class="n">Commits</th>' in text
    assert (
        '<td class="n">3 (3 commits)</td>' in browser.get("/stream", name="lake").text
    )
    other = browser.get("/group", stream="clicks", group="billing").text
    assert "Commits" not in other
