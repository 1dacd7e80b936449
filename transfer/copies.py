"""Opening both ends of a copy, and what is between them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict

from streamfactory.engines.row_query import RowQuery
from streamfactory.spi import ConfigError, envelope_schema
from streamfactory.transfer.conversion import left_out
from streamfactory.transfer.copying import Copy
from streamfactory.transfer.skipping import (
    backfill_writer,
    check_writer,
    copy_writer,
    find_skipped,
)
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.controls.control import Control
from streamfactory.wiring.controls.states import copy_job
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.reading.skipped_ranges import SkippedRanges
from streamfactory.wiring.receiving.embedded import open_source
from streamfactory.wiring.writing.creating import ensure_topic
from streamfactory.wiring.writing.cycles import refuse_cycle
from streamfactory.wiring.writing.diverting import open_target
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.spi import CheckpointStore
    from streamfactory.wiring.config.loading import StreamLike
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.testing.faults import Faults

_CARRIED: Final = {"metadata.columns": "true", "includeHeaders": "true"}
_PLACES: Final = ("_topic", "_partition", "_offset")
"""Metadata columns that are those of the source only."""
_DECODED: Final = {**_CARRIED, "includeTombstones": "true"}


def open_copy(
    source: StreamLike,
    sink: StreamLike,
    *,
    source_options: Mapping[str, object] | None = None,
    sink_options: Mapping[str, object] | None = None,
    writer_id: str | None = None,
    checkpoints: CheckpointStore | None = None,
    create: bool = True,
    partitions: int | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
    faults: tuple[Faults | None, Faults | None] = (None, None),
    sql: str | None = None,
    where: str | None = None,
    backfill: bool = False,
) -> Copy:
    """Open both ends of a copy; the sink's topic exists when this returns.

    Args:
        source: The name of a stream in the catalogue, or its properties.
        sink: Likewise.
        source_options: Properties that replace those of the source.
        sink_options: Likewise, of the sink.
        writer_id: Id of the writer; derived from the names of both streams by default.
        checkpoints: Where positions are kept beside the sink.
        create: Whether the sink's topic may be created.
        partitions: Of a topic that is created; by default what the sink's configuration
            says, else as many as the source has.
        allow_class_paths: Whether configurations may name Python objects.
        plugins: Where types are found; the process's own by default.
        faults: Around the source, and around the sink: the simulator for tests.
        sql: A query over the rows of the source; as of `RowQuery`.
        where: A condition for the rows that are read.
        backfill: Whether this reads what the copy of the same arguments has skipped.

    Raises:
        MisuseError: misuse; the query needs more than a row, or the writer id is that
            of a backfill; or there is no copy to backfill.
        NotInstalled: plugin; there is a query, and DataFusion is not installed.
        ConfigError: config; every problem of one end at once; or both are one topic.
        GuaranteeRefused: config; ``guarantee`` of either end asks for more.
        StreamError: As either end raises.
    """
    finding: _Finding = {"allow_class_paths": allow_class_paths, "plugins": plugins}
    loading = partial(load, **finding)
    given = dict(source_options or {})
    with ExitStack() as unless_made:
        to = _open_sink(loading(sink, "write", options=sink_options), faults[1])
        unless_made.callback(to.close)
        check_writer(writer_id, to.config.name)
        opened, carried = _open_source(
            lambda more: loading(source, "read", options=given | more),
            partial(open_source, faults=faults[0], plugins=plugins, aside=True),
            to,
        )
        unless_made.callback(opened.close)
        refuse_cycle(opened, to.configured)
        letters = _open_dead_letters(
            opened, partial(open_target, **finding, faults=faults[1])
        )
        if letters is not None:
            unless_made.callback(letters.close)
        query = None
        if sql is not None or where is not None:
            query = RowQuery(opened.schema, sql=sql, where=where)
        schema = opened.schema if query is None else query.schema
        _warn_of_omitted(opened, to, carried=carried)
        writer_id = writer_id or copy_writer(opened.config.name, to.config.name)
        reading = None
        if backfill:
            find = partial(find_skipped, to, writer_id)
            find()  # refused before anything is read
            reading = partial(SkippedRanges, opened, find=find)
            writer_id = backfill_writer(writer_id)
        copy = Copy(
            opened,
            to,
            writer_id,
            checkpoints=checkpoints,
            carried=carried,
            letters=letters,
            query=query,
            control=Control(copy_job(writer_id)),
            backfill=reading,
        )
        if partitions is None and _follows_source(to.configured):
            partitions = len(opened.metadata.partitions()) or None
        copy.created = ensure_topic(to, schema, create=create, partitions=partitions)
        unless_made.pop_all()
    return copy


def _warn_of_omitted(source: Source, sink: Sink, *, carried: bool) -> None:
    omitted = left_out(source, sink, carried=carried)
    if carried:  # a place in the source means nothing in the sink
        omitted = omitted.difference(_PLACES)
    for name in sorted(omitted):
        what = "stream %r: has no place for %s, which the copy leaves out"
        log.warning(what, sink.config.name, name)


class _Finding(TypedDict):
    """How types are found."""

    allow_class_paths: bool
    plugins: PluginManager | None


def _open_dead_letters(source: Source, open_one: Callable[..., Sink]) -> Sink | None:
    """The stream of the source's dead letters, if its configuration has one."""
    if source.decodes and source.config["decode.on.error"] == "dead-letter":
        return open_one(source.config)
    return None


def _open_source(
    configured_with: Callable[[dict[str, str]], Configured],
    open_one: Callable[..., Source],
    sink: Sink,
) -> tuple[Source, bool]:
    """The source, and whether key, headers and timestamp of messages go along.

    Args:
        configured_with: Its configuration, with more options.
        open_one: Opens it.
        sink: Open already.
    """
    configured = configured_with({})
    source = open_one(configured)
    try:
        if not _carries(source, configured, sink):
            return source, False
    except BaseException:
        source.close()
        raise
    source.close()
    if _is_raw(configured):
        raw = configured_with(_CARRIED)
        return open_one(raw, columns=("value",), raw_keys=True), True
    return open_one(configured_with(_DECODED), raw_keys=True), True


def _carries(source: Source, configured: Configured, sink: Sink) -> bool:
    """Whether both are streams of messages; what cannot be copied is refused."""
    messages = source.source_schema.equals(envelope_schema())
    into = sink.schema is not None and sink.schema.equals(envelope_schema())
    if messages and not into and _is_raw(configured):
        msg = "undecoded messages do not fit a stream of typed rows"
        key = f"stream.{sink.config.type}.decoder.class.name"
        remedy = f"name a decoder at {source.config.name!r}, or set {key}=raw here"
        raise ConfigError(msg, stream=sink.config.name, remedy=remedy)
    return messages and into


def _is_raw(configured: Configured) -> bool:
    return configured.decoder is None or configured.decoder.decoder is None


def _follows_source(configured: Configured) -> bool:
    """Whether a topic that is created gets as many partitions as the source has."""
    admin = configured.backend.topic_admin
    if admin is None or admin.ONE_PARTITION:
        return False
    setting = configured.config.settings.get("partitions")
    return setting is None or setting.origin == "default"


def _open_sink(configured: Configured, faults: Faults | None) -> Sink:
    if faults is None:
        return Sink(configured)
    return Sink(configured, clock=faults.clock, wrap=faults.around_producers)
