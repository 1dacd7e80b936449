"""What a pipeline in real-time mode may have. Needs no Spark; connects to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.realtime.clients import CONSUMER, PRODUCER, client_options
from streamfactory.spi import ConfigError, Guarantee, Problem, Role, Verdict
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.options.shared import stream_options
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from streamfactory.spark.pipelines.model import Pipeline
    from streamfactory.spi import Option, StreamConfig
    from streamfactory.spi.config import Setting
    from streamfactory.wiring.config.crosschecks import Checked

KAFKA: Final = "kafka"
JSON: Final = "json"
RAW: Final = "raw"
_REPEATS: Final = (
    "in real time rows are written before their batch is committed: after a failure or "
    "a stop, those of the last batch are written again"
)
VERDICT: Final = Verdict(Guarantee.AT_LEAST_ONCE, (_REPEATS,))
MODE: Final = 'trigger = "real-time"'
_INSTEAD: Final = "set trigger = back-to-back, or a period"
_FORMATS: Final = (RAW, JSON)
_PACKAGES: Final = {"avro": "spark-avro", "protobuf": "spark-protobuf"}
"""Packages whose functions were not compared with our decoders."""
_SHARED: Final = frozenset(
    {
        "streamType",
        "topic.name",
        "broker.list",
        "decoder.class.name",
        "schema",
        "guarantee",
        "topic.partitions",
        "topic.replication.factor",
    }
)
_USED: Final = {
    Role.READ: _SHARED
    | {
        "subscribe",
        "subscribePattern",
        "isolation.level",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "consumer.prop.auto.offset.reset",
        "metadata.columns",
        "includeHeaders",
    },
    Role.WRITE: _SHARED | {"commit.mode"},
}
"""Options that have an effect in real time; of others only the default is accepted."""
_OF_SPARK: Final = {
    Role.READ: frozenset({"writer.id", "epoch"}),
    Role.WRITE: frozenset(
        {
            "maxOffsetsPerTrigger",
            "minOffsetsPerTrigger",
            "maxTriggerDelay",
            "minPartitions",
            "maxRecordsPerPartition",
        }
    ),
}
"""Options of queries that belong to the other end."""


def keeps_limits(path: Path) -> bool:
    """Whether a pipeline keeps a limit of rows per second: not in real time.

    Args:
        path: Its file. One that cannot be read is reported by whoever runs it.
    """
    try:
        found = read_pipeline(path, Catalogue()).pipeline
    except ConfigError:
        return True
    return found is None or not found.trigger.real_time


def check_real_time(
    pipeline: Pipeline, sources: Mapping[str, Checked], sinks: Mapping[str, Checked]
) -> list[Problem]:
    """Problems of a pipeline whose trigger is real-time.

    Args:
        pipeline: The pipeline.
        sources: Its sources, by id.
        sinks: Its sinks, by name.
    """
    found = list(_shape_problems(pipeline))
    for source in pipeline.sources:
        found += _end_problems(sources[source.id], Role.READ, source.origin)
    for sink in pipeline.all_sinks:
        found += _end_problems(sinks[sink.name], Role.WRITE, sink.origin)
    return found


def _shape_problems(pipeline: Pipeline) -> Iterator[Problem]:
    """What of a pipeline a query in real time cannot have."""
    at = pipeline.origin
    if pipeline.engine != "spark":
        yield Problem("trigger", f"real-time has no effect with {pipeline.engine}", at)
    if len(pipeline.sources) > 1:
        what = f"{MODE} reads one source, and there are {len(pipeline.sources)}"
        yield Problem("sources", what, at, _INSTEAD)
    if pipeline.tables:
        what = f"{MODE} writes no table: its sinks are those of the JVM, and Kafka"
        yield Problem("tables", what, pipeline.tables[0].origin, _INSTEAD)
    if len(pipeline.sinks) > 1:
        what = f"{MODE} writes one sink, and there are {len(pipeline.sinks)} (that of "
        what += "an expectation is one)"
        yield Problem("sinks", what, pipeline.sinks[1].origin, _INSTEAD)
    if pipeline.dead_letters is not None:
        what = f"{MODE} writes one sink, and dead letters would be another: the query "
        what += "fails at a bad message"
        yield Problem("dead-letters", what, pipeline.dead_letters.origin, _INSTEAD)
    for lookup in pipeline.lookups:
        if not lookup.refresh.once:
            what = f"{MODE} has no batches before which a lookup is read again"
            hint = 'set refresh = "once"'
            yield Problem("refresh", what, lookup.origin, hint)
    if any(step.distinct or step.watermark for step in pipeline.steps) or any(
        source.watermark for source in pipeline.sources
    ):
        what = f"{MODE} has no state before PySpark 4.3: neither watermarks nor "
        what += "distinct.by have an effect"
        yield Problem("steps", what, at, _INSTEAD)
    if any(step.python for step in pipeline.steps):
        what = f"{MODE} has no steps in Python: its operators are those of the JVM"
        yield Problem("python", what, at, "write the step in SQL")
    if pipeline.mode == "complete":
        what = f"complete requires state, which {MODE} does not have"
        yield Problem("output.mode", what, at, "remove it")


def _end_problems(found: Checked, role: Role, origin: str) -> list[Problem]:
    config = found.config
    if config is None:
        return []  # its own problems are reported
    kind = "source" if role is Role.READ else "sink"
    if config.type != KAFKA:
        what = f"{MODE} reads and writes Kafka only, and the {kind} {config.name!r} is "
        what += f"of the type {config.type}: a Python data source has no such mode"
        return [Problem(kind, what, origin, _INSTEAD)]
    problems = client_options(config, CONSUMER if role is Role.READ else PRODUCER)
    return [
        *problems.problems,
        *_format_problems(config),
        *_option_problems(found, config, role),
        *_guarantee_problems(config),
    ]


def _format_problems(config: StreamConfig) -> Iterator[Problem]:
    name = config.decoder or RAW
    if name not in _FORMATS:
        allowed = " and ".join(_FORMATS)
        what = f"{name!r} has no equal among Spark's functions"
        if name in _PACKAGES:
            what = f"{name!r} is not compared with the functions of {_PACKAGES[name]}"
        what += f"; {MODE} has {allowed}"
        yield config.problem("decoder.class.name", what, _INSTEAD)


def _option_problems(
    found: Checked, config: StreamConfig, role: Role
) -> Iterator[Problem]:
    options = {**FRAMEWORK_OPTIONS, **stream_options(found.plugins.backend)}
    mine, other = ("read", "write") if role is Role.READ else ("write", "read")
    for key, setting in config.settings.items():
        option = options.get(key)
        if key in _USED[role] | _OF_SPARK[role] or _is_default(setting, option):
            continue
        applies = frozenset() if option is None else option.applies
        if other in applies and mine not in applies:
            continue
        yield _without_equal(setting)
    decoder = found.plugins.decoder
    of_decoder = {} if decoder is None else {one.key: one for one in decoder.options}
    for key, setting in config.decoder_settings.items():
        if key != "schema" and not _is_default(setting, of_decoder.get(key)):
            yield _without_equal(setting)


def _is_default(setting: Setting, option: Option | None) -> bool:
    if setting.origin == "default":
        return True
    return option is not None and setting.text.strip() == option.default


def _without_equal(setting: Setting) -> Problem:
    what = f"has no equal in Spark's Kafka connector, which {MODE} uses"
    hint = "remove it, or give the pipeline a stream without it"
    return Problem(setting.full_key, what, setting.origin, hint)


def _guarantee_problems(config: StreamConfig) -> Iterator[Problem]:
    wanted = config.get("guarantee")
    if wanted is not None and wanted > VERDICT.guarantee:
        what = f"{wanted} is required, but {MODE} has {VERDICT}"
        yield config.problem("guarantee", what, _INSTEAD)
