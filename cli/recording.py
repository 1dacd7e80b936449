"""The record of changes that commands make, where the catalogue asks for it."""

from __future__ import annotations

import getpass
import os
import socket
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    from streamfactory.transfer.auditing import AuditTrail, Change, audit_stream

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
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run as a user without an entry
        return str(os.getuid())
