"""``run``: pipelines, from a stream through Spark into other streams."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.attached import end_with_input
from streamfactory.cli.draining import draining, rate
from streamfactory.cli.metrics_endpoint import (
    metrics_endpoint,
    metrics_option,
    remote_option,
    telemetry,
    telemetry_option,
)
from streamfactory.cli.parameters import (
    class_paths_flag,
    json_flag,
    log_format_option,
    overrides_of,
)
from streamfactory.cli.pausing import paused_line
from streamfactory.cli.printing import JsonPrinter
from streamfactory.cli.results import count
from streamfactory.cli.status import Status
from streamfactory.cli.ui_endpoint import (
    pages_endpoint,
    ui_option,
    ui_settings_option,
)
from streamfactory.spark.pipelines.detection import pipeline_engine, pipeline_path
from streamfactory.spark.pipelines.options import DATAFUSION, SPARK
from streamfactory.spi import PermanentError, StreamError
from streamfactory.wiring.controls.states import pipeline_job
from streamfactory.wiring.core.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.pipelines.model import Draft
    from streamfactory.spark.pipelines.outcomes import Batch, Outcome

_PARTITIONS: Final = 4
"""Up to this number, a line shows the lag of each partition; else the sum."""


def _settings_of(
    context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> dict[str, str]:
    """A click callback: ``KEY=VALUE``; ``spark.`` may be omitted, as in files."""
    found = overrides_of(context, parameter, given)
    return {f"spark.{key.removeprefix('spark.')}": found[key] for key in found}


def _files_of(
    _context: click.Context, _parameter: click.Parameter, given: Sequence[str]
) -> list[Path]:
    """A click callback: the files of pipelines, which may be named."""
    return [Path(pipeline_path(one)) for one in given]


@click.command("run")
@click.argument(
    "files",
    metavar="NAME-or-FILE...",
    nargs=-1,
    required=True,
    callback=_files_of,
)
@click.option("--once", is_flag=True, help="Read the rows that exist now, and end.")
@click.option("--continuous", is_flag=True, help="Run until stopped.")
@click.option(
    "--restart-on-change",
    "restart",
    is_flag=True,
    help="Where a FILE, or a stream that it uses, has changed and is valid, finish the "
    "batch and start again with it. Requires --continuous.",
)
@click.option(
    "--master",
    metavar="URL",
    default="local[*]",
    show_default=True,
    help="Spark's master.",
)
@click.option(
    "--spark",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_settings_of,
    help="A setting of Spark; takes precedence over those of FILE. Repeatable.",
)
@click.option(
    "--ship",
    is_flag=True,
    help="Send this package, and what the streams need, to executors that lack it.",
)
@click.option(
    "--reset",
    metavar="POSITION",
    help="Start at earliest, latest, a time or offsets; with ID=POSITION only the "
    "source of that id. Applied once; POSITION#LABEL applies the same position again.",
)
@click.option(
    "--ignore-checkpoint",
    "ignore",
    metavar="LABEL",
    help="Start as the options of the stream say. Applied once per label.",
)
@click.option(
    "--spark-log",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File for Spark's log; a temporary file by default.",
)
@click.option(
    "--until-input-ends",
    "attached",
    is_flag=True,
    hidden=True,
    help="The end of the standard input is a SIGTERM: for programs that start this.",
)
@class_paths_flag
@metrics_option
@remote_option
@ui_option
@ui_settings_option
@telemetry_option
@log_format_option
@json_flag
@click.pass_obj
def run_command(
    printer: Printer,
    /,
    *,
    files: Sequence[Path],
    once: bool,
    continuous: bool,
    restart: bool,
    master: str,
    settings: dict[str, str],
    ship: bool,
    reset: str | None,
    ignore: str | None,
    spark_log: Path | None,
    attached: bool,
    allow_class_paths: bool,
    metrics: str | None,
    metrics_remote: bool,
    ui_address: str | None,
    ui_settings: dict[str, str],
    opentelemetry: bool,
) -> Status:
    """Run pipelines: from a stream, through Spark, into other streams.

    FILE is the TOML file of a pipeline; several pipelines run concurrently. Each
    continues from its checkpoint, exactly once. SIGINT and SIGTERM finish the batch; a
    second one stops at once. With --json, prints one line per batch, and one at the
    end.
    """
    if once and continuous:
        msg = "--once and --continuous exclude each other."
        raise click.UsageError(msg)
    if restart and (ship or not continuous):
        msg = "--restart-on-change requires --continuous, and excludes --ship."
        raise click.UsageError(msg)
    if ship and master.startswith("local"):
        msg = "--ship needs the --master of a cluster: here the package is installed."
        raise click.UsageError(msg)
    if attached:
        end_with_input()
    pace = "once" if once else "continuous" if continuous else None
    endpoint = metrics_endpoint(
        metrics, printer, allow_remote=metrics_remote, problems=_failed_pipelines
    )
    pages = pages_endpoint(ui_address, ui_settings, printer, files)
    with endpoint, pages, telemetry(opentelemetry), ExitStack() as stack:
        if spark_log is None:
            folder = Path(tempfile.mkdtemp(prefix="streamfactory-"))
            spark_log = folder / "spark.log"
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        over = (pace, reset, ignore, settings, allow_class_paths)
        try:
            outcomes = _outcomes(
                printer, files, over, master, spark_log, ship=ship, restart=restart
            )
        except PermanentError:
            if spark_log.exists():
                stack.pop_all()  # keep the log: the error names it
            raise
        if spark_log.exists() and any(one.failure is not None for one in outcomes):
            stack.pop_all()  # keep the log
            printer.note("note", f"Spark's log is {spark_log}")
    if any(one.failure is not None for one in outcomes):
        return Status.FAILED
    done = all(one.complete for one in outcomes)
    return Status.FINE if done else Status.INTERRUPTED


def _failed_pipelines() -> list[str]:
    """For health checks: other pipelines of the process may still run."""
    from streamfactory.wiring.metrics.snapshot import metrics

    failures = metrics().select("pipeline.failures")
    return [f"pipeline {one.labels[0]!r} has failed" for one in failures if one.value]


def _outcomes(
    printer: Printer,
    files: Sequence[Path],
    over: tuple[str | None, str | None, str | None, dict[str, str], bool],
    master: str,
    log: Path,
    *,
    ship: bool,
    restart: bool,
) -> list[Outcome]:
    """Run the pipelines and print their progress and results."""
    engines = {pipeline_engine(path) or SPARK for path in files}
    if engines == {DATAFUSION}:
        return _rowwise(printer, files, over, restart=restart)
    if DATAFUSION in engines:
        msg = "pipelines of two engines need a command each."
        raise click.UsageError(msg)
    # Imported here: they load Spark.
    from streamfactory.spark.pipelines.session import check_installed, spark_session

    check_installed()
    from streamfactory.spark.pipelines.overriding import Overrides
    from streamfactory.spark.pipelines.together import Pipelines
    from streamfactory.spark.pipelines.watching import run_watched

    overrides = Overrides(*over)
    pipelines = Pipelines(files, overrides)
    if not pipelines.drafts:
        pipelines.refuse()  # at once: Spark, which reads the SQL, would find no more
    lines = _Lines(printer)
    with ExitStack() as stack:
        settings = pipelines.settings
        if ship:
            printer.progress("packing what executors need ...")
            settings = stack.enter_context(_shipped(settings, pipelines.drafts))
        printer.progress("starting Spark ...")
        stack.callback(printer.progress, "")
        try:
            started = spark_session(
                master, settings, log=log, json_log=printer.logs_json
            )
            spark = stack.enter_context(started)
        except StreamError:
            pipelines.refuse()  # problems of the files are reported first
            raise
        # Only here: PySpark installs a handler of SIGINT as it starts.
        stop = stack.enter_context(draining(patient=True))
        outcomes = run_watched(
            files,
            overrides,
            stop,
            lambda halt: Pipelines(files, overrides).run(spark, halt, lines.show),
            (lambda: Pipelines(files, overrides).check(spark)) if restart else None,
        )
        lines.end(outcomes)
    return outcomes


def _rowwise(
    printer: Printer,
    files: Sequence[Path],
    over: tuple[str | None, str | None, str | None, dict[str, str], bool],
    *,
    restart: bool,
) -> list[Outcome]:
    """The same without Spark."""
    # Imported here: DataFusion, and Arrow.
    from streamfactory.spark.pipelines.overriding import Overrides
    from streamfactory.spark.pipelines.rowwise.running import run_rowwise
    from streamfactory.spark.pipelines.watching import run_watched

    lines, overrides = _Lines(printer), Overrides(*over)
    with draining() as stop:
        outcomes = run_watched(
            files,
            overrides,
            stop,
            lambda halt: run_rowwise(files, overrides, halt, lines.show),
            (lambda: None) if restart else None,
        )
        lines.end(outcomes)
    return outcomes


@contextmanager
def _shipped(
    settings: dict[str, str], drafts: Sequence[Draft]
) -> Iterator[dict[str, str]]:
    """Settings of Spark with the packages that executors need, while it runs."""
    from streamfactory.spark.pipelines.archive import ship, use_bare_python

    use_bare_python()
    with tempfile.TemporaryDirectory(prefix="streamfactory-") as folder:
        streams = [stream for draft in drafts for stream in draft.streams]
        yield ship(settings, streams, Path(folder))


class _Lines:
    """A line per batch: one that replaces the previous one, or JSON."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._json = isinstance(printer, JsonPrinter)

    def show(self, batch: Batch) -> None:
        """Show one batch."""
        if self._json:
            click.echo(json.dumps(batch.plain(), ensure_ascii=False))
            sys.stdout.flush()
        if self._printer.logs_json:
            self._log(batch)
        if self._json:
            return
        text = f"{batch.pipeline}: batch {batch.batch}  {batch.rows:,} rows  "
        text += f"{batch.rows_per_second:,.0f} rows/s  lag {_lag(batch)}"
        if batch.watermark is not None:
            text += f"  watermark {batch.watermark}"
        self._printer.progress(text)

    def _log(self, batch: Batch) -> None:
        self._printer.note(
            "batch",
            f"batch {batch.batch} is committed: {count(batch.rows, 'row')}",
            pipeline=batch.pipeline,
            batch=batch.batch,
            rows=batch.rows,
            offsets=batch.offsets,
            lag=batch.lag,
        )

    def end(self, outcomes: Sequence[Outcome]) -> None:
        """Show the results of all pipelines."""
        self._printer.progress("")
        if self._printer.logs_json:
            for one in outcomes:
                _log_end(self._printer, one)
        pipelines = [_document(one) for one in outcomes]
        document = {"pipelines": pipelines}
        if self._json:
            click.echo(json.dumps(document, ensure_ascii=False))
        else:
            self._printer.show(document, _end_lines(pipelines))


def _log_end(printer: Printer, outcome: Outcome) -> None:
    pipeline, failure = outcome.pipeline, outcome.failure
    if failure is None:
        printer.note("note", f"pipeline {pipeline!r} ended", pipeline=pipeline)
    else:
        what = f"pipeline {pipeline!r} failed: {failure}"
        printer.note("error", what, pipeline=pipeline)


def _lag(batch: Batch) -> str:
    parts = [n for by_id in batch.lag.values() for n in by_id.values()]
    if not parts:
        return "unknown"
    if 1 < len(parts) <= _PARTITIONS:
        return "+".join(map(str, parts))
    return f"{batch.behind:,}"


def _document(outcome: Outcome) -> dict[str, Any]:
    last = outcome.last
    status = "stopped" if outcome.stopped else "finished"
    return {
        "pipeline": outcome.pipeline,
        "status": "failed" if outcome.failure is not None else status,
        "complete": outcome.complete,
        "began": outcome.went_on,
        "guarantee": outcome.promise,
        "written": {way.sink: str(way) for way in outcome.ways if way.notable},
        "batches": outcome.batches,
        "rows": outcome.rows,
        "seconds": round(outcome.seconds, 3),
        "rows_per_second": rate(outcome.rows, outcome.seconds),
        "dropped": outcome.dropped,
        "expectations": dict(outcome.unmet),
        "offsets": {} if last is None else last.offsets,
        "lag": {} if last is None else last.lag,
        "watermark": None if last is None else last.watermark,
        "pause": plain(outcome.pause),
        "changed": list(outcome.changes),
        "error": outcome.failure,
    }


def _end_lines(pipelines: Sequence[dict[str, Any]]) -> Iterator[str]:
    for one in pipelines:
        rows = f"{count(one['rows'], 'row')} in {count(one['batches'], 'batch')}"
        speed = f"{one['seconds']:.2f} s, {one['rows_per_second']} rows/s"
        yield f"{one['pipeline']}: {one['status']}, {rows}, {speed}"
        yield f"  began: {one['began']}"
        yield f"  guarantee: {one['guarantee']}"
        for sink, way in one["written"].items():
            yield f"  sink {sink}: written by {way}"
        if one["offsets"]:
            yield f"  offsets: {json.dumps(one['offsets'], sort_keys=True)}"
        if one["watermark"] is not None:
            yield f"  watermark: {one['watermark']}"
        if one["dropped"]:
            yield f"  dropped behind the watermark: {one['dropped']}"
        for name, rows in one["expectations"].items():
            yield f"  expectation {name}: {count(rows, 'row')} did not fulfil it"
        for change in one["changed"]:
            yield f"  changed since it started: {change}"
        if one["error"] is not None:
            yield f"  error: {one['error']}"
        elif one["pause"] is not None:
            yield f"  {paused_line(pipeline_job(one['pipeline']), one['pause'])}"
        elif not one["complete"]:
            yield "  stopped before the end: the same command continues from there"
