"""``lag``: how far pipelines and groups are behind their streams."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.checkpoint.comparing import partition_lines
from streamfactory.cli.draining import draining
from streamfactory.cli.importing import uncollected
from streamfactory.cli.parameters import interval_of, json_flag
from streamfactory.cli.printing import JsonPrinter
from streamfactory.cli.results import count, number, table
from streamfactory.cli.status import Status, status_of
from streamfactory.spark.locating import NotRunYet
from streamfactory.spark.pipelines.detection import is_pipeline, stream_or_pipeline
from streamfactory.spark.pipelines.watching import noted_changes
from streamfactory.spark.targets import all_targets, target_lags
from streamfactory.spi import StreamError, Unsupported
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.controls.states import Controls, Pause
from streamfactory.wiring.core.bounded import concurrently
from streamfactory.wiring.core.defects import with_code
from streamfactory.wiring.core.guard import looking_once
from streamfactory.wiring.core.plain import plain, total
from streamfactory.wiring.reading.lag import lag_text, skipped_of, waiting_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.targets import TargetLag

Document = dict[str, Any]

_NOT_MEASURED: Final = (Unsupported, NotRunYet)
_AT_ONCE: Final = 8
"""Targets that are measured concurrently: an unreachable one delays no other."""
_CLEAR: Final = "\033[H\033[J"


@click.command("lag")
@click.argument("targets", metavar="[STREAM|PIPELINE|GROUP]...", nargs=-1)
@click.option("--partitions", is_flag=True, help="Show the lag of each partition.")
@click.option("--watch", is_flag=True, help="Repeat until stopped.")
@click.option(
    "--every",
    metavar="PERIOD",
    help="With --watch: the interval; 5s by default.",
)
@json_flag
@click.pass_obj
def lag_command(
    printer: Printer,
    *,
    targets: Sequence[str],
    partitions: bool,
    watch: bool,
    every: str | None,
) -> Status:
    """Show the lag of pipelines and groups.

    STREAM shows all groups that have a position in it, PIPELINE (a name or file) the
    next batch, GROUP the streams of the catalogue that it reads. Of a stream and a
    pipeline of one name it is the stream; name the pipeline's file. By default, all
    streams of the catalogue, and the pipelines in the folder pipelines beside it. The
    lag is the number of messages from the position to the latest offset; of a table
    also the number of commits. Shows all jobs that are paused, and running pipelines
    whose files changed since they began. If some cannot be measured, the others are
    shown, and the status is the highest of their errors. Needs no Spark, and changes
    nothing. With --watch --json, prints one line per round.
    """
    if every is not None and not watch:
        msg = "--every requires --watch."
        raise click.UsageError(msg)
    every = every or "5s"
    interval = interval_of(every, least=0.1)
    if not watch:
        found = _measure(printer, targets)
        assert found is not None
        document, errors = found
        printer.show(document, _lines(document, errors, detailed=partitions))
        return max(map(status_of, errors.values()), default=Status.FINE)
    with draining() as stop:
        while not stop.is_set():
            # Each round opens its streams, whose secrets are masked.
            with printer.masking():
                found = _measure(printer, targets, stop)
                if found is None:
                    break
                document, errors = found
                lines = _lines(document, errors, detailed=partitions)
                if isinstance(printer, JsonPrinter):
                    printer.line(document)
                else:
                    click.echo(_CLEAR if sys.stdout.isatty() else "", nl=False)
                    printer.show(document, lines)
            stop.wait(max(0.1, interval))
    return Status.FINE


def _measure(
    printer: Printer, targets: Sequence[str], stop: threading.Event | None = None
) -> tuple[Document, dict[str, StreamError]] | None:
    """The lag of all targets, and the errors of some; None after the stop."""
    catalogue = Catalogue().snapshot()
    wanted = [stream_or_pipeline(target, catalogue) for target in targets]
    wanted = wanted or all_targets(catalogue)
    # Not a block: after an interrupt, threads use the streams until the process ends.
    stack = ExitStack()
    with uncollected(), looking_once():
        found = concurrently(
            lambda one: _one(stack, printer, one, catalogue),
            wanted,
            at_once=_AT_ONCE,
            stop=stop,
        )
    if found is None:
        return None
    stack.close()
    # By default, what has no position is left out.
    errors = {
        target: error
        for target, (_, error) in zip(wanted, found, strict=True)
        if error is not None and (targets or not isinstance(error, _NOT_MEASURED))
    }
    lags = [_plain(lag) for of_target, _ in found for lag in of_target]
    paused = dict[str, Pause]()
    try:
        paused = Controls().paused()
    except StreamError as error:
        errors["paused jobs"] = error
    document = {
        "behind": total(lag["behind"] for lag in lags),
        "lags": lags,
        "paused": [{"job": job, **plain(pause)} for job, pause in paused.items()],
        "changed": _changed(wanted, catalogue),
        "problems": [{"target": t, **e.to_dict()} for t, e in errors.items()],
    }
    return document, errors


def _changed(targets: Sequence[str], catalogue: Catalogue) -> list[Document]:
    """The pipelines whose files changed since their runs began."""
    found = []
    for target in targets:
        path = Path(target)
        if not is_pipeline(path):
            continue
        # What cannot be read is a problem of the lag, too.
        with suppress(StreamError):
            changes = noted_changes(path, catalogue)
            if changes:
                found.append({"target": target, "changes": list(changes)})
    return found


def _one(
    stack: ExitStack, printer: Printer, target: str, catalogue: Catalogue
) -> tuple[list[TargetLag], StreamError | None]:
    try:
        return target_lags(stack, target, printer.also_mask, catalogue), None
    except StreamError as error:
        return [], error


def _plain(lag: TargetLag) -> Document:
    return {
        "target": lag.target,
        "kind": lag.kind,
        "name": lag.name,
        "stream": lag.stream,
        "behind": lag.behind,
        "commits": lag.commits,
        "partitions": list(lag.partitions),
    }


def _lines(
    document: Document, errors: Mapping[str, StreamError], *, detailed: bool
) -> Iterator[str]:
    lags = document["lags"]
    shown = any(lag["commits"] is not None for lag in lags)
    rows = [
        (
            lag["name"],
            lag["kind"],
            lag["stream"],
            number(lag["behind"]),
            *([number(lag["commits"])] if shown else []),
            str(len(lag["partitions"])),
            _remarks(lag),
        )
        for lag in lags
    ]
    if rows:
        commits = ["COMMITS"] if shown else []
        head = ("NAME", "KIND", "STREAM", "BEHIND", *commits, "PARTITIONS", "REMARKS")
        yield from table([head, *rows])
    elif not errors:
        yield "no group or pipeline has a position"
    for lag in lags if detailed else ():
        yield ""
        title = f"{lag['kind']} {lag['name']}, stream {lag['stream']}"
        yield f"{title}: {lag_text(lag['behind'], lag['commits'])}"
        yield from partition_lines(lag["partitions"])
    for one in document["paused"]:
        yield f"{one['job']}: {Pause(one['since'], one['by'], one['why'])}"
    for one in document["changed"]:
        for change in one["changes"]:
            yield f"{one['target']}: changed since its run began: {change}"
    for target, error in errors.items():
        yield f"{target}: {with_code(error)}"


def _remarks(lag: Document) -> str:
    """How many partitions have a remark, by its first word that is no number."""
    found: dict[str, int] = {}
    for one in lag["partitions"]:
        if one.remark is not None:
            word = one.remark.lstrip("0123456789 ")
            found[word] = found.get(word, 0) + 1
    texts = [f"{count(n, 'partition')} {word}" for word, n in found.items()]
    partitions = lag["partitions"]
    both = waiting_of(partitions), skipped_of(partitions)
    return ", ".join(filter(None, [*texts, *both]))
