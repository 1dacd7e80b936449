"""Validation of pipeline files. Needs no Spark and connects to no stream."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

from streamfactory.spark.checkpoints import Place
from streamfactory.spark.pipelines.deadletters import (
    check_policy,
    declared_schema,
    stream_of,
)
from streamfactory.spark.pipelines.hooks import hook_of
from streamfactory.spark.pipelines.options import DATAFUSION, SPARK
from streamfactory.spark.pipelines.problems import errors
from streamfactory.spark.pipelines.table_guarantees import table_guarantee
from streamfactory.spark.realtime.rules import VERDICT as REAL_TIME_VERDICT
from streamfactory.spark.realtime.rules import check_real_time
from streamfactory.spi import ConfigError, PositionRefused, Problem, Role, StreamError
from streamfactory.spi.claims import combine
from streamfactory.spi.references import malformed
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.guarantees import (
    check_guarantee,
    offline_verdict,
    path_problem,
)
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.config.settled import settle
from streamfactory.wiring.microbatch import check_shared, check_stream
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.writing.cycles import same_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.spark.pipelines.model import (
        Draft,
        Hook,
        Lookup,
        Pipeline,
        Sink,
    )
    from streamfactory.spi import StreamConfig, Verdict
    from streamfactory.wiring.config.crosschecks import Checked
    from streamfactory.wiring.config.definition import StreamDefinition


def check_draft(draft: Draft) -> list[Problem]:
    """Problems of a file and of the configuration of its streams.

    Connects to nothing.
    """
    problems = list(draft.problems)
    if draft.pipeline is None:
        for stream in draft.streams:
            problems += inspect(stream, default_manager(), use="spark").problems
    if draft.hook is not None:
        problems += _hook_problems(draft.hook)
    if draft.engine == DATAFUSION:
        problems += _rowwise_problems(draft)
    pipeline = draft.pipeline
    if pipeline is None:
        return problems
    try:
        Place.of(pipeline.checkpoint)
    except PositionRefused as error:
        one = Problem("checkpoint", error.what, pipeline.origin, error.remedy)
        problems.append(one)
    found = {
        one.id: inspect(
            stream_of(pipeline, one), default_manager(), use="spark", role=Role.READ
        )
        for one in pipeline.sources
    }
    problems += _end_problems(pipeline, found)
    for lookup in pipeline.lookups:
        problems += _lookup_problems(lookup)
    policy = check_policy(pipeline)
    if policy is not None:
        problems.append(policy)
    elif not errors(problems) and pipeline.engine == SPARK:
        for source in pipeline.sources:
            problems += _source_problems(source.stream, found[source.id])
    return problems


def _rowwise_problems(draft: Draft) -> list[Problem]:
    """What a pipeline without Spark cannot have."""
    from streamfactory.spark.pipelines.rowwise.planning import check_rowwise

    schema = None
    if draft.pipeline is not None:
        with suppress(StreamError):  # a problem of the stream, which is reported
            definition = draft.pipeline.sources[0].stream
            schema = declared_schema(load(definition, "spark", quiet=True))
    return check_rowwise(draft, schema)


def pipeline_verdict(pipeline: Pipeline) -> Verdict:
    """The delivery guarantee of a pipeline, from its sources to all of its sinks.

    Computed from claims and options; connects to nothing.

    Raises:
        ConfigError: config; the configuration of a stream is invalid.
        StreamError: From the factory of a stream.
    """
    ends = [(stream_of(pipeline, one), Role.READ) for one in pipeline.sources]
    ends += [(one.stream, Role.WRITE) for one in pipeline.all_sinks]
    verdicts = []
    for definition, role in ends:
        found = inspect(definition, default_manager(), use="spark", role=role)
        configured = settle(found, default_manager(), reads=role is not Role.WRITE)
        verdicts.append(offline_verdict(configured.config, configured.backend, role))
    if pipeline.trigger.real_time:
        verdicts.append(REAL_TIME_VERDICT)
    return combine(*verdicts, *map(table_guarantee, pipeline.tables))


def _end_problems(
    pipeline: Pipeline, sources: Mapping[str, Checked]
) -> Iterator[Problem]:
    """Problems of each stream in its role, and of the paths from sources to sinks."""
    sinks = {
        one.name: inspect(one.stream, default_manager(), use="spark", role=Role.WRITE)
        for one in pipeline.all_sinks
    }
    ends = [*sources.values(), *sinks.values()]
    for found in ends:
        yield from found.problems
    if pipeline.trigger.real_time:
        yield from check_real_time(pipeline, sources, sinks)
    for source, one in product(sources.values(), pipeline.all_sinks):
        yield from _cycle_problems(one, source, sinks[one.name])
    configs = [found.config for found in ends if found.config is not None]
    if len(configs) < len(ends) or not any(c.get("guarantee") for c in configs):
        return
    try:
        for source in sources.values():
            origin = _guaranteed(source, Role.READ)
            for name, sink in sinks.items():
                refused = path_problem(origin, _guaranteed(sink, Role.WRITE), name)
                if refused is not None:
                    yield refused
            for table in pipeline.tables:
                parts = combine(origin[1], table_guarantee(table))
                check_guarantee(f"path to {table.name!r}", parts, [origin[0]])
    except StreamError as error:
        yield Problem("sinks", error.what, pipeline.origin, error.remedy)


def _cycle_problems(sink: Sink, source: Checked, found: Checked) -> Iterator[Problem]:
    if source.config is None or found.config is None:
        return
    assert source.plugins.backend is not None
    if same_topic(source.config, found.config, source.plugins.backend):
        name = source.config.name
        what = f"sink {sink.name!r} writes to the topic that the source {name!r} reads"
        yield Problem("sinks", what, sink.origin, "write to another topic")


def _guaranteed(found: Checked, role: Role) -> tuple[StreamConfig, Verdict]:
    """A stream's configuration, and the best guarantee that it can give."""
    assert found.config is not None
    assert found.plugins.backend is not None
    return found.config, offline_verdict(found.config, found.plugins.backend, role)


def _source_problems(stream: StreamDefinition, found: Checked) -> list[Problem]:
    try:
        configured = settle(found, default_manager())
        check_stream(configured.config)
        source = Source(configured)
        try:
            check_shared(source)
        finally:
            source.close()
    except StreamError as error:
        inner = error.problems if isinstance(error, ConfigError) else ()
        one = Problem("source", error.what, stream.origin, error.remedy)
        return list(inner) or [one]
    return []


def _lookup_problems(lookup: Lookup) -> list[Problem]:
    """Problems of a lookup's stream, and of its references to secrets."""
    if lookup.stream is not None:
        found = inspect(lookup.stream, default_manager(), use="spark", role=Role.READ)
        problems = list(found.problems)
        return problems if errors(problems) else _source_problems(lookup.stream, found)
    wrong = ((key, malformed(text)) for key, text in lookup.options.items())
    return [
        Problem(f"option.{key}", what, lookup.origin) for key, what in wrong if what
    ]


def _hook_problems(hook: Hook) -> list[Problem]:
    key = "hook.entry.point" if hook.command is None else "hook.command"
    try:
        hook_of(hook)
    except StreamError as error:
        return [Problem(key, error.what, hook.origin, error.remedy)]
    return []
