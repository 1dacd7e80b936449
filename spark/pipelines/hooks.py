"""Hooks: a command or function that is called after each committed batch.

A hook is called once a batch is committed, so never for a repeated one. If the process
is killed between commit and call, the call is missing: compare batch numbers if that
matters.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError, PermanentError, UnknownPlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spark.pipelines.model import Hook
    from streamfactory.spark.pipelines.outcomes import Batch

GROUP: Final = "streamfactory.pipeline_hooks"
_SHOWN: Final = 500
"""Characters of a failed command's output that are shown."""


class HookFailed(PermanentError):
    """The hook of a pipeline failed, or took too long."""

    code = "hook_failed"


def hook_of(hook: Hook) -> Callable[[Batch], None] | None:
    """The function to call after each batch; None without a hook.

    Raises:
        ConfigError: config; both a command and an entry point, or an invalid command.
        UnknownPlugin: plugin; no entry point of that name is installed.
    """
    if hook.command is not None and hook.entry_point is not None:
        msg = "and hook.entry.point exclude each other"
        raise ConfigError(msg)
    if hook.command is not None:
        return _command(hook.command, hook.timeout)
    if hook.entry_point is not None:
        return _function(hook.entry_point)
    return None


def _command(text: str, timeout: float) -> Callable[[Batch], None]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        msg = f"cannot be split into words: {error}"
        raise ConfigError(msg) from None
    if not words:
        msg = "is empty"
        raise ConfigError(msg)

    def call(batch: Batch) -> None:
        after = f"after batch {batch.batch}"
        try:
            status, output = _finish(words, json.dumps(batch.plain()), timeout)
        except OSError as error:
            msg = f"the hook {words[0]!r} failed {after}: {error}"
            raise HookFailed(msg) from error
        except subprocess.TimeoutExpired:
            msg = f"the hook {words[0]!r} failed {after}: it took more than {timeout} s"
            raise HookFailed(msg) from None
        if status:
            msg = f"the hook {words[0]!r} ended with {status} {after}"
            raise HookFailed(msg + (f": {output}" if output else ""))

    return call


def _finish(words: list[str], text: str, timeout: float) -> tuple[int, str]:
    """Run a command; returns its exit status and the end of its output."""
    with tempfile.TemporaryFile() as errors:
        # A file, not a pipe: background processes of the command would keep a pipe
        # open.
        child = subprocess.Popen(  # noqa: S603 - the configuration's own command, no shell
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # not interrupted by our SIGINT
        )
        try:
            child.communicate(text.encode(), timeout=timeout)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise
        errors.seek(-min(_SHOWN, errors.tell()), os.SEEK_END)
        return child.returncode, errors.read().decode(errors="replace").strip()


def _function(name: str) -> Callable[[Batch], None]:
    found = entry_points(group=GROUP, name=name)
    if not found:
        msg = f"no entry point {name!r} of the group {GROUP} is installed"
        raise UnknownPlugin(msg)
    try:
        function: Any = next(iter(found)).load()
    except Exception as error:
        msg = f"the hook {name!r} cannot be loaded: {type(error).__name__}: {error}"
        raise HookFailed(msg) from error

    def call(batch: Batch) -> None:
        try:
            function(batch.plain())
        except Exception as error:
            msg = f"the hook {name!r} failed after batch {batch.batch}: "
            msg += f"{type(error).__name__}: {error}"
            raise HookFailed(msg) from error

    return call
