"""``validate``: all problems of configurations, found offline."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.parameters import (
    Overrides,
    class_paths_flag,
    json_flag,
    set_option,
)
from streamfactory.cli.results import count, table
from streamfactory.cli.status import Status, UsageMistake
from streamfactory.cli.wording import problem_as_options
from streamfactory.spark.pipelines.detection import is_pipeline, stream_or_pipeline
from streamfactory.spark.pipelines.options import SPARK
from streamfactory.spi import ConfigError, Problem, StreamError, UnknownStream
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.pipelines.deadletters import Inflow
    from streamfactory.spark.pipelines.model import Draft, Pipeline
    from streamfactory.wiring.config.crosschecks import Checked
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.config.describing import Effective


Document = dict[str, Any]


@click.command("validate")
@click.argument("targets", metavar="[NAME-OR-FILE]...", nargs=-1)
@click.option(
    "--effective",
    is_flag=True,
    help="Show every effective value and its origin; secrets are masked.",
)
@click.option(
    "--no-spark",
    is_flag=True,
    help="Do not analyse the SQL of pipelines, which needs a local Spark.",
)
@set_option
@class_paths_flag
@json_flag
@click.pass_obj
def validate_command(
    printer: Printer,
    *,
    targets: Sequence[str],
    effective: bool,
    no_spark: bool,
    overrides: Overrides,
    allow_class_paths: bool,
) -> Status:
    """Validate the configuration of streams and pipelines.

    NAME-OR-FILE is a stream of the catalogue, or a file: TOML, JSON, Java properties,
    an Apache Pinot table config, an Apache Hop data-stream, a pipeline; or the name of
    a pipeline, unless a stream has it. By default, all streams of the catalogue, and
    the pipelines in the folder pipelines beside it.
    Connects to nothing; the SQL of pipelines is analysed by Spark on this machine.
    """
    catalogue = Catalogue().snapshot()
    broken = {} if targets else catalogue.broken()
    if targets:
        targets = [stream_or_pipeline(target, catalogue) for target in targets]
    else:
        targets = [*_all_targets(catalogue), *map(str, broken)]

    def findings(target: str) -> Iterator[Document]:
        if Path(target) in broken:
            yield _unreadable(target, broken[Path(target)])
            return
        try:
            definitions = [overrides.apply(one) for one in catalogue.find(target)]
        except ConfigError as error:
            yield _unreadable(target, error)
            return
        for definition in definitions:
            inspection = inspect(
                definition, default_manager(), allow_class_paths=allow_class_paths
            )
            yield _findings(definition, inspection, effective=effective)

    pipelines = {Path(target): None for target in targets if is_pipeline(Path(target))}
    streams = [
        found
        for target in targets
        if Path(target) not in pipelines
        for found in findings(target)
    ]
    streams += _pipeline_findings(
        pipelines, catalogue, spark=not no_spark, allowed=allow_class_paths
    )
    valid = all(found["valid"] for found in streams)
    printer.show({"valid": valid, "streams": streams}, _lines(streams))
    return Status.FINE if valid else Status.BAD_INPUT


def _all_targets(catalogue: Catalogue) -> list[str]:
    """The catalogue's streams, and the pipelines."""
    # Imported here: one named stream needs no Arrow.
    from streamfactory.spark.targets import all_targets

    found = list(all_targets(catalogue))
    if not found and not catalogue.broken():
        msg = f"there is no stream in {catalogue.folder}, and no pipeline beside it"
        raise UsageMistake(msg, remedy="name a stream or a file")
    return found


def _findings(
    definition: StreamDefinition, inspection: Checked, *, effective: bool
) -> Document:
    config, values = inspection.config, None
    if effective and config is not None:
        # Imported here: descriptions need more of the contract than rules do.
        from streamfactory.wiring.config.describing import effective as values_of

        values = values_of(config)
    return _document(
        definition.name,
        definition.origin,
        None if config is None else config.type,
        [*inspection.errors, *inspection.warnings],
        values,
    )


def _document(
    stream: str,
    origin: str | None,
    kind: str | None,
    problems: Sequence[Problem],
    effective: Sequence[Effective] | None = None,
) -> Document:
    """One stream or pipeline; ``effective`` is None if not requested, or invalid."""
    problems = [problem_as_options(one) for one in problems]
    errors = [one for one in problems if one.level == "error"]
    return {
        "stream": stream,
        "origin": origin,
        "type": kind,
        "valid": not errors,
        "errors": errors,
        "warnings": [one for one in problems if one.level != "error"],
        "effective": effective,
    }


def _pipeline_findings(
    paths: Collection[Path], catalogue: Catalogue, *, spark: bool, allowed: bool
) -> Iterator[Document]:
    """Of pipelines; one Spark reads the SQL of all."""
    if not paths:
        return
    # Imported here: streams without pipelines need no Arrow.
    from streamfactory.spark.pipelines.checking import check_draft
    from streamfactory.spark.pipelines.definition import read_pipeline

    drafts = [
        read_pipeline(path, catalogue, allow_class_paths=allowed) for path in paths
    ]
    with ExitStack() as stack:
        session, unread = None, "its SQL was not read: --no-spark"
        if spark and any(draft.engine == SPARK for draft in drafts):
            try:
                session = stack.enter_context(_spark(stack))
            except StreamError as error:
                unread = f"its SQL was not read: {error.what}"
        for draft in drafts:
            problems = check_draft(draft)
            if draft.engine != SPARK:
                problems += _unchecked_columns(draft)
            elif session is None:
                problems.append(Problem("sql", unread, draft.origin, level="warning"))
            else:
                sound = not any(one.level == "error" for one in problems)
                problems += _read_sql(session, draft, sound=sound)
            yield _document(draft.name, draft.origin, "pipeline", problems)


def _unchecked_columns(draft: Draft) -> Iterator[Problem]:
    """That columns were not checked, of a pipeline without Spark."""
    from streamfactory.spark.pipelines.deadletters import declares

    pipeline = draft.pipeline
    if pipeline is not None and not declares(pipeline.sources[0].stream):
        what = "columns were not checked: the source declares no schema"
        hint = "`streamfactory run` asks the stream"
        yield Problem("sql", what, draft.origin, hint, level="warning")


def _spark(stack: ExitStack) -> AbstractContextManager[SparkSession]:
    # Imported here: the streams of most need no Spark.
    from tempfile import TemporaryDirectory

    from streamfactory.spark.pipelines.session import spark_session

    folder = stack.enter_context(TemporaryDirectory(prefix="streamfactory-"))
    return spark_session("local[1]", log=Path(folder, "spark.log"), brief=True)


def _read_sql(session: SparkSession, draft: Draft, *, sound: bool) -> list[Problem]:
    from streamfactory.spark.pipelines.deadletters import declared_inflow
    from streamfactory.spark.pipelines.preparing import check_sql
    from streamfactory.spark.pipelines.problems import errors

    problems, schemas = list[Problem](), None
    inflows: dict[str, Inflow | None] = {}
    if sound and draft.pipeline is not None:
        inflows = {
            one.id: declared_inflow(one.stream) for one in draft.pipeline.sources
        }
        unknown = [name for name, inflow in inflows.items() if inflow is None]
        for name in unknown:
            what = "columns were not checked: the source "
            what += (
                f"{name!r} declares no schema"
                if len(inflows) > 1
                else ("declares no schema")
            )
            hint = "`streamfactory run` asks the stream"
            problems.append(Problem("sql", what, draft.origin, hint, level="warning"))
        if not unknown:
            schemas = {name: one.schema for name, one in inflows.items() if one}
            problems += _read_lookups(session, draft.pipeline, schemas)
    analysis, found = check_sql(session, draft, schemas)
    problems += found
    pipeline = draft.pipeline
    if (
        pipeline is not None
        and pipeline.trigger.real_time
        and schemas is not None
        and not errors(problems)
    ):
        from streamfactory.spark.realtime.starting import check_offline

        known = {name: one for name, one in inflows.items() if one is not None}
        problems += check_offline(pipeline, analysis, known)
    return problems


def _read_lookups(
    session: SparkSession, pipeline: Pipeline, schemas: dict[str, StructType]
) -> Iterator[Problem]:
    """Add the columns of lookups; yields why they are not known."""
    from streamfactory.spark.pipelines.lookups import declared_columns

    for lookup in pipeline.lookups:
        try:
            found = declared_columns(session, lookup)
        except StreamError as error:
            yield Problem("lookups", error.what, lookup.origin, error.remedy)
            continue
        if found is None:
            what = f"columns were not checked: the lookup {lookup.id!r} declares none"
            hint = "`streamfactory run` asks the stream"
            yield Problem("sql", what, lookup.origin, hint, level="warning")
        else:
            schemas[lookup.id] = found


def _unreadable(target: str, error: ConfigError) -> Document:
    problems: list[Problem] = list(error.problems)
    if not problems or isinstance(error, UnknownStream):
        problems.insert(0, Problem(target, error.what, suggestion=error.remedy))
    return _document(target, None, None, problems)


def _lines(streams: Sequence[Document]) -> Iterator[str]:
    for found in streams:
        yield _headline(found)
        for problem in (*found["errors"], *found["warnings"]):
            yield f"  {problem.level}: {problem}"
        if found["effective"] is not None:
            rows = [("KEY", "VALUE", "ORIGIN"), *found["effective"]]
            yield from table(rows, indent="  ")


def _headline(found: Document) -> str:
    place = f" ({found['origin']})" if found["origin"] else ""
    counts = [
        count(len(problems), noun)
        for problems, noun in (
            (found["errors"], "error"),
            (found["warnings"], "warning"),
        )
        if problems
    ]
    if found["valid"]:
        counts.insert(0, "ok")
    return f"{found['stream']}{place}: {', '.join(counts)}"
