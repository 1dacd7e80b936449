"""Dead letters of pipelines: bad messages bypass the steps to a separate sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.spark.deadletters import dead_letter_expressions
from streamfactory.spi import ConfigError, Problem, StreamError, envelope_schema
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.decoding.deadletters import EVIDENCE
from streamfactory.wiring.decoding.row_schema import metadata_fields
from streamfactory.wiring.receiving.embedded import open_source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.model import Pipeline, Source
    from streamfactory.spi import StreamConfig
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.config.settled import Configured

BAD: Final = "_error is not null"
GOOD: Final = "_error is null"
_POLICY: Final = "decode.on.error"
_CARRIED: Final = {"metadata.columns": "true", "includeHeaders": "true"}


@dataclass(frozen=True, slots=True)
class Inflow:
    """Schema of one source of a pipeline."""

    configured: Configured
    """The source, for the rest of the run."""
    schema: StructType
    """Schema of the rows for the steps."""
    hidden: tuple[str, ...] = ()
    """Columns that are read only for dead letters."""
    letters: tuple[str, ...] = ()
    """SQL expressions of a dead letter's columns; empty without such a sink."""


def check_policy(pipeline: Pipeline) -> Problem | None:
    """Refuse another error policy if bad messages have a sink."""
    if pipeline.dead_letters is None:
        return None
    given = (prop for one in pipeline.sources for prop in one.stream.properties)
    for prop in given:
        if prop.key.lower() == _POLICY and prop.text.strip() != "dead-letter":
            what = f"is {prop.text!r}, and bad messages have a sink: [dead-letters]"
            hint = "set dead-letter, or remove the option"
            return Problem(_POLICY, what, prop.origin, hint)
    return None


def stream_of(pipeline: Pipeline, source: Source) -> StreamDefinition:
    """The stream of a source, with the columns that dead letters need."""
    if pipeline.dead_letters is None:
        return source.stream
    return source.stream.with_overrides({_POLICY: "dead-letter", **_CARRIED})


def inflow_of(pipeline: Pipeline, read: Source) -> Inflow:
    """Fetch the schema of a source.

    Raises:
        StreamError: Errors of the stream.
        ConfigError: config; [dead-letters] is set, but no message is decoded.
    """
    # Imported here, because reading files must not require Spark.
    from streamfactory.spark.types import spark_schema

    configured = load(stream_of(pipeline, read), "spark")
    source = open_source(configured)
    try:
        found = source.schema
        if pipeline.dead_letters is None:
            return Inflow(configured, spark_schema(found))
        if not source.decodes:
            msg = "[dead-letters] has no effect: the source does not decode messages"
            remedy = "remove the table"
            raise ConfigError(msg, stream=read.stream.name, remedy=remedy)
        letters = tuple(dead_letter_expressions(found, source.origin))
    finally:
        source.close()
    hidden = _hidden(load(read.stream, "spark").config)
    rows = [field for field in found if field.name not in hidden]
    return Inflow(configured, spark_schema(pa.schema(rows)), hidden, letters)


def declared_inflow(stream: StreamDefinition) -> Inflow | None:
    """Schema of a stream, if its configuration declares it. Connects to nothing."""
    from streamfactory.spark.types import spark_schema

    configured = load(stream, "spark")
    schema = declared_schema(configured)
    return None if schema is None else Inflow(configured, spark_schema(schema))


def declares(stream: StreamDefinition) -> bool:
    """Whether the configuration of a stream, if it is valid, declares its schema."""
    try:
        return declared_schema(load(stream, "spark", quiet=True)) is not None
    except StreamError:
        return True  # reported as a problem of the stream


def declared_schema(configured: Configured) -> pa.Schema | None:
    """Schema of the rows of a stream, if its configuration declares it."""
    config, decodes = configured.config, configured.decoder is not None
    text = config.get("schema")
    if text is None or "key.decoder.class.name" in config:
        return None
    rows = parse_schema(text)
    fields = [*rows]
    if config["metadata.columns"] or config["metadata.populate"]:
        headers = config["includeHeaders"] or config["metadata.populate"]
        source = envelope_schema() if decodes else rows
        tombstones = config["includeTombstones"]
        fields += metadata_fields(source, headers=headers, tombstones=tombstones)
    return pa.schema(fields)


def _hidden(config: StreamConfig) -> tuple[str, ...]:
    """Error columns, and metadata that the user did not request."""
    evidence = [field.name for field in EVIDENCE]
    if config["metadata.populate"]:
        return tuple(evidence)
    if config["metadata.columns"]:
        return (*evidence, *(() if config["includeHeaders"] else ("_headers",)))
    added = metadata_fields(envelope_schema(), headers=True)
    return (*evidence, *(field.name for field in added))
