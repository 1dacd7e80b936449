"""Pages of messages, single messages and downloads, as values without secrets.

The functions connect to the stream, and are bounded by `PAGE` or `DOWNLOAD`.
"""

from __future__ import annotations

import io
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from streamfactory.engines.search.browsing import Browser, Limits
from streamfactory.engines.search.outputs import RowWriter, json_lines
from streamfactory.engines.search.row_filter import RowFilter
from streamfactory.spi import (
    MisuseError,
    PartitionState,
    StreamError,
    StreamTimeout,
    TopicNotFound,
    envelope_schema,
)
from streamfactory.spi.masking import mask_userinfo
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.cells import MOST_COLUMNS
from streamfactory.ui.masking import Masker, hidden_errors
from streamfactory.ui.message_values import (
    fields_of,
    hidden_rows,
    mask_of,
    message_document,
    offsets_text,
    shown_columns,
    whole_text,
)
from streamfactory.wiring.core.shown import masked
from streamfactory.wiring.reading.opened import opened_source, refuse_transport
from streamfactory.wiring.reading.position_arguments import offsets_of
from streamfactory.wiring.reading.position_texts import parse_marks
from streamfactory.wiring.reading.raw_messages import as_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.engines.search.browsing import MessagePage
    from streamfactory.spi import Partition, PartitionInfo
    from streamfactory.wiring.reading.source import Source

    Document = dict[str, Any]

PAGE: Final = Limits()
DOWNLOAD: Final = Limits(messages=10_000, rows=500_000, size=64 << 20, seconds=20.0)
MOST_MESSAGES: Final = 200
"""Of a page that a client asks for."""
_SEARCHES: Final = 4
"""Searches and downloads at a time."""
_PATIENCE: Final = 20.0
"""Seconds that one waits for its turn."""
_turns = threading.BoundedSemaphore(_SEARCHES)


@dataclass(frozen=True, slots=True)
class Query:
    """What a page of messages has."""

    stream: str
    place: str = ""
    """Where it begins or ends, as `parse_marks` reads it; empty for the latest."""
    back: bool = True
    """Whether it ends there."""
    where: str = ""
    """The expression; empty for all messages."""
    partition: str = ""
    """``ID:TOPIC``; empty for all."""
    raw: bool = False
    count: int = PAGE.messages
    masked: bool = False
    """Whether the rows are masked as the definition says."""


class RowsPage(NamedTuple):
    """Rows for programs: binary values as text, secrets masked."""

    rows: pa.RecordBatch
    before: str
    """The place of the page before it, as JSON."""
    after: str
    more: bool
    """Whether there is a page after it, or before it when reading back."""

    @property
    def lines(self) -> list[str]:
        """A JSON object for each row."""
        return list(json_lines(self.rows))

    def arrow(self) -> bytes:
        """An Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.rows.schema) as writer:
            writer.write_batch(self.rows)
        return bytes(sink.getvalue())


class Download(NamedTuple):
    """A file."""

    content: bytes
    rows: int
    complete: bool
    """Whether no limit ended it."""


def parse_place(place: str) -> Any:
    """Where a page begins: an offset, a time, a word, or `PARTITION=PLACE` for each.

    Raises:
        MisuseError: misuse; it is none of these, or a position that is malformed.
    """
    try:
        return parse_marks([place] if "{" in place else place.split())
    except ValueError as error:  # also `PositionRefused`
        msg = f"the place is invalid: {error}"
        remedy = "give an offset, earliest, latest, a time, or a period such as 2h"
        raise MisuseError(msg, remedy=remedy) from None


def messages(query: Query) -> Document:
    """A page of messages.

    Raises:
        Unsupported: misuse; messages of the stream cannot be read again.
        MisuseError: misuse; the place or the expression is refused.
        StreamError: The stream cannot be reached, or its messages not be decoded.
    """
    limits = Limits(min(query.count, MOST_MESSAGES), PAGE.rows, PAGE.size, PAGE.seconds)
    with hidden_errors(masked=query.masked), opened_query(query) as source:
        page = _page(source, query, limits)
        names = shown_columns(source)
        document: Document = {
            "columns": names[:MOST_COLUMNS],
            "hidden": max(0, len(names) - MOST_COLUMNS),
            "messages": [
                message_document(one, names[:MOST_COLUMNS]) for one in page.messages
            ],
            "before": offsets_text(page.before),
            "after": offsets_text(page.after),
            "has_previous": page.has_previous,
            "has_next": page.has_next,
            "searched": [
                {
                    "topic": one.partition.topic,
                    "partition": one.partition.id,
                    "start": one.start,
                    "end": one.end,
                    "cut": one.cut,
                    "lost": one.lost,
                }
                for one in page.searched
            ],
            "too_large": [
                {"partition": str(one.partition), "offset": one.offset}
                for one in page.too_large
            ],
        }
        safe: Document = _masked(document, source)
        return safe


def message(
    name: str, topic: str, number: int, offset: int, *, masked: bool = False
) -> Document:
    """One message: key, headers, time and value, and its rows if they are decoded.

    Raises:
        TopicNotFound: permanent; there is no such partition.
        MisuseError: misuse; there is no message at the offset.
        StreamError: The stream cannot be reached.
    """
    with hidden_errors(masked=masked):
        return _message(name, topic, number, offset, masked=masked)


def _message(
    name: str, topic: str, number: int, offset: int, *, masked: bool
) -> Document:
    found: Document = {"parts": [], "rows": [], "undecodable": None}
    query = Query(name, raw=True, masked=masked)
    with opened_query(query) as source:
        raw = _one(source, topic, number, offset)
        if (masker := masker_of(source, query)) is not None:
            raw = masker.rows(raw)
        for column in raw.schema.names:
            values = raw.column(column)
            found["parts"].append([column, whole_text(values, 0)])
        if not source.source_schema.equals(envelope_schema()):
            found["rows"] = fields_of(raw, shown_columns(source))
            metadata = source.metadata_columns
            found["parts"] = [one for one in found["parts"] if one[0] in metadata]
        found = _masked(found, source)
    if not found["rows"]:
        try:
            query = Query(name, masked=masked)
            with opened_query(query) as source:
                if source.decodes:
                    rows = _one(source, topic, number, offset)
                    if (masker := masker_of(source, query)) is not None:
                        rows = masker.rows(rows)
                    fields = fields_of(rows, shown_columns(source))
                    found["rows"] = _masked(fields, source)
        except StreamError as error:
            if error.error_class.value != "decode" or masked:
                raise
            found["undecodable"] = mask_userinfo(str(error))
    return found


def download(query: Query, format: str) -> Download:
    """The messages of a page and those after it, or before it, as a file.

    Its values are those that a search sees: binary values as text, secrets masked.

    Raises:
        Unsupported: misuse; the format has no such columns.
        StreamError: As `messages`.
    """
    with hidden_errors(masked=query.masked), opened_query(query) as source:
        page = _page(source, query, DOWNLOAD)
        mask = mask_of(source)
        sink = io.BytesIO()
        schema = _shown_schema(source, query)
        empty = hidden_rows([], schema, mask)
        with RowWriter(format, sink, empty.schema) as writer:
            rows = [one.rows for one in page.messages]
            if rows:
                writer.write(hidden_rows(rows, schema, mask))
        ended = page.has_previous if query.back else page.has_next
        return Download(sink.getvalue(), sum(map(len, rows)), not ended)


def rows_page(query: Query) -> RowsPage:
    """The rows of a page of messages, all columns.

    Raises:
        StreamError: As `messages`.
    """
    limits = Limits(query.count, PAGE.rows, PAGE.size, PAGE.seconds)
    with hidden_errors(masked=query.masked), opened_query(query) as source:
        page = _page(source, query, limits)
        rows = [one.rows for one in page.messages]
        return RowsPage(
            hidden_rows(rows, _shown_schema(source, query), mask_of(source)),
            offsets_text(page.before),
            offsets_text(page.after),
            page.has_previous if query.back else page.has_next,
        )


# --- reading --------------------------------------------------------------------


@contextmanager
def opened_query(query: Query) -> Iterator[Source]:
    """The source of a page, with the columns that pages need."""
    definition = catalogue().get(query.stream)
    overrides = {"includeHeaders": "true"}
    if query.raw:
        definition = as_raw(definition)
    with opened_source(definition.with_overrides(overrides)) as source:
        refuse_transport(source)
        if source.source_schema.equals(envelope_schema()) and not source.decodes:
            yield source
            return
    overrides["metadata.columns"] = "true"
    with opened_source(definition.with_overrides(overrides)) as source:
        yield source


def _page(source: Source, query: Query, limits: Limits) -> MessagePage:
    infos = source.metadata.partitions()
    position: Mapping[Partition, int] = {}
    if query.place:
        position = _position(source, infos, parse_place(query.place))
    infos = chosen_partitions(infos, query)
    with ExitStack() as stack:
        masker, matches = masker_of(source, query), None
        if query.where:
            stack.enter_context(_turn())
            found = stack.enter_context(row_filter(source, query, masker))
            matches = partial(found, seconds=2 * limits.seconds)
        elif limits is DOWNLOAD:
            stack.enter_context(_turn())
        page = Browser(source, limits, matches).page(infos, position, back=query.back)
        if masker is None:
            return page
        return replace(
            page,
            messages=tuple(map(masker.message, page.messages)),
            too_large=tuple(map(masker.message, page.too_large)),
        )


def masker_of(source: Source, query: Query) -> Masker | None:
    """What masks the rows of a query; None if its user may see their values.

    Raises:
        ConfigError: config; see `Masker`.
    """
    if not query.masked:
        return None
    messages = source.source_schema.equals(envelope_schema())
    return Masker(source, raw=query.raw and messages)


@contextmanager
def row_filter(
    source: Source, query: Query, masker: Masker | None
) -> Iterator[Callable[..., Any]]:
    """Evaluates the expression of a query; masked columns are not in it.

    Raises:
        MisuseError: misuse; the expression is refused, as if it named no column.
    """
    if masker is None:
        with RowFilter(query.where, source.schema, mask=mask_of(source)) as found:
            yield found.matches
        return
    try:
        schema = masker.schema(source.schema)
        found = RowFilter(query.where, schema, mask=mask_of(source))
    except MisuseError as error:
        error.remedy = "masked columns, keys and headers cannot be searched"
        raise
    with found:

        def matches(rows: pa.RecordBatch, **limits: float) -> Any:
            return found.matches(masker.searched(rows), **limits)

        yield matches


def _shown_schema(source: Source, query: Query) -> pa.Schema:
    """That of the rows of a page."""
    masker = masker_of(source, query)
    if masker is None:
        return source.schema
    return masker.rows(pa.RecordBatch.from_pylist([], source.schema)).schema


def _position(
    source: Source, infos: Sequence[PartitionInfo], marks: Any
) -> Mapping[Partition, int]:
    if isinstance(marks, int):  # in partitions that end before it, at their end
        return {info.partition: marks for info in infos}
    return offsets_of(source.config, source.metadata, infos, marks)


def chosen_partitions(
    infos: Sequence[PartitionInfo], query: Query
) -> list[PartitionInfo]:
    """The partitions that a query reads."""
    there = [one for one in infos if one.state is not PartitionState.VANISHED]
    if not query.partition:
        return there
    found = [
        one
        for one in there
        if f"{one.partition.id}:{one.partition.topic}" == query.partition
    ]
    if not found:
        msg = f"partition {query.partition!r} does not exist"
        remedy = "choose one of the partitions that the stream has"
        raise TopicNotFound(msg, stream=query.stream, remedy=remedy)
    return found


def _one(source: Source, topic: str, number: int, offset: int) -> pa.RecordBatch:
    """The rows of one message."""
    query = Query(source.config.name, partition=f"{number}:{topic}")
    (info,) = chosen_partitions(source.metadata.partitions(), query)
    with closing(source.reader(info.partition, info=info, counted=False)) as reader:
        batch = reader.fetch(offset, end=offset + 1, max_rows=1, timeout=PAGE.seconds)
    if not batch.num_rows:
        msg = f"there is no message at offset {offset}"
        raise MisuseError(
            msg,
            stream=source.config.name,
            partition=info.partition,
            remedy="offsets may have gaps, for example after compaction",
        )
    return batch.rows


@contextmanager
def _turn() -> Iterator[None]:
    if not _turns.acquire(timeout=_PATIENCE):
        msg = f"{_SEARCHES} searches are under way"
        raise StreamTimeout(msg, remedy="try again in a moment")
    try:
        yield
    finally:
        _turns.release()


def _masked(document: Any, source: Source) -> Any:
    return masked(document, source.config.mask)
