"""The program: finds the command, and reports every failure with an exit status.

Commands live in modules of their own, which are imported when they are used: `list`
costs no more than it needs.
"""

from __future__ import annotations

import codecs
import errno
import importlib
import io
import json
import logging
import os
import select
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from streamfactory.cli.importing import importing
from streamfactory.cli.log_format import logs_json
from streamfactory.cli.printing import JsonPrinter, Printer, TextPrinter
from streamfactory.cli.recording import recording
from streamfactory.cli.signals import Terminated
from streamfactory.cli.status import (
    MEANINGS,
    Interrupted,
    Status,
    UsageMistake,
    status_of,
)
from streamfactory.spi import StorageFailed, StreamError
from streamfactory.wiring.core.defects import InternalError
from streamfactory.wiring.core.logs import RateLimit, message_of
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.core.variables import environment_variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAME: Final = "streamfactory"
_ESCAPED: Final = "streamfactory.escaped"

log = logging.getLogger(_NAME)


class _Entry(NamedTuple):
    """A command that is not imported yet."""

    target: str
    """Its module in `streamfactory.cli`, and its name there."""
    summary: str
    """Its line in the list of commands: at most 55 characters."""


_COMMANDS: Final = {
    "init": _Entry("init:init_command", "Create a project to start from."),
    "list": _Entry("listing:list_command", "List stream types and decoders."),
    "describe": _Entry(
        "describing:describe_command", "Describe a stream type, or a decoder."
    ),
    "validate": _Entry(
        "validating:validate_command",
        "Validate configurations of streams and pipelines.",
    ),
    "discover": _Entry(
        "discovering:discover_command", "Propose a stream for what is at a place."
    ),
    "check": _Entry(
        "checking:check_command", "Connect to a stream, and check that it can be read."
    ),
    "schema": _Entry("schema:schema_command", "Show the columns of a stream."),
    "publish": _Entry("publish:publish_command", "Publish files into a stream."),
    "tail": _Entry("tail:tail_command", "Show the rows of a stream as they arrive."),
    "copy": _Entry("copy:copy_command", "Copy a stream into another one."),
    "backfill": _Entry(
        "backfill:backfill_command", "Copy what a copy skipped to be on time."
    ),
    "run": _Entry("run:run_command", "Run pipelines on Spark."),
    "preview": _Entry(
        "preview:preview_command", "Show what a pipeline makes of some rows."
    ),
    "test": _Entry(
        "testing:test_command", "Test pipelines with given and expected rows."
    ),
    "serve": _Entry("serve:serve_command", "Serve streams to other processes."),
    "spool": _Entry("spool:spool_command", "Receive streams into their spools."),
    "pause": _Entry("pausing:pause_command", "Pause a pipeline, a copy or a spool."),
    "resume": _Entry(
        "pausing:resume_command", "Continue a pipeline, a copy or a spool."
    ),
    "limit": _Entry("pausing:limit_command", "Limit what a job reads per second."),
    "ui": _Entry("ui:ui_command", "Serve pages about streams for the browser."),
    "top": _Entry("top:top_command", "Show rates and lag live in the terminal."),
    "lag": _Entry("lag:lag_command", "Show the lag of pipelines and groups."),
    "audit": _Entry("audit:audit_command", "Show who changed what."),
    "offsets": _Entry(
        "offsets:offsets_command", "Show and change positions of groups and pipelines."
    ),
    "checkpoint": _Entry(
        "checkpoint:checkpoint_command", "Inspect and change checkpoints."
    ),
    "replay-dead-letters": _Entry(
        "replay:replay_command", "Process dead letters again."
    ),
    "monitoring": _Entry(
        "monitoring:monitoring_command", "Export files for monitoring tools."
    ),
    "topics": _Entry(
        "topics:topics_command", "Create, maintain, truncate, delete, export topics."
    ),
    "doctor": _Entry(
        "doctor:doctor_command", "Check this machine, and the streams of the catalogue."
    ),
    "conformance": _Entry(
        "conformance:conformance_command", "Prove a backend or a decoder with the kit."
    ),
    "prove": _Entry(
        "prove:prove_command", "Kill writers and readers of a stream, and count rows."
    ),
    "new-backend": _Entry(
        "new_backend:new_backend_command", "Create a package for a new stream type."
    ),
}


class _Commands(click.Group):
    """The commands, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(_COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """The command of a name, imported; None where there is none."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].target.partition(":")
        with importing():
            found = importlib.import_module(f"streamfactory.cli.{module}")
        command = getattr(found, attribute)
        assert isinstance(command, click.Command)
        return recording(command, cmd_name)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands; imports none."""
        with formatter.section("Commands"):
            rows = [(name, entry.summary) for name, entry in _COMMANDS.items()]
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that a line names; click would suggest loaded ones only."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            near = nearest(name, _COMMANDS)
            hint = f" Did you mean {near!r}?" if near else ""
            msg = f"No such command {name!r}.{hint}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)


def _epilog() -> str:
    lines = [f"  {status.value:>3}  {text}" for status, text in MEANINGS.items()]
    # \b keeps click from joining the lines.
    return "\n".join(["\b", "Exit statuses:", *lines])


# A fixed width, so that the pages can show what users see.
@click.command(
    cls=_Commands,
    epilog=_epilog(),
    context_settings={
        "terminal_width": 80,
        "max_content_width": 80,
        "help_option_names": ["-h", "--help"],
    },
)
@click.version_option(package_name=_NAME, message="%(prog)s %(version)s")
@click.option(
    "--verbose",
    is_flag=True,
    expose_value=False,
    help="Log what happens, and print the traceback of a failure.",
)
@click.option(
    "--profile",
    metavar="NAME",
    help="Use what profiles/NAME.toml, beside the catalogue, replaces in streams; by "
    "default STREAMFACTORY_PROFILE.",
)
def root(profile: str | None) -> None:
    """Streams as plug-ins, configured by strings, read by partition and offset."""
    if profile is not None:
        # Imported here: most commands are started without one.
        from streamfactory.wiring.config.profiles import ENVIRONMENT

        # For the processes that it starts, too.
        variable = environment_variable(ENVIRONMENT, profile)
        click.get_current_context().with_resource(variable)


def run_program(arguments: Sequence[str]) -> int:
    """Run one command line; answers the exit status.

    A reader of the output that has gone ends it, and is no failure.

    Args:
        arguments: Without the program's name.
    """
    _escape_what_cannot_be_encoded()
    try:
        return _run(arguments)
    except (BrokenPipeError, SystemExit):  # click makes an exit of a broken pipe
        if not _output_is_closed():
            raise
        # What is left in its buffer would fail once more when Python ends.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        return Status.FINE


def _run(arguments: Sequence[str]) -> int:
    # Looked for here, not in the commands: a line that cannot be parsed wants it too.
    printer = JsonPrinter() if "--json" in arguments else TextPrinter()
    printer.logs_json = logs_json(arguments)
    with _logging_to(printer, verbose="--verbose" in arguments):
        try:
            status = root.main(
                _as_options(arguments),
                prog_name=_NAME,
                standalone_mode=False,
                obj=printer,
            )
            return int(status or Status.FINE)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            return Status.BAD_INPUT
        except (click.Abort, KeyboardInterrupt) as error:
            if isinstance(error.__cause__ or error, Terminated):
                printer.error(Interrupted("terminated"))
                return Status.TERMINATED
            printer.error(Interrupted("interrupted"))
            return Status.INTERRUPTED
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _output_is_closed():
                raise  # printing failed, not the command
            failure = _failure(error)
            log.debug("the command failed", exc_info=error)
            printer.error(failure)
            return status_of(failure)


def _as_options(arguments: Sequence[str]) -> list[str]:
    """The arguments, with ``help [COMMAND]`` and ``version`` as options."""
    match list(arguments):
        case ["help", *words]:
            return [*words, "--help"]
        case ["version"]:
            return ["--version"]
        case words:
            return words


def _output_is_closed() -> bool:
    """Whether no process reads the output; another pipe may have broken instead."""
    waiting = select.poll()
    waiting.register(1, 0)
    return bool(waiting.poll(0))


def _escape_what_cannot_be_encoded() -> None:
    """Print characters that the terminal's encoding lacks as JSON would write them."""
    codecs.register_error(_ESCAPED, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPED)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return json.dumps(text)[1:-1], error.end


def _failure(error: Exception) -> StreamError:
    if isinstance(error, StreamError):
        return error
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        path = _NAME if context is None else context.command_path
        return UsageMistake(error.format_message(), remedy=f"see {path} --help")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        msg = f"the output cannot be written: {error.strerror}"
        return StorageFailed(msg, remedy="free some space, or write it elsewhere")
    return InternalError(f"{type(error).__name__}: {error}")


class _Notes(logging.Handler):
    """Hands the library's log to the printer."""

    def __init__(self, printer: Printer) -> None:
        super().__init__()
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record. Never raises: a library that logs must not fail."""
        try:
            self._print(record)
        except Exception:  # noqa: BLE001 - as handlers of logging do
            self.handleError(record)

    def _print(self, record: logging.LogRecord) -> None:
        try:
            self._printer.record(record)
        except OSError:
            raise
        except Exception:  # noqa: BLE001 - of a value or error that has no text
            place = record.name, record.levelno, record.pathname, record.lineno
            plain = logging.LogRecord(*place, message_of(record), None, None)
            self._printer.record(plain)


@contextmanager
def _logging_to(printer: Printer, *, verbose: bool) -> Iterator[None]:
    """Show the library's log, for the time of one command.

    A log as JSON has the warnings of other libraries too, which would be plain text.
    """
    handler, level, limit = _Notes(printer), log.level, RateLimit()
    if not verbose:
        handler.addFilter(limit)
    place = logging.getLogger() if printer.logs_json else log
    place.addHandler(handler)
    log.setLevel(logging.DEBUG if verbose else logging.WARNING)
    if printer.logs_json:
        logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        for record in limit.rest():
            handler.emit(record)
        if printer.logs_json:
            logging.captureWarnings(capture=False)
        place.removeHandler(handler)
        log.setLevel(level)
