"""The record of changes that commands make, where the catalogue asks for it.

Each command is in one of three tables, by its path. Those in `CHANGES` are recorded as
a whole, those in `OWN` record each change when they make it.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from streamfactory.cli.status import Status
from streamfactory.spi.masking import mask_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Whole(NamedTuple):
    """A command that is one change, from its beginning to its end."""

    right: str
    kind: str
    parameter: str
    """Names what is changed."""
    what: str
    pipeline: str = ""
    """Names a pipeline that is changed instead, where `parameter` is not given."""
    unless: str = ""
    """An option with which the command is not recorded."""


CHANGES: Final = {
    "backfill": _Whole("operate", "stream", "to", "backfilled", "from_", "lists"),
    "copy": _Whole("operate", "stream", "to", "copied into"),
    "publish": _Whole("operate", "stream", "target", "published into"),
    # A page that starts it has recorded that.
    "run": _Whole("operate", "pipeline", "files", "run", unless="attached"),
    "spool": _Whole("operate", "stream", "targets", "received into its spool"),
    "topics compact": _Whole("edit", "topic", "target", "compacted"),
}
OWN: Final = frozenset(
    {
        "checkpoint delete",
        "checkpoint rewind",
        "limit",
        "offsets reset",
        "offsets set",
        "pause",
        "replay-dead-letters",
        "resume",
        "topics create",
        "topics delete",
        "topics grow",
        "topics truncate",
    }
)
UNCHANGING: Final = frozenset(
    {
        "audit",
        "check",
        "checkpoint diff",
        "checkpoint lag",
        "checkpoint next",
        "checkpoint show",
        "conformance",
        "describe",
        "discover",
        "doctor",
        "init",
        "lag",
        "list",
        "monitoring export",
        "new-backend",
        "offsets show",
        "preview",
        "prove",
        "schema",
        "serve",
        "tail",
        "test",
        "top",
        "topics export",
        "topics list",
        "topics show",
        "topics verify",
        "ui",
        "validate",
    }
)
"""Commands that change nothing that streams or pipelines share: they look, or write
files and topics that are new. Pages and servers have rights and records of their own:
what people change there is not done by who started them."""
_MARK: Final = "recorded_as"
_ENDED: Final = (None, Status.FINE, Status.INTERRUPTED, Status.TERMINATED)
"""Results of a command that did what it should, until it was stopped."""


class _EndedBadly(Exception):
    """A command reported a failure by its status."""

    def __init__(self, status: Any) -> None:
        super().__init__(f"it ended with status {int(status)}")
        self.status = status


def recording(command: click.Command, path: str) -> click.Command:
    """Have a command, or those of a group, recorded as `CHANGES` says; once.

    Args:
        command: The command.
        path: Its words, without that of the program.
    """
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            recording(part, f"{path} {name}")
    whole, body = CHANGES.get(path), command.callback
    if whole is not None and body is not None and not hasattr(body, _MARK):
        command.callback = _recorded(whole, body)
        setattr(command.callback, _MARK, whole)
    return command


def _recorded(whole: _Whole, body: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(body)
    def run(*given: Any, **options: Any) -> Any:
        if whole.unless and options[whole.unless]:
            return body(*given, **options)
        kind, named = whole.kind, options[whole.parameter]
        if named is None:
            kind, named = "pipeline", options[whole.pipeline]
        names = named if isinstance(named, list | tuple) else [named]
        name = ", ".join(mask_value(str(one)) for one in names)
        try:
            with recorded(whole.right, kind, name, whole.what):
                status = body(*given, **options)
                if status not in _ENDED:
                    raise _EndedBadly(status)
        except _EndedBadly as error:
            return error.status
        return status

    return run


@contextmanager
def recorded(
    right: str, kind: str, name: str, what: str, *, before: str = "", after: str = ""
) -> Iterator[None]:
    """Record a change that the block makes, and its outcome.

    Nothing is recorded unless a stream of the catalogue has ``audit.record=true``.

    Args:
        right: That pages require for it: ``operate`` or ``edit``.
        kind: Of what is changed: ``topic``, ``group``, ``pipeline``, ``job``.
        name: Of what is changed.
        what: What is done, without secrets.
        before: How it is.
        after: How it will be.

    Raises:
        ConnectionFailed: transient; it cannot be recorded: the block is not entered.
        ConfigError: config; the record is not defined well.
    """
    # Commands that change nothing do not wait for what writes streams.
    import socket

    from streamfactory.transfer.auditing import AuditTrail, Change, audit_stream
    from streamfactory.wiring.config.catalogue import Catalogue

    catalogue = Catalogue().snapshot()
    definition = audit_stream(catalogue)
    if definition is None:
        yield
        return
    user, machine = user_name(), socket.gethostname()
    change = Change(user, machine, right, kind, name, before, after)
    with (
        closing(AuditTrail(lambda: definition)) as trail,
        trail.recorded(change, what),
    ):
        yield


def user_name() -> str:
    """Who runs the command."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a user without an entry
        return str(os.getuid())
