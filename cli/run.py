"""``run``: pipelines, from a stream through Spark into other streams."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.draining import draining, rate
from streamfactory.cli.parameters import json_flag, overrides_of
from streamfactory.cli.results import Result, count
from streamfactory.cli.status import Status

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
    began: str
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
            told = f"{count(one.rows, 'row')} in {count(one.batches, 'batch')}"
            told = told.replace("batchs", "batches")
            speed = f"{one.seconds:.1f} s, {one.rows_per_second} rows/s"
            yield f"{one.pipeline}: {one.status}, {told}, {speed}"
            yield f"  began: {one.began}"
            if one.offsets:
                yield f"  offsets: {json.dumps(one.offsets, sort_keys=True)}"
            if one.dropped:
                yield f"  dropped after the watermark: {one.dropped}"
            if one.error is not None:
                yield f"  error: {one.error}"


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
    callback=overrides_of,
    help="A setting of Spark; may be given several times.",
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
    # Imported here: they load Spark.
    from streamfactory.spark.pipelines.session import spark_session
    from streamfactory.spark.pipelines.together import Overrides, Pipelines

    pace = "once" if once else "continuous" if continuous else None
    pipelines = Pipelines(files, Overrides(pace, reset, ignore))
    with ExitStack() as stack:
        stop = stack.enter_context(draining())
        if spark_log is None:
            spark_log = Path(tempfile.mkdtemp(prefix="streamfactory-"), "spark.log")
        wanted = pipelines.settings | settings
        printer.progress("starting Spark ...")
        spark = stack.enter_context(spark_session(master, wanted, log=spark_log))
        printer.progress("")
        lines = _Lines(printer)
        outcomes = pipelines.run(spark, stop, lines.tell)
        printer.progress("")
        failed = [one for one in outcomes if one.failure is not None]
        answer = RunAnswer([_end(one) for one in outcomes])
        if lines.json:
            click.echo(json.dumps({"pipelines": answer.plain()["pipelines"]}))
        else:
            printer.show(answer)
        if failed:
            printer.note("note", f"Spark's log is {spark_log}")
            return Status.FAILED
        cut = any(one.stopped for one in outcomes)
        return Status.INTERRUPTED if cut and not continuous else Status.FINE


class _Lines:
    """A line for each batch: in place of the one before, or of JSON."""

    def __init__(self, printer: Printer) -> None:
        from streamfactory.cli.printing import JsonPrinter

        self._printer = printer
        self.json = isinstance(printer, JsonPrinter)

    def tell(self, batch: Batch) -> None:
        """Show one."""
        if self.json:
            click.echo(json.dumps(batch.plain()))
            sys.stdout.flush()
            return
        text = f"{batch.pipeline}: batch {batch.batch}  {batch.rows:,} rows  "
        text += f"{batch.rows_per_second:,.0f} rows/s  lag {_lag(batch)}"
        if batch.watermark is not None:
            text += f"  watermark {batch.watermark}"
        self._printer.progress(text)


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
        batches=outcome.batches,
        rows=outcome.rows,
        seconds=round(outcome.seconds, 3),
        rows_per_second=rate(outcome.rows, outcome.seconds),
        dropped=outcome.dropped,
        error=outcome.failure,
        **known,
    )
