"""What is called after a batch: a command that reads it, or a function that gets it.

A hook is told of a batch once it is committed, so never of one that is repeated. A kill
between the two leaves it untold: whoever must not miss one compares batch numbers.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import ConfigError, PermanentError, UnknownPlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spark.pipelines.definition import Hook
    from streamfactory.spark.pipelines.progress import Batch

GROUP: Final = "streamfactory.pipeline_hooks"
_SHOWN: Final = 500
"""Characters of what a failed command printed."""


class HookFailed(PermanentError):
    """The hook of a pipeline failed, or took too long."""

    code = "hook_failed"


def hook_of(hook: Hook) -> Callable[[Batch], None] | None:
    """What to call after each batch; None where there is nothing.

    Raises:
        ConfigError: config; both a command and an entry point, or a command that
            cannot be split into words.
        UnknownPlugin: plugin; no entry point of that name is installed.
    """
    if hook.command is not None and hook.entry_point is not None:
        msg = "hook.command and hook.entry.point exclude each other"
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
        msg = f"hook.command: {error}"
        raise ConfigError(msg) from None
    if not words:
        msg = "hook.command is empty"
        raise ConfigError(msg)

    def call(batch: Batch) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - the configuration's own command, no shell
                words,
                input=json.dumps(batch.plain()),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
                start_new_session=True,  # an interrupt of ours is not one of it
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            msg = f"the hook {words[0]!r} failed after batch {batch.batch}: {error}"
            raise HookFailed(msg) from error
        if done.returncode:
            said = done.stderr.strip()[-_SHOWN:]
            msg = f"the hook {words[0]!r} ended with {done.returncode} after batch "
            msg += f"{batch.batch}" + (f": {said}" if said else "")
            raise HookFailed(msg)

    return call


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
