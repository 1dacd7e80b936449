"""A decoder of one's own, named by its place, with engines, copies and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines.conftest import properties

import streamfactory
from streamfactory.engines import arrow, datafusion, duckdb, pandas, polars
from streamfactory.spi import ConfigError, Decoder, MessageEncoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Stream = dict[str, str]

OWN = "tests.engines.test_own_decoders:SHOUTING"
WORDS = ["A", "B", "C"]


class Quiet(MessageEncoder):
    """Rows of text as small letters."""

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.array([t.lower().encode() for t in rows["text"].to_pylist()])


def _shouting() -> Decoder:
    from streamfactory.conformance.specimens.upper import UpperDecoder
    from streamfactory.spi import Option

    return Decoder(
        name="shouting",
        doc="Text in capitals.",
        spi_level=1,
        decoder=UpperDecoder,
        encoder=Quiet,
        options=(Option("separator", "Between lines.", default="\n"),),
    )


SHOUTING = _shouting()


@pytest.fixture
def words(tmp_path: Path) -> Stream:
    stream = properties("file", tmp_path / "streams")
    raw = {**stream, "stream.file.decoder.class.name": "raw"}
    with streamfactory.open_sink(raw) as sink:
        sink.put({"value": [b"a", b"b", b"c"]})
    return {**stream, "stream.file.decoder.class.name": OWN}


def _of_duckdb(stream: Stream, **how: Any) -> list[str]:
    return [
        text for (text,) in duckdb.relation(stream, **how).select("text").fetchall()
    ]


def _of_datafusion(stream: Stream, **how: Any) -> list[str]:
    import datafusion as engine

    context = engine.SessionContext()
    datafusion.register(context, stream, name="words", **how)
    found = context.sql("select text from words").to_arrow_table()
    return list(found["text"].to_pylist())


def _of_polars(stream: Stream, **how: Any) -> list[str]:
    found = polars.scan(stream, **how).select("text").collect()
    assert isinstance(found, pl.DataFrame)
    return found["text"].to_list()


ENGINES: dict[str, Callable[..., list[str]]] = {
    "arrow": lambda s, **how: arrow.dataset(s, **how).to_table()["text"].to_pylist(),
    "datafusion": _of_datafusion,
    "duckdb": _of_duckdb,
    "pandas": lambda s, **how: list(pandas.to_pandas(s, **how)["text"]),
    "polars": _of_polars,
}


@pytest.mark.parametrize("read", ENGINES.values(), ids=ENGINES)
def test_engines_read_by_it_where_it_is_allowed(
    read: Callable[..., list[str]], words: Stream
) -> None:
    assert sorted(read(words, allow_class_paths=True)) == WORDS
    with pytest.raises(ConfigError, match=r"decoder\.class\.name"):
        read(words)


def test_files_and_copies_are_made_and_published_by_it(
    words: Stream, tmp_path: Path
) -> None:
    file = tmp_path / "words.parquet"
    streamfactory.export(words, file, allow_class_paths=True)
    assert sorted(pq.read_table(file)["text"].to_pylist()) == WORDS
    copied = properties("file", tmp_path / "copied")
    streamfactory.copy(words, copied, allow_class_paths=True)
    assert sorted(ENGINES["arrow"](copied)) == WORDS
    streamfactory.publish(words, file, allow_class_paths=True)
    assert sorted(ENGINES["arrow"](words, allow_class_paths=True)) == sorted(WORDS * 2)
    for refused in (
        lambda: streamfactory.export(words, tmp_path / "other.parquet"),
        lambda: streamfactory.copy(words, copied),
        lambda: streamfactory.publish(words, file),
    ):
        with pytest.raises(ConfigError, match=r"decoder\.class\.name"):
            refused()
