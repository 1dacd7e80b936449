"""``pause``, ``resume`` and ``limit``: what users ask of jobs that run."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.cli.recording import recorded, user_name
from streamfactory.cli.status import Status
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.detection import is_pipeline, pipeline_path
from streamfactory.spark.realtime.rules import keeps_limits
from streamfactory.spi import SIZE, MisuseError, UnknownStream
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.controls.states import (
    Controls,
    Pause,
    check_rate,
    pipeline_job,
    spool_job,
)
from streamfactory.wiring.core.plain import moment, plain
from streamfactory.wiring.core.throttle import Rate
from streamfactory.wiring.options.spool import PATH

if TYPE_CHECKING:
    from streamfactory.cli.printing import Printer

_KINDS = ("pipeline/", "spool/", "copy/")


@click.command("pause")
@click.argument("name")
@click.option("--why", default="", metavar="TEXT", help="Reason, shown to others.")
@json_flag
@click.pass_obj
def pause_command(printer: Printer, *, name: str, why: str) -> Status:
    """Pause a pipeline, a copy or a spool.

    NAME is a pipeline (name or file), a stream with a spool, or copy/FROM/TO: the
    writer id of a copy. A job that runs stops at the end of its batch, with its
    position saved, and waits. It stays paused when it is started again; a copy without
    --follow and a pipeline that ends by itself then end at once, with status 130. The
    state is in the folder controls beside the catalogue, or STREAMFACTORY_CONTROLS:
    the processes of the job have to use the same one.
    """
    controls, job = Controls(), job_of(name)
    pause = Pause(moment(datetime.now(UTC)) or "", _who(), why)
    with recorded("operate", "job", job, f"paused: {why}" if why else "paused"):
        controls.change(job, lambda state: replace(state, pause=state.pause or pause))
    _show(printer, controls, job)
    return Status.FINE


@click.command("resume")
@click.argument("name")
@json_flag
@click.pass_obj
def resume_command(printer: Printer, *, name: str) -> Status:
    """Continue a pipeline, a copy or a spool that is paused.

    NAME is as of pause. A job that waits continues within a second, where it stopped.
    """
    controls, job = Controls(), job_of(name)
    with recorded("operate", "job", job, "resumed"):
        controls.change(job, lambda state: replace(state, pause=None))
    _show(printer, controls, job)
    return Status.FINE


@click.command("limit")
@click.argument("name")
@click.option("--rows", type=click.IntRange(min=1), help="Rows per second.")
@click.option("--bytes", "size", metavar="SIZE", help="Bytes per second, such as 4M.")
@click.option("--none", "unlimited", is_flag=True, help="No limit.")
@click.option(
    "--default", "forgets", is_flag=True, help="As the stream that is read configures."
)
@json_flag
@click.pass_obj
def limit_command(
    printer: Printer,
    *,
    name: str,
    rows: int | None,
    size: str | None,
    unlimited: bool,
    forgets: bool,
) -> Status:
    """Limit what a pipeline, a copy or a spool reads per second.

    NAME is as of pause. A job that runs follows within a second, a pipeline with its
    next batch; the limit stays until it is changed. Of a pipeline it is the offsets of
    each source. Without options, shows it.
    """
    controls, job = Controls(), job_of(name)
    if (rows is not None or size is not None) + unlimited + forgets > 1:
        msg = "give one of a rate, --none and --default."
        raise click.UsageError(msg)
    rate = None
    if unlimited or rows is not None or size is not None:
        rate = Rate(rows, None if size is None else _bytes(size))
    path = Path(pipeline_path(name.removeprefix(pipeline_job(""))))
    check_rate(job, rate, limited=not is_pipeline(path) or keeps_limits(path))
    if forgets or rate is not None:
        with recorded("operate", "job", job, "limited", after=str(rate or "default")):
            controls.change(job, lambda state: replace(state, rate=rate))
    _show(printer, controls, job)
    return Status.FINE


def _who() -> str:
    return f"{user_name()}@{socket.gethostname()}"


def _bytes(text: str) -> int:
    try:
        size = int(SIZE.parse(text))
    except ValueError as error:
        msg = f"--bytes {text!r} {error}"
        raise click.UsageError(msg) from None
    if size < 1:
        msg = f"--bytes {text!r} is below 1."
        raise click.UsageError(msg)
    return size


def _show(printer: Printer, controls: Controls, job: str) -> None:
    state = controls.read(job)
    document = {"job": job, **plain(state), "file": str(controls.path(job))}
    text = "not paused" if state.pause is None else str(state.pause)
    lines = [f"{job}: {text}"]
    if state.rate is not None:
        lines.append(f"{job}: {state.rate}")
    printer.show(document, lines)


def job_of(name: str) -> str:
    """The job that a name stands for.

    Raises:
        MisuseError: misuse; it is that of a stream without spool, or of two jobs.
        UnknownStream: config; nothing has this name.
    """
    if name.startswith(_KINDS) and not name.endswith("/"):
        return name
    catalogue, path, found = Catalogue(), Path(pipeline_path(name)), []
    if is_pipeline(path):
        found.append(pipeline_job(read_pipeline(path, catalogue).name))
        if path == Path(name):
            return found[0]
    try:
        stream = catalogue.one(name)
        if any(one.key.lower() == PATH for one in stream.properties):
            found.append(spool_job(stream.name))
    except UnknownStream as error:
        if not found:
            msg = f"no pipeline or stream is named {name!r}"
            remedy = "a copy is named by its writer id: copy/FROM/TO"
            raise UnknownStream(msg, remedy=remedy) from error
    if len(found) == 1:
        return found[0]
    if found:
        msg = f"{name!r} is a pipeline, and a stream with a spool"
        raise MisuseError(msg, remedy=f"give {' or '.join(found)}")
    msg = f"stream {name!r} has no spool, so that nothing runs by its name"
    raise MisuseError(msg, remedy="a copy is named by its writer id: copy/FROM/TO")


def paused_line(job: str, pause: Any) -> str:
    """Why a job waits, and what makes it continue.

    Args:
        job: Its name.
        pause: The plain values of a `Pause`.
    """
    return f"{Pause(**pause)}; to continue: streamfactory resume {job}"
