"""Bad messages, on their way around the steps to a stream of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.spi import ConfigError, Problem, envelope_schema
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.decoding.deadletters import EVIDENCE, letter_expressions
from streamfactory.wiring.decoding.row_schema import metadata_fields
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.receiving.embedded import open_receiving

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.model import Pipeline
    from streamfactory.spi import StreamConfig
    from streamfactory.wiring.config.definition import StreamDefinition

BAD: Final = "_error is not null"
GOOD: Final = "_error is null"
_POLICY: Final = "decode.on.error"
_CARRIED: Final = {"metadata.columns": "true", "includeHeaders": "true"}


@dataclass(frozen=True, slots=True)
class Inflow:
    """What a pipeline gets of its source."""

    schema: StructType
    """Of the rows that steps see."""
    hidden: tuple[str, ...] = ()
    """Columns that are read for dead letters only."""
    letters: tuple[str, ...] = ()
    """The columns of a dead letter as SQL; none where bad messages have no sink."""


def check_policy(pipeline: Pipeline) -> Problem | None:
    """Where bad messages have a sink, nothing else may become of them."""
    if pipeline.dead_letters is None:
        return None
    for prop in pipeline.source.properties:
        if prop.key.lower() == _POLICY and prop.text.strip() != "dead-letter":
            what = f"is {prop.text!r}, and bad messages have a sink: [dead-letters]"
            hint = "say dead-letter, or leave it out"
            return Problem(_POLICY, what, prop.origin, hint)
    return None


def source_of(pipeline: Pipeline) -> StreamDefinition:
    """The source as it is read: with the columns that dead letters are made of."""
    if pipeline.dead_letters is None:
        return pipeline.source
    return pipeline.source.with_overrides({_POLICY: "dead-letter", **_CARRIED})


def inflow_of(pipeline: Pipeline) -> Inflow:
    """Ask the source for its schema.

    Raises:
        StreamError: The stream's.
        ConfigError: config; bad messages have a sink, and none can be bad.
    """
    # Imported here: files are read without Spark.
    from streamfactory.spark.types import spark_schema

    configured = configure(source_of(pipeline), default_manager(), use="spark")
    source = open_receiving(configured)
    try:
        found = source.schema
        if pipeline.dead_letters is None:
            return Inflow(spark_schema(found))
        if not source.decodes:
            msg = "[dead-letters] has nothing to take: no message is decoded here"
            remedy = "leave the table out"
            raise ConfigError(msg, stream=pipeline.source.name, remedy=remedy)
        letters = tuple(letter_expressions(found, source.origin))
    finally:
        source.close()
    hidden = _hidden(configure(pipeline.source, default_manager(), use="spark").config)
    rows = [field for field in found if field.name not in hidden]
    return Inflow(spark_schema(pa.schema(rows)), hidden, letters)


def declared_inflow(pipeline: Pipeline) -> Inflow | None:
    """What the source gives, where its configuration says so; asks nobody."""
    from streamfactory.spark.types import spark_schema

    configured = configure(pipeline.source, default_manager(), use="spark")
    config, decodes = configured.config, configured.decoder is not None
    text = config.get("schema")
    if text is None or "key.decoder.class.name" in config:
        return None
    rows = parse_schema(text)
    fields = [*rows]
    if config["metadata.columns"] or config["metadata.populate"]:
        headers = config["includeHeaders"] or config["metadata.populate"]
        source = envelope_schema() if decodes else rows
        fields += metadata_fields(source, headers=headers)
    return Inflow(spark_schema(pa.schema(fields)))


def _hidden(config: StreamConfig) -> tuple[str, ...]:
    """Columns of evidence, and metadata that the user did not ask for."""
    evidence = [field.name for field in EVIDENCE]
    if config["metadata.populate"]:
        return tuple(evidence)
    if config["metadata.columns"]:
        return (*evidence, *(() if config["includeHeaders"] else ("_headers",)))
    added = metadata_fields(envelope_schema(), headers=True)
    return (*evidence, *(field.name for field in added))
