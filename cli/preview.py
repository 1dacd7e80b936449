"""``preview``: what a pipeline makes of the first rows of its sources."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.attached import end_with_input, read_text
from streamfactory.cli.parameters import class_paths_flag, json_flag
from streamfactory.cli.results import count
from streamfactory.cli.rows import Table
from streamfactory.cli.status import Status
from streamfactory.spark.pipelines.detection import pipeline_engine, pipeline_path
from streamfactory.spark.pipelines.options import DATAFUSION
from streamfactory.wiring.core.values import encode_base64, plain_members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.pipelines.sampling import Sample


@click.command("preview")
@click.argument("pipeline", metavar="NAME-or-FILE")
@click.option(
    "--rows",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Most rows of each source and step.",
)
@click.option(
    "--stdin",
    "unsaved",
    is_flag=True,
    help="Read the text of FILE from standard input: it need not be saved.",
)
@click.option(
    "--until-input-ends",
    "attached",
    is_flag=True,
    hidden=True,
    help="The text of --stdin ends with a null character, and the end of the standard "
    "input is a SIGTERM: for programs that start this.",
)
@class_paths_flag
@json_flag
@click.pass_obj
def preview_command(
    printer: Printer,
    *,
    pipeline: str,
    rows: int,
    unsaved: bool,
    attached: bool,
    allow_class_paths: bool,
) -> Status:
    """Show what a pipeline makes of the first rows of its sources.

    Reads up to N rows of each source, from its start options or else the earliest, and
    shows them, and the rows of each step. Steps see these rows only. Nothing is
    written, and no position is saved. Spark runs on this machine, unless the engine of
    the pipeline is datafusion.
    """
    path = Path(pipeline) if unsaved else Path(pipeline_path(pipeline))
    texts = None
    if unsaved:
        texts = {path: read_text() if attached else sys.stdin.read()}
    if attached:
        end_with_input()
    if pipeline_engine(path, texts) == DATAFUSION:
        # Imported here: DataFusion, and Arrow.
        from streamfactory.spark.pipelines.overriding import Overrides
        from streamfactory.spark.pipelines.rowwise.previewing import preview_rowwise

        over = Overrides(allow_class_paths=allow_class_paths)
        samples = preview_rowwise(path, rows, over, texts)
    else:
        samples = _by_spark(printer, path, rows, texts, allowed=allow_class_paths)
    document = [{"id": one.id, "rows": _plain(one.rows)} for one in samples]
    printer.show({"ids": document}, _lines(samples))
    return Status.FINE


def _by_spark(
    printer: Printer,
    path: Path,
    rows: int,
    texts: Mapping[Path, str] | None,
    *,
    allowed: bool,
) -> list[Sample]:
    # Imported here: they load Spark.
    from streamfactory.spark.pipelines.session import check_installed, spark_session

    check_installed()
    from streamfactory.spark.pipelines.overriding import Overrides
    from streamfactory.spark.pipelines.together import Pipelines

    over = Overrides(allow_class_paths=allowed)
    pipelines = Pipelines([path], over, texts)
    pipelines.refuse()  # at once: Spark takes seconds to start
    printer.progress("starting Spark ...")
    with TemporaryDirectory(prefix="streamfactory-") as folder:
        log, settings = Path(folder, "spark.log"), pipelines.settings
        with spark_session("local[1]", settings, log=log, brief=True) as spark:
            samples = pipelines.preview(spark, rows)
    printer.progress("")
    return samples


def _plain(rows: pa.Table) -> list[Any]:
    """Rows as values for JSON."""
    columns = rows.combine_chunks().to_batches()[0].columns if rows.num_rows else []
    return plain_members(rows.column_names, columns, rows.num_rows, encode_base64)


def _lines(samples: Sequence[Sample]) -> Iterator[str]:
    for sample in samples:
        yield f"{sample.id}: {count(sample.rows.num_rows, 'row')}"
        table = Table(sample.rows.column_names)
        for batch in sample.rows.combine_chunks().to_batches():
            yield from (f"  {line}" for line in table.lines(batch))
