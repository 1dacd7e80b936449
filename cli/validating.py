"""``validate``: everything that is wrong with configurations, offline."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from streamfactory.cli.parameters import class_paths_flag, json_flag, set_option
from streamfactory.cli.results import Result, count, table
from streamfactory.cli.status import Status
from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.definition import is_pipeline, read_pipeline
from streamfactory.spi import ConfigError, Problem, StreamError, UnknownStream
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.describing import effective as effective_values
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.pipelines.model import Draft
    from streamfactory.wiring.config.configure import Inspection
    from streamfactory.wiring.config.definition import StreamDefinition


@dataclass(frozen=True, slots=True)
class EffectiveLine:
    """One value of ``validate --effective``."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What ``validate`` found out about one stream, or one file."""

    stream: str
    """Its name; where there is no stream, what was asked for."""
    origin: str | None
    type: str | None
    valid: bool
    errors: list[Problem]
    warnings: list[Problem]
    effective: list[EffectiveLine] | None
    """None where it was not asked for, or the configuration is bad."""


@dataclass(frozen=True, slots=True)
class Validation(Result):
    """The answer of ``validate``."""

    valid: bool
    streams: list[Findings]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        for findings in self.streams:
            yield _headline(findings)
            for problem in (*findings.errors, *findings.warnings):
                yield f"  {problem.level}: {problem}"
            if findings.effective is not None:
                rows = [(e.key, e.value, e.origin) for e in findings.effective]
                yield from table([("KEY", "VALUE", "ORIGIN"), *rows], indent="  ")


@click.command("validate")
@click.argument("targets", metavar="NAME-OR-FILE...", nargs=-1, required=True)
@click.option(
    "--effective",
    is_flag=True,
    help="Show every value that holds and where it comes from; secrets masked.",
)
@click.option(
    "--no-spark",
    is_flag=True,
    help="Leave the SQL of pipelines unread; else a local Spark reads it.",
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
    overrides: dict[str, str],
    allow_class_paths: bool,
) -> Status:
    """Validate the configuration of streams and pipelines.

    NAME-OR-FILE is a stream of the catalogue, or a file: TOML, JSON, Java properties,
    an Apache Pinot table config, an Apache Hop data-stream, a pipeline. Connects to
    nothing; the SQL of pipelines is analysed by Spark on this machine.
    """

    def findings(target: str) -> Iterator[Findings]:
        try:
            definitions = Catalogue().find(target)
        except ConfigError as error:
            yield _unreadable(target, error)
            return
        for found in definitions:
            definition = found.with_overrides(overrides)
            inspection = inspect(
                definition, default_manager(), allow_class_paths=allow_class_paths
            )
            yield _findings(definition, inspection, effective=effective)

    pipelines = [Path(target) for target in targets if is_pipeline(Path(target))]
    streams = [
        found
        for target in targets
        if Path(target) not in pipelines
        for found in findings(target)
    ]
    streams += _pipeline_findings(pipelines, spark=not no_spark)
    valid = all(found.valid for found in streams)
    printer.show(Validation(valid, streams))
    return Status.FINE if valid else Status.BAD_INPUT


def _findings(
    definition: StreamDefinition, inspection: Inspection, *, effective: bool
) -> Findings:

    config = inspection.config
    lines = None
    if effective and config is not None:
        lines = [EffectiveLine(*value) for value in effective_values(config)]
    return Findings(
        definition.name,
        definition.origin,
        None if config is None else config.type,
        not inspection.errors,
        inspection.errors,
        inspection.warnings,
        lines,
    )


def _pipeline_findings(paths: Sequence[Path], *, spark: bool) -> Iterator[Findings]:
    """Of pipelines; one Spark reads the SQL of all."""
    drafts = [read_pipeline(path) for path in paths]
    with ExitStack() as stack:
        session, unread = None, "its SQL was not read: --no-spark"
        if drafts and spark:
            try:
                session = stack.enter_context(_spark(stack))
            except StreamError as error:
                unread = f"its SQL was not read: {error.what}"
        for draft in drafts:
            problems = check_draft(draft)
            if session is None:
                problems.append(Problem("sql", unread, draft.origin, level="warning"))
            else:
                sound = not any(one.level == "error" for one in problems)
                problems += _read_sql(session, draft, sound=sound)
            errors = [one for one in problems if one.level == "error"]
            rest = [one for one in problems if one.level != "error"]
            yield Findings(
                draft.name, draft.origin, "pipeline", not errors, errors, rest, None
            )


def _spark(stack: ExitStack) -> AbstractContextManager[SparkSession]:
    # Imported here: the streams of most need no Spark.
    from streamfactory.spark.pipelines.session import spark_session

    folder = stack.enter_context(TemporaryDirectory(prefix="streamfactory-"))
    return spark_session("local[1]", log=Path(folder, "spark.log"))


def _read_sql(session: SparkSession, draft: Draft, *, sound: bool) -> list[Problem]:
    from streamfactory.spark.pipelines.deadletters import declared_inflow
    from streamfactory.spark.pipelines.preparing import check_sql

    problems, schema = list[Problem](), None
    if sound and draft.pipeline is not None:
        inflow = declared_inflow(draft.pipeline)
        if inflow is None:
            what = "columns were not checked: the source declares no schema"
            hint = "`streamfactory run` asks the stream"
            problems.append(Problem("sql", what, draft.origin, hint, level="warning"))
        else:
            schema = inflow.schema
    return problems + check_sql(session, draft, schema)[1]


def _unreadable(target: str, error: ConfigError) -> Findings:

    problems: list[Problem] = list(error.problems)
    if not problems or isinstance(error, UnknownStream):
        problems.insert(0, Problem(target, error.what, suggestion=error.remedy))
    return Findings(target, None, None, False, problems, [], None)


def _headline(findings: Findings) -> str:
    place = f" ({findings.origin})" if findings.origin else ""
    counts = [
        count(len(found), noun)
        for found, noun in ((findings.errors, "error"), (findings.warnings, "warning"))
        if found
    ]
    if findings.valid:
        counts.insert(0, "ok")
    return f"{findings.stream}{place}: {', '.join(counts)}"
