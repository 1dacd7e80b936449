"""``check``: connects to a stream, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streamfactory.cli.parameters import (
    Overrides,
    class_paths_flag,
    json_flag,
    one_definition,
    set_option,
)
from streamfactory.cli.results import table
from streamfactory.cli.status import Status, status_of
from streamfactory.cli.wording import as_options
from streamfactory.wiring.core.guard import looking_once
from streamfactory.wiring.core.plain import plain
from streamfactory.wiring.core.shown import masked, printable
from streamfactory.wiring.streams.checks import StreamCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.streams.checks import CheckResult, Step


@click.command("check")
@click.argument("target", metavar="NAME-OR-FILE")
@set_option
@class_paths_flag
@json_flag
@click.pass_obj
def check_command(
    printer: Printer, *, target: str, overrides: Overrides, allow_class_paths: bool
) -> Status:
    """Connect to a stream, and check that it can be read.

    The steps are: configuration, plug-in, partitions, settings (of the topics, if the
    type has any), schema, fetch (one message of the first partition that has any, if
    the stream can be read again), lag (of a new reader), close. Each step takes at most
    connection.timeout.millis. Nothing is written, and nothing is consumed.
    """
    check = StreamCheck(
        lambda: one_definition(target, overrides), allow_class_paths=allow_class_paths
    )
    printer.mask = check.mask
    with looking_once():
        result = check.run()
    document = {"stream": target, "ok": result.failure is None, **plain(result)}
    document.pop("failure")
    lines = map(as_options, lines_of(target, result))
    printer.show(masked(document, as_options), lines)
    return Status.FINE if result.failure is None else status_of(result.failure)


def _first_line(step: Step) -> str:
    line = step.what.partition("\n")[0]
    return line if step.error is None else f"[{step.error['error']}] {line}"


def lines_of(target: str, result: CheckResult) -> Iterator[str]:
    """The result as text."""
    rows = [
        (
            step.name,
            step.outcome,
            "" if step.millis is None else f"{step.millis:.1f} ms",
            _first_line(step),
        )
        for step in result.steps
    ]
    yield f"{target}: {'ok' if result.failure is None else 'failed'}"
    for step, line in zip(result.steps, table(rows, indent="  "), strict=True):
        yield line
        # Problems of a configuration have a line each.
        for more in step.what.splitlines()[1:]:
            yield f"    {printable(more.strip())}"
    for warning in result.warnings:
        yield f"  warning: {warning}"
