"""``doctor``: what this machine has, and what keeps streams from working."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.doctor.environment import environment_findings
from streamfactory.cli.doctor.findings import ERROR, WARNING, Finding
from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import count, table
from streamfactory.cli.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer

_SHOWN: Final = {ERROR: "ERROR  ", WARNING: "WARNING  "}


@click.command("doctor")
@click.argument("streams", metavar="[NAME-OR-FILE]...", nargs=-1)
@click.option("--no-streams", is_flag=True, help="Connect to no stream.")
@json_flag
@click.pass_obj
def doctor_command(
    printer: Printer, *, streams: Sequence[str], no_streams: bool
) -> Status:
    """Check this machine, and the streams of the catalogue.

    Looks at Python, Java, PySpark, the extras and plug-ins with their versions, the
    interpreter of Spark's workers, local ports, permissions, the clock, the catalogue,
    and runs `check` for each stream; with arguments, for these streams only. Each
    problem has a remedy. Secrets are masked, so that the output can be part of a bug
    report. Status 1 if there is an error.
    """
    if streams and no_streams:
        msg = "--no-streams and NAME-OR-FILE exclude each other."
        raise click.UsageError(msg)
    findings = list(environment_findings())
    try:
        # Imported here: without pyarrow, the findings above are still shown.
        from streamfactory.cli.doctor.streams import stream_findings
    except ImportError as error:
        remedy = "pip install --force-reinstall pyarrow numpy"
        findings.append(Finding("python", "imports", ERROR, str(error), remedy))
    else:
        findings += stream_findings(printer, streams, connect=not no_streams)
    errors = [one for one in findings if one.level == ERROR]
    document: dict[str, Any] = {"ok": not errors, "findings": findings}
    printer.show(document, _lines(findings))
    return Status.FAILED if errors else Status.FINE


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    rows = [
        (one.area, one.name, _SHOWN.get(one.level, "") + one.what.partition("\n")[0])
        for one in findings
    ]
    for one, line in zip(findings, table(rows), strict=True):
        yield line
        if one.remedy is not None:
            yield f"    remedy: {one.remedy}"
    counts = [
        count(sum(one.level == level for one in findings), level)
        for level in (ERROR, WARNING)
    ]
    yield ""
    yield ", ".join(counts)
