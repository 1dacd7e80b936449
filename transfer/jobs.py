"""Whole jobs as one call: what the package root exports."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from streamfactory.spi.arguments import EVENT, FLAG, PATH, TEXT, takes
from streamfactory.spi.ddl import SCHEMA
from streamfactory.transfer.bars import progress_bar
from streamfactory.transfer.copies import open_copy
from streamfactory.transfer.exporting import open_export
from streamfactory.transfer.publishing import open_publisher
from streamfactory.transfer.replaying import open_replay
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    import pyarrow as pa

    from streamfactory.transfer.copying import Copied
    from streamfactory.transfer.exporting import Exported
    from streamfactory.transfer.publishing import Published
    from streamfactory.transfer.replaying import Replayed
    from streamfactory.wiring.config.loading import StreamLike
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.reading.position_arguments import Marks


@takes(sql=TEXT, where=TEXT, writer_id=TEXT, follow=FLAG, stop=EVENT)
def copy(
    source: StreamLike,
    sink: StreamLike,
    *,
    sql: str | None = None,
    where: str | None = None,
    source_options: Mapping[str, object] | None = None,
    sink_options: Mapping[str, object] | None = None,
    writer_id: str | None = None,
    follow: bool = False,
    stop: threading.Event | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Copied:
    """Copy a stream into another one; exported as ``streamfactory.copy``.

    Called again, it continues at the sink's position: exactly once if the sink
    remembers its writers.

    Args:
        source: The name of a stream in the catalogue, or its properties.
        sink: The name or properties of the sink. Its topic is created if it does not
            exist.
        sql: A SELECT of DataFusion from the table ``rows``: filters, projects, renames,
            casts and masks each row. By default rows are copied unchanged.
        where: A condition in SQL, true for the rows that are copied, or that ``sql``
            reads.
        source_options: Properties that replace those of the source.
        sink_options: Properties that replace those of the sink.
        writer_id: Identifies the copy across restarts; by default made of both streams'
            names.
        follow: Continue after the latest offsets are reached, until ``stop`` is set.
        stop: When set, the open epoch is committed and the call returns.
        allow_class_paths: Whether the configurations may name Python objects.
        plugins: Finds types; by default those of the process.

    Returns:
        Rows, epochs, the position reached, and losses.

    Raises:
        ConfigError: config; with all problems of one end.
        GuaranteeRefused: config; ``guarantee`` of either end is stronger.
        SchemaMismatch: permanent; rows of the source do not fit the sink, or the query
            cannot be evaluated on some.
        MisuseError: misuse; the query needs more than a row, or gives another answer
            later.
        NotInstalled: plugin; there is a query, and DataFusion is not installed.
        StreamError: Raised by either end; earlier rows are committed.

    Example:
        >>> import streamfactory
        >>> streamfactory.copy("clicks", "archive").rows  # doctest: +SKIP
        1200
    """
    with (
        open_copy(
            source,
            sink,
            sql=sql,
            where=where,
            source_options=source_options,
            sink_options=sink_options,
            writer_id=writer_id,
            allow_class_paths=allow_class_paths,
            plugins=plugins,
        ) as opened,
        progress_bar(opened.writer_id) as report,
    ):
        return opened.run(stop or threading.Event(), follow=follow, on_progress=report)


@takes(sql=TEXT, where=TEXT, writer_id=TEXT, stop=EVENT)
def backfill(
    source: StreamLike,
    sink: StreamLike,
    *,
    sql: str | None = None,
    where: str | None = None,
    source_options: Mapping[str, object] | None = None,
    sink_options: Mapping[str, object] | None = None,
    writer_id: str | None = None,
    stop: threading.Event | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Copied:
    """Copy what a copy has skipped; exported as ``streamfactory.backfill``.

    The copy skips to be on time, by the options ``fresh.within.millis`` and
    ``fresh.within.rows`` of its source. This takes its arguments, and writes each
    skipped row once, while the copy runs or later. Called again, it continues. Of two
    at once the earlier one is fenced.

    Args:
        source: The source of the copy.
        sink: Its sink.
        sql: Its query.
        where: Its condition.
        source_options: Properties that replace those of the source.
        sink_options: Properties that replace those of the sink.
        writer_id: The writer id of the copy, if it was given one.
        stop: When set, the open epoch is committed and the call returns.
        allow_class_paths: Whether the configurations may name Python objects.
        plugins: Finds types; by default those of the process.

    Returns:
        Rows, epochs, the position reached, and losses: ranges that the source no
        longer has.

    Raises:
        MisuseError: misuse; no copy has committed as this writer; or as `copy`.
        WriterFenced: permanent; another backfill has begun.
        ConfigError: config; with all problems of one end.
        StreamError: Raised by either end; earlier rows are committed.

    Example:
        >>> import streamfactory
        >>> streamfactory.backfill("clicks", "archive").rows  # doctest: +SKIP
        40
    """
    with (
        open_copy(
            source,
            sink,
            sql=sql,
            where=where,
            source_options=source_options,
            sink_options=sink_options,
            writer_id=writer_id,
            create=False,
            backfill=True,
            allow_class_paths=allow_class_paths,
            plugins=plugins,
        ) as opened,
        progress_bar(opened.writer_id) as report,
    ):
        return opened.run(stop or threading.Event(), on_progress=report)


@takes(letters=TEXT, to=TEXT, of=TEXT, writer_id=TEXT, stop=EVENT)
def replay_dead_letters(
    letters: str,
    to: str,
    *,
    of: str | None = None,
    writer_id: str | None = None,
    stop: threading.Event | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Replayed:
    """Process dead letters again; exported as ``streamfactory.replay_dead_letters``.

    Called again, it continues: each message is written once, if the sink remembers its
    writers. Those that fail again stay unresolved, for the next call.

    Args:
        letters: The name of the stream of dead letters, in the catalogue.
        to: The name of the sink. If it stores undecoded messages, or is the stream that
            the letters come from, it gets the messages as they were; otherwise rows.
        of: The stream that the letters come from; by default that of the first one.
        writer_id: Identifies the replay across restarts; by default made of the names.
        stop: When set, the open epoch is committed and the call returns.
        allow_class_paths: Whether the configurations may name Python objects.
        plugins: Finds types; by default those of the process.

    Returns:
        Rows, letters that failed again, and letters that were skipped.

    Raises:
        ConfigError: config; there is no such stream, or both ends are one topic.
        SchemaMismatch: permanent; the stream does not contain dead letters.
        StreamError: Raised by either end; earlier rows are committed.
    """
    find = Catalogue().get
    with (
        open_replay(
            find(letters),
            find(to),
            find,
            of=None if of is None else find(of),
            writer_id=writer_id,
            allow_class_paths=allow_class_paths,
            plugins=plugins,
        ) as replay,
        progress_bar(f"replay {letters}") as report,
    ):
        return replay.run(stop or threading.Event(), report)


@takes(inputs=PATH, schema=SCHEMA, format=TEXT, writer_id=TEXT, stop=EVENT)
def publish(
    stream: StreamLike,
    *inputs: str | PathLike[str],
    options: Mapping[str, object] | None = None,
    format: str | None = None,
    schema: pa.Schema | str | None = None,
    writer_id: str | None = None,
    stop: threading.Event | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Published:
    """Publish files into a stream; exported as ``streamfactory.publish``.

    Args:
        stream: The name of a stream in the catalogue, or its properties. Its topic is
            created where there is none.
        inputs: Files of CSV, JSON lines, Parquet or Arrow.
        options: Properties that replace those of the definition.
        format: Format of all inputs; by default that of each path's suffix.
        schema: Schema of the rows, or Spark DDL; by default the stream's if it has
            one, else the first input's.
        writer_id: Identifies the writer across restarts: called again with the same
            inputs, it publishes the rest. None claims no idempotence.
        stop: When set, the open epoch is committed and the call returns.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Finds types; by default those of the process.

    Returns:
        Rows, epochs, and whether the end of the inputs was reached.

    Raises:
        ConfigError: config; with all problems, or an input cannot be opened.
        MisuseError: misuse; there is no input.
        StreamError: Raised by the stream.
    """
    with (
        open_publisher(
            stream,
            inputs,
            options=options,
            format=format,
            schema=schema,
            writer_id=writer_id,
            allow_class_paths=allow_class_paths,
            plugins=plugins,
        ) as publisher,
        progress_bar("publish") as report,
    ):
        return publisher.run(stop or threading.Event(), on_progress=report)


@takes(output=PATH, format=TEXT, by_partition=FLAG, force=FLAG)
def export(
    stream: StreamLike,
    output: str | PathLike[str],
    *,
    start: Marks = "earliest",
    end: Marks = "latest",
    format: str | None = None,
    by_partition: bool = False,
    force: bool = False,
    options: Mapping[str, object] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
) -> Exported:
    """Write a stream to a file, or a folder; exported as ``streamfactory.export``.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        output: The file; with ``by_partition`` the folder, which must not exist. It
            appears when it is complete.
        start: First offsets wanted (inclusive).
        end: First offsets not wanted (exclusive).
        format: ``parquet``, ``arrow`` (a random-access file) or ``arrows`` (a stream);
            by default what the output's name ends in.
        by_partition: One file for each partition.
        force: Replace a file that exists.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Finds types; by default those of the process.

    Returns:
        Rows, bytes, files, and the position reached.

    Raises:
        MisuseError: misuse; the output exists already, or no format is known.
        ConfigError: config; every problem at once.
        StreamError: Raised by the stream.
    """
    with (
        open_export(
            stream,
            Path(output),
            start=start,
            end=end,
            format=format,
            by_partition=by_partition,
            force=force,
            options=options,
            allow_class_paths=allow_class_paths,
            plugins=plugins,
        ) as opened,
        progress_bar(f"export {output}") as report,
    ):
        exported = opened.run(threading.Event(), on_progress=report)
    assert exported is not None  # the event is never set
    return exported
