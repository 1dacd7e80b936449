"""What notebooks show of a stream: hostile rows stay text, and nothing is consumed."""

from __future__ import annotations

import asyncio
import html
import re
from typing import Any

import pyarrow as pa
import pytest
from tests.reading.test_open import Clicks
from tests.specimens import Author, rows

import streamfactory
from streamfactory.spi import BatchState, Fetched, MisuseError, TopicNotFound

HOSTILE = "<script>alert('x')</script>\x1b[2J\u202e\n&amp;"


def written(table: pa.Table, store: str) -> dict[str, str]:
    stream = {
        "streamType": "memory",
        "stream.memory.topic.name": "rows",
        "stream.memory.store": store,
    }
    with streamfactory.open_sink(stream) as sink:
        sink.put(table)
    return stream


def test_text_and_html_show_what_the_stream_is() -> None:
    clicks = Clicks(2)
    clicks.add(41, 42)
    with clicks.open() as stream:
        text = str(stream.preview())
        page = stream._repr_html_()
        bundle = stream._repr_mimebundle_(include=None, exclude=None)
    assert bundle == {"text/plain": text, "text/html": page}
    expected = ["stream 'memory:clicks'", "memory", "id bigint", "clicks-0", "41", "42"]
    assert [one for one in expected if one not in text] == []
    assert [one for one in expected if html.escape(one) not in page] == []
    assert re.search(r"clicks-0 +0 +2 +0 +active", text)
    assert re.search(r"clicks-1 +0 +0 +0 +active", text)


def test_looking_consumes_nothing() -> None:
    clicks = Clicks()
    clicks.add(1, 2)
    with clicks.open() as stream:
        stream.preview()
        assert stream.counters.rows == 0
        assert list(stream.position.values()) == [0]
        assert [batch.rows["id"].to_pylist() for batch in stream] == [[1, 2]]
        assert "2" in str(stream.preview())


def test_rows_that_cannot_be_read_again_are_not_read() -> None:
    end = Fetched(None, 5, state=BatchState.END_OF_PARTITION)
    author = Author(rows(0, 5), end, latest=None)
    with author.open() as stream:
        text = str(stream.preview())
        assert author.calls == []
        assert sum(batch.num_rows for batch in stream) == 5
    assert "reading them would consume them" in text
    assert "unknown" in text


def test_hostile_rows_and_names_are_only_text() -> None:
    table = pa.table({HOSTILE: [HOSTILE], "raw": [b"\x1b]0;x\x07<b>"]})
    with streamfactory.open(written(table, "hostile")) as stream:
        found = stream.preview()
    page, text = found._repr_html_(), str(found)
    assert "<script" not in page
    assert "<b>" not in page.replace("<p><b>", "")
    assert "&lt;script&gt;" in page
    assert all(c.isprintable() for c in text.replace("\n", ""))
    assert all(c.isprintable() for c in page)
    assert "\\x1b[2J\\u202e" in text


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array(["x" * 1_000_000]), "<string, 1000"),
        (pa.array(["x" * 1000]), "x" * 57 + "..."),
        (pa.array([2**62], pa.timestamp("s")), "<timestamp[s]>"),
        (pa.array([None], pa.int64()), "null"),
        (pa.array([[1, 2]]), "[1, 2]"),
    ],
)
def test_values_that_are_long_or_have_no_text(column: pa.Array, shown: str) -> None:
    stream = written(pa.table({"value": column}), str(column.type) + shown[:9])
    with streamfactory.open(stream) as opened:
        assert shown in str(opened.preview())


def test_a_preview_of_fewer_rows_than_none_is_refused() -> None:
    with (
        Clicks(1).open() as stream,
        pytest.raises(MisuseError, match=r"rows is -1; pass .* 0 or more"),
    ):
        stream.preview(rows=-1)


def test_many_partitions_columns_and_rows_are_cut() -> None:
    clicks = Clicks(30)
    clicks.add(*range(50), partition=25)
    with clicks.open() as stream:
        text = str(stream.preview(rows=3))
    assert "10 more partitions" in text
    assert "clicks-19" in text
    assert "clicks-20" not in text
    assert text.splitlines()[-4:-1] == ["  0", "  1", "  2"]
    wide = pa.table({f"c{n}": [n] for n in range(30)})
    with streamfactory.open(written(wide, "wide")) as opened:
        lines = str(opened.preview()).splitlines()
    assert "10 more" in lines[3]
    assert lines[-1].split()[-2:] == ["19", "..."]


def test_a_source_that_fails_is_shown_as_such() -> None:
    author = Author(rows(0, 5))
    with author.open() as stream:
        author.refusals.extend([TopicNotFound("the topic <b> is gone")] * 2)
        assert "the topic <b> is gone" in str(stream.preview())
        assert "the topic &lt;b&gt; is gone" in stream._repr_html_()


def test_a_closed_stream_is_shown_as_such() -> None:
    clicks = Clicks()
    with clicks.open() as stream:
        pass
    assert "the stream is closed" in str(stream.preview())
    assert repr(stream) == "<Stream 'memory:clicks' of type 'memory'>"


def test_notebooks_show_sinks_batches_guarantees_and_metrics() -> None:
    stream = written(pa.table({HOSTILE: [HOSTILE] * 7}), "shown-objects")
    with streamfactory.open_sink(stream) as sink:
        shown: dict[str, Any] = {
            "sink 'memory:rows'": sink,
            "at-most-once": sink.guarantee(writer_id="w"),
        }
        texts = [repr(one) for one in shown.values()]
        pages = [one._repr_html_() for one in shown.values()]
    assert texts[0] == "<Sink 'memory:rows' of type 'memory'>"
    assert texts[1].startswith("<Verdict at-most-once: ")
    with streamfactory.open(stream) as opened:
        batch = next(iter(opened))
    assert repr(batch) == "<MessageBatch of rows-0: 7 rows, offsets 0 to 7, data>"
    pages.append(batch._repr_html_())
    metrics = streamfactory.metrics()
    assert repr(metrics) == f"<MetricsSnapshot of {len(metrics.samples)} samples>"
    pages.append(metrics._repr_html_())
    expected = [*shown, "2 more rows", "<td>read.rows</td>"]
    assert [
        word
        for word, page in zip(expected, pages, strict=True)
        if word not in html.unescape(page) or "<script>" in page or "\x1b" in page
    ] == []


def test_notebooks_show_a_server_process() -> None:
    with streamfactory.serve(memory=True) as server:
        place = f"{server.pid} at {server.location}"
        assert repr(server) == f"<ServerProcess {place}, running>"
        assert server.location in server._repr_html_()
    assert repr(server) == f"<ServerProcess {place}, ended with status 0>"


def test_a_frame_of_a_stream_is_refused_with_what_makes_one() -> None:
    pandas = pytest.importorskip("pandas")
    stream = written(pa.table({"a": [1, 2]}), "frame-of-a-stream")
    with streamfactory.open(stream) as opened:
        with pytest.raises(TypeError, match=r"pyarrow\.table\(stream\)"):
            pandas.DataFrame(opened)
        assert pa.table(opened).to_pandas()["a"].tolist() == [1, 2]


def test_anext_returns_the_next_batch() -> None:
    stream = written(pa.table({"a": [1, 2]}), "next-of-a-stream")

    async def first() -> int:
        async with streamfactory.open(stream) as opened:
            return (await anext(opened)).num_rows

    assert asyncio.run(first()) == 2
