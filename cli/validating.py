"""``validate``: everything that is wrong with configurations, offline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from streamfactory.cli.parameters import class_paths_flag, json_flag, set_option
from streamfactory.cli.results import Result, count, table
from streamfactory.cli.status import Status
from streamfactory.spi import ConfigError, Problem, UnknownStream
from streamfactory.wiring.catalogue import Catalogue
from streamfactory.wiring.configure import inspect
from streamfactory.wiring.describing import effective as effective_values
from streamfactory.wiring.plugins import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.configure import Inspection
    from streamfactory.wiring.definition import StreamDefinition


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
@set_option
@class_paths_flag
@json_flag
@click.pass_obj
def validate_command(
    printer: Printer,
    *,
    targets: Sequence[str],
    effective: bool,
    overrides: dict[str, str],
    allow_class_paths: bool,
) -> Status:
    """Tell every mistake in the configuration of streams.

    NAME-OR-FILE is a stream of the catalogue, or a file: TOML, JSON, Java properties,
    an Apache Pinot table config, an Apache Hop data-stream. Connects to nothing.
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

    streams = [found for target in targets for found in findings(target)]
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
