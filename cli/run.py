"""``run``: pipelines, from a stream through Spark into other streams."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.draining import draining, rate
from streamfactory.cli.parameters import json_flag, overrides_of
from streamfactory.cli.printing import JsonPrinter
from streamfactory.cli.results import Result, count
from streamfactory.cli.status import Status
from streamfactory.spi import PermanentError, StreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.pipelines.progress import Batch
    from streamfactory.spark.pipelines.running import Outcome

_PARTITIONS: Final = 4
"""Partitions whose lag has a place in a line; of more, the sum is shown."""


@dataclass(frozen=True, slots=True)
class PipelineEnd:
    """What became of one pipeline."""

    pipeline: str
    status: str
    """``finished``, ``stopped`` or ``failed``."""
    complete: bool
    """Whether it has done what it was to do: one without an end has, if stopped."""
    began: str
    guarantee: str
    batches: int
    rows: int
    seconds: float
    rows_per_second: int
    dropped: int
    offsets: dict[str, dict[str, int]]
    lag: dict[str, dict[str, int]]
    watermark: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class RunAnswer(Result):
    """The answer of ``run``."""

    pipelines: list[PipelineEnd]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        for one in self.pipelines:
            batches = f"{one.batches} batch{'es' * (one.batches != 1)}"
            told = f"{count(one.rows, 'row')} in {batches}"
            speed = f"{one.seconds:.2f} s, {one.rows_per_second} rows/s"
            yield f"{one.pipeline}: {one.status}, {told}, {speed}"
            yield f"  began: {one.began}"
            yield f"  guarantee: {one.guarantee}"
            if one.offsets:
                yield f"  offsets: {json.dumps(one.offsets, sort_keys=True)}"
            if one.watermark is not None:
                yield f"  watermark: {one.watermark}"
            if one.dropped:
                yield f"  dropped behind the watermark: {one.dropped}"
            if one.error is not None:
                yield f"  error: {one.error}"
            elif not one.complete:
                yield "  stopped before the end: the same command goes on from there"


def _settings_of(
    context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> dict[str, str]:
    """``KEY=VALUE``; ``spark.`` may be left out, as in the files."""
    found = overrides_of(context, parameter, given)
    return {f"spark.{key.removeprefix('spark.')}": found[key] for key in found}


@click.command("run")
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@click.option("--once", is_flag=True, help="Read what there is now, and end.")
@click.option("--continuous", is_flag=True, help="Go on until stopped.")
@click.option(
    "--master",
    metavar="URL",
    default="local[*]",
    show_default=True,
    help="Where Spark runs.",
)
@click.option(
    "--spark",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_settings_of,
    help="A setting of Spark, before those of files; may be given several times.",
)
@click.option(
    "--reset",
    metavar="POSITION",
    help="Begin at earliest, latest, a time or offsets, once: POSITION#LABEL again.",
)
@click.option(
    "--ignore-checkpoint",
    "ignore",
    metavar="LABEL",
    help="Begin as the stream's options say, once for each label.",
)
@click.option(
    "--spark-log",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where Spark's own log goes; else a temporary file.",
)
@json_flag
@click.pass_obj
def run_command(
    printer: Printer,
    /,
    *,
    files: Sequence[Path],
    once: bool,
    continuous: bool,
    master: str,
    settings: dict[str, str],
    reset: str | None,
    ignore: str | None,
    spark_log: Path | None,
) -> Status:
    """Run pipelines: from a stream, through Spark, into other streams.

    FILE is the TOML file of a pipeline; several run side by side. Each goes on from
    its checkpoint, exactly once. SIGINT and SIGTERM finish the batch; a second one
    stops at once. With --json each batch is a line, and the end another one.
    """
    if once and continuous:
        msg = "--once and --continuous exclude each other."
        raise click.UsageError(msg)
    pace = "once" if once else "continuous" if continuous else None
    with ExitStack() as stack:
        if spark_log is None:
            folder = Path(tempfile.mkdtemp(prefix="streamfactory-"))
            spark_log = folder / "spark.log"
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        over = (pace, reset, ignore, settings)
        try:
            outcomes = _outcomes(printer, files, over, master, spark_log)
        except PermanentError:
            stack.pop_all()  # the log stays: the error names it
            raise
        if any(one.failure is not None for one in outcomes):
            stack.pop_all()  # the log stays
            printer.note("note", f"Spark's log is {spark_log}")
    if any(one.failure is not None for one in outcomes):
        return Status.FAILED
    done = all(one.complete for one in outcomes)
    return Status.FINE if done else Status.INTERRUPTED


def _outcomes(
    printer: Printer,
    files: Sequence[Path],
    over: tuple[str | None, str | None, str | None, dict[str, str]],
    master: str,
    log: Path,
) -> list[Outcome]:
    """Start Spark, run the pipelines and tell of them."""
    # Imported here: they load Spark.
    from streamfactory.spark.pipelines.session import check_installed, spark_session

    check_installed()
    from streamfactory.spark.pipelines.together import Overrides, Pipelines

    pipelines = Pipelines(files, Overrides(*over))
    lines = _Lines(printer)
    with ExitStack() as stack:
        printer.progress("starting Spark ...")
        stack.callback(printer.progress, "")
        try:
            started = spark_session(master, pipelines.settings, log=log)
            spark = stack.enter_context(started)
        except StreamError:
            pipelines.refuse()  # what is wrong with the files comes first
            raise
        # Only here: PySpark takes SIGINT for itself as it starts.
        stop = stack.enter_context(draining())
        outcomes = pipelines.run(spark, stop, lines.tell)
        printer.progress("")
        lines.end(RunAnswer([_end(one) for one in outcomes]))
    return outcomes


class _Lines:
    """A line for each batch: in place of the one before, or of JSON."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._json = isinstance(printer, JsonPrinter)

    def tell(self, batch: Batch) -> None:
        """Show one batch."""
        if self._json:
            click.echo(json.dumps(batch.plain(), ensure_ascii=False))
            sys.stdout.flush()
            return
        text = f"{batch.pipeline}: batch {batch.batch}  {batch.rows:,} rows  "
        text += f"{batch.rows_per_second:,.0f} rows/s  lag {_lag(batch)}"
        if batch.watermark is not None:
            text += f"  watermark {batch.watermark}"
        self._printer.progress(text)

    def end(self, answer: RunAnswer) -> None:
        """Show what became of all."""
        if self._json:
            click.echo(json.dumps(answer.plain(), ensure_ascii=False))
        else:
            self._printer.show(answer)


def _lag(batch: Batch) -> str:
    parts = [n for by_id in batch.lag.values() for n in by_id.values()]
    if 1 < len(parts) <= _PARTITIONS:
        return "+".join(map(str, parts))
    return f"{batch.behind:,}"


def _end(outcome: Outcome) -> PipelineEnd:
    last = outcome.last
    status = "stopped" if outcome.stopped else "finished"
    known: dict[str, Any] = {"offsets": {}, "lag": {}, "watermark": None}
    if last is not None:
        known = {name: getattr(last, name) for name in known}
    return PipelineEnd(
        pipeline=outcome.pipeline,
        status="failed" if outcome.failure is not None else status,
        began=outcome.went_on,
        guarantee=outcome.promise,
        batches=outcome.batches,
        rows=outcome.rows,
        seconds=round(outcome.seconds, 3),
        rows_per_second=rate(outcome.rows, outcome.seconds),
        complete=outcome.complete,
        dropped=outcome.dropped,
        error=outcome.failure,
        **known,
    )
