"""``conformance``: proves a backend, a decoder, or a scheme of references."""

from __future__ import annotations

import fnmatch
import logging
import os
import shlex
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.mutating import mutated
from streamfactory.cli.parameters import json_flag, one_definition
from streamfactory.cli.results import count, table
from streamfactory.cli.status import Status
from streamfactory.conformance.benchmark import Figure, measure
from streamfactory.conformance.limits import SECONDS
from streamfactory.conformance.mutating import Plan, read_equivalents
from streamfactory.conformance.report import FORMATS, Report, to_plain
from streamfactory.conformance.runner import (
    all_cases,
    decoder_cases,
    run,
    scheme_cases,
)
from streamfactory.conformance.subject import (
    TYPE_KEYS,
    find_decoder,
    find_scheme,
    find_subject,
    stream_type,
)
from streamfactory.conformance.waivers import Waiver, read_waivers, waived
from streamfactory.spi import ConfigError
from streamfactory.spi.references import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.conformance.case import Case
    from streamfactory.conformance.runner import Provable
    from streamfactory.conformance.subject import Subject

log = logging.getLogger("streamfactory")


@click.command("conformance")
@click.argument("type_name", metavar="[TYPE]", required=False)
@click.option("--decoder", metavar="NAME", help="Prove this decoder instead.")
@click.option(
    "--scheme", metavar="NAME", help="Prove this scheme of references instead."
)
@click.option(
    "--config",
    metavar="NAME-OR-FILE",
    help="A stream whose properties go over those of the harness.",
)
@click.option(
    "--harness",
    metavar="MODULE:CLASS",
    help="Import this harness, from the current folder too; else the registered one.",
)
@click.option(
    "--only",
    metavar="PATTERN",
    multiple=True,
    help="Run cases of this name or rule, * for any letters (R*); repeatable.",
)
@click.option(
    "--benchmark", is_flag=True, help="Measure instead: fetches, rows, commits."
)
@click.option("--quick", is_flag=True, help="Skip slow cases.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Where chance begins."
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="What one case may take.",
)
@click.option(
    "--report",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="How to write the report.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the report there, and text here.",
)
@click.option(
    "--mutate",
    type=click.IntRange(min=1),
    metavar="N",
    help="Plant N small defects in the backend instead; name those no case notices.",
)
@click.option(
    "--mutate-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="When to plant no further defect.",
)
@click.option(
    "--mutate-harness",
    "more",
    metavar="MODULE:CLASS",
    multiple=True,
    help="Try each defect with the cases of this harness, too; repeatable.",
)
@click.option(
    "--equivalents",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Changes that --mutate leaves out: TOML, each with a reason.",
)
@click.option(
    "--waivers",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Known failures: TOML, each with case, reason and expires.",
)
@json_flag
@click.pass_obj
def conformance_command(printer: Printer, /, **options: Any) -> Status:
    """Prove the backend of a stream TYPE, a decoder, or a scheme of references.

    Runs every case that the claims of the backend and the abilities of its harness
    allow. A case that they exclude is skipped, and says by which. Status 1 where a case
    failed, or a waiver is expired or stale.
    """
    request = _Request(**options)
    request.refuse_combinations()
    # Harnesses refer to secrets in the folders of cases.
    os.environ.setdefault(FOLDERS, tempfile.gettempdir())
    if request.harness is not None or request.more:
        # A console script does not look where it is started; `python -m` does.
        sys.path.append(str(Path.cwd()))
    if request.benchmark:
        return _measured(printer, request.name, request.harness)
    if request.mutate is not None:
        return mutated(printer, request.plan(request.mutate))
    return _proved(printer, request)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The options of the command, each by its name there."""

    type_name: str | None
    decoder: str | None
    scheme: str | None
    config: str | None
    harness: str | None
    only: Sequence[str]
    benchmark: bool
    quick: bool
    seed: int
    time_limit: float
    form: str
    output: Path | None
    mutate: int | None
    mutate_limit: float
    more: Sequence[str]
    equivalents: Path | None
    waivers: Path | None

    @property
    def name(self) -> str:
        """Name of the stream type, of the decoder, or of the scheme."""
        return str(self.type_name or self.decoder or self.scheme).lower()

    def refuse_combinations(self) -> None:
        """Raise a usage error unless the subject and its options fit together."""
        subjects = (self.type_name, self.decoder, self.scheme)
        if sum(one is not None for one in subjects) != 1:
            msg = "Give a stream TYPE, --decoder NAME, or --scheme NAME."
            raise click.UsageError(msg)
        of_types = {
            "--config": self.config is not None,
            "--benchmark": self.benchmark,
            "--mutate": self.mutate is not None,
        }
        for option, given in of_types.items():
            if given and self.type_name is None:
                msg = f"{option} is for stream types."
                raise click.UsageError(msg)

    def backend(self, harness: str | None) -> Subject:
        """The backend with a harness, and the properties of the configuration."""
        subject = find_subject(self.name, harness)
        path = self.config
        overrides = {} if path is None else _properties(path, subject.name)
        return replace(subject, overrides=overrides)

    def chosen(self, cases: Sequence[Case[Any]]) -> list[Case[Any]]:
        """Those of the cases that are to be run."""
        for pattern in self.only:
            if not any(_matches(case, pattern) for case in cases):
                there = count(len(cases), "case")
                msg = f"no case matches {pattern!r}; there are {there}."
                raise click.BadParameter(msg, param_hint="'--only'")
        only = self.only
        return [c for c in cases if not only or any(_matches(c, p) for p in only)]

    def waived(self, cases: Iterable[Case[Any]]) -> dict[str, Waiver]:
        """The waivers of the file, by case; none without a file."""
        path, names = self.waivers, {case.name for case in cases}
        return {} if path is None else read_waivers(path, names)

    def plan(self, mutants: int) -> Plan:
        """The plan of so many mutants."""
        cases, named = [*all_cases()], self.equivalents
        left = self.waived(cases)
        return Plan(
            self.backend(self.harness),
            [
                case
                for case in self.chosen(cases)
                if case.name not in left and not (self.quick and case.slow)
            ],
            self.harness,
            count=mutants,
            seed=self.seed,
            time_limit=self.time_limit,
            seconds=self.mutate_limit,
            equivalents=() if named is None else read_equivalents(named),
            more={path: self.backend(path) for path in self.more},
        )


def _proved(printer: Printer, request: _Request) -> Status:
    cases: list[Case[Any]]
    subject: Provable[Any]
    if request.decoder is not None:
        cases = [*decoder_cases()]
        subject = find_decoder(request.name, request.harness)
        target = ["--decoder", subject.name]
    elif request.scheme is not None:
        cases = [*scheme_cases()]
        subject = find_scheme(request.name, request.harness)
        target = ["--scheme", subject.name]
    else:
        cases, subject = [*all_cases()], request.backend(request.harness)
        target = [subject.name]
    chosen, waivers = request.chosen(cases), request.waived(cases)
    seed, started = request.seed, time.monotonic()
    with quiet_log():
        results = run(
            subject,
            cases=_announced(chosen, printer),
            quick=request.quick,
            seed=seed,
            time_limit=request.time_limit,
        )
        found = tuple(waived(results, waivers))
    printer.progress("")
    seconds = time.monotonic() - started
    command = _again(target, request.config, request.harness, seed)
    report = Report(subject.name, found, seconds, seed, command, subject.claims)
    return _shown(printer, report, request.form, request.output)


def _measured(printer: Printer, name: str, harness: str | None) -> Status:
    subject = find_subject(name, harness)
    figures: list[Figure] = []
    with quiet_log(), tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        for figure in measure(subject, Path(folder)):
            printer.progress(f"{figure.name}, {figure.unit}")
            figures.append(figure)
    printer.progress("")
    name = subject.backend.name
    rows = [
        [f.name, f"{f.value:,.2f}", f.unit, f"+-{100 * f.spread:.0f} %"]
        for f in figures
    ]
    lines = [f"{name}: measured on this machine, now", *table(rows, indent="  ")]
    printer.show({"type": name, "figures": figures}, lines)
    return Status.FINE


def _matches(case: Case[Any], pattern: str) -> bool:
    by_rule = fnmatch.fnmatchcase(case.rule, pattern.upper())
    return by_rule or fnmatch.fnmatchcase(case.name, pattern)


def _properties(config: str, type_name: str) -> dict[str, str]:
    """The properties of a stream, without its type, which has to agree."""
    definition = one_definition(config, {})
    written = {prop.key: prop.text for prop in definition.properties}
    named = stream_type(written)
    if named not in (None, type_name):
        msg = f"{config} is a stream of type {named!r}, not {type_name!r}"
        raise ConfigError(msg)
    return {k: text for k, text in written.items() if k.lower() not in TYPE_KEYS}


def _announced(cases: Sequence[Case[Any]], printer: Printer) -> Iterator[Case[Any]]:
    """The cases, each printed as it runs."""
    for number, case in enumerate(cases, start=1):
        printer.progress(f"[{number}/{len(cases)}] {case.rule} {case.name}")
        yield case


@contextmanager
def quiet_log() -> Iterator[None]:
    """Keep warnings to ourselves: the cases provoke what they are about.

    The log stays as it is for other listeners, as cases about secrets do.
    """
    levels = [(handler, handler.level) for handler in log.handlers]
    if log.getEffectiveLevel() > logging.DEBUG:
        for handler, _ in levels:
            handler.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for handler, level in levels:
            handler.setLevel(level)


def _shown(printer: Printer, report: Report, form: str, output: Path | None) -> Status:
    """Print the report; with an output write it there, and print it as text."""
    if output is not None:
        _write(output, FORMATS[form](report))
    lines = FORMATS[form if output is None else "text"](report).splitlines()
    printer.show(to_plain(report), lines)
    return Status.FAILED if report.failed else Status.FINE


def _again(
    target: Sequence[str], config: str | None, harness: str | None, seed: int
) -> str:
    words = ["streamfactory", "conformance", *target]
    words += ["--config", config] if config else []
    words += ["--harness", harness] if harness else []
    words += ["--seed", str(seed)] if seed else []
    return shlex.join(words)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"the report {str(path)!r} cannot be written: {error.strerror}"
        raise ConfigError(msg) from error
