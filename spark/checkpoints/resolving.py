"""Decides where a run starts: at its checkpoint, or at a given position (rule P4).

Two options override a checkpoint. Each has a token. The last applied token is
remembered and the same token has no further effect, so a repeated command line may keep
them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Final, final

from streamfactory.spi import MisuseError, Position, PositionRefused
from streamfactory.wiring.options.types import RESET, Ago

MAX_LABEL: Final = 200
_OF_SOURCE: Final = re.compile(r"\s*([A-Za-z_]\w*)=")


@final
@dataclass(frozen=True, slots=True)
class Reset:
    """A position given by a user: ``--reset POSITION`` or ``POSITION#LABEL``."""

    token: str
    """Canonical text: equal for equal requests."""
    at: str | int | Ago | Position
    """``earliest``, ``latest``, milliseconds since 1970, a period, or offsets."""
    source: str | None = None
    """Id of the only source that starts there; the others continue. None: all."""

    @classmethod
    def parse(cls, text: str) -> Reset:
        """Parse the option: a position, or ``ID=POSITION``.

        Raises:
            MisuseError: misuse; not a keyword, time or position.
        """
        named = _OF_SOURCE.match(text)
        if named is None:
            return cls._of_all(text)
        found, source = cls._of_all(text[named.end() :]), named[1]
        return replace(found, token=f"{source}={found.token}", source=source)

    @classmethod
    def _of_all(cls, text: str) -> Reset:
        stripped = text.strip()
        try:
            if stripped.startswith("{"):
                return cls._of_offsets(stripped)
            word, mark, label = stripped.partition("#")
            found = RESET.parse(word)
            written = found if isinstance(found, str) else word.strip()
        except PositionRefused as error:
            msg = f"--reset: {error.what}"
            raise MisuseError(msg, remedy=error.remedy) from error
        except (ValueError, RecursionError) as error:
            msg = f"--reset {text!r} is no position: earliest, latest, a time such as "
            msg += "2022-08-09T12:31:38Z, a period before now such as 2d, or offsets "
            msg += 'such as {"topic": {"0": 23}}'
            raise MisuseError(msg) from error
        return cls(written + _labelled(mark, label), found)

    @classmethod
    def _of_offsets(cls, text: str) -> Reset:
        body, end = json.JSONDecoder().raw_decode(text)
        if "version" not in body:
            body = {"version": 1, "offsets": body}
        position = Position.from_json(json.dumps(body))
        if not position:
            msg = "the position names no partition"
            raise PositionRefused(msg, remedy="earliest and latest need no names")
        rest = text[end:].strip()
        if rest and not rest.startswith("#"):
            raise ValueError(rest)
        return cls(position.to_json() + _labelled(rest[:1], rest[1:]), position)


def _labelled(mark: str, label: str) -> str:
    return mark + check_label("--reset", label) if mark else ""


def check_label(option: str, text: str) -> str:
    """Validate a label.

    Raises:
        MisuseError: misuse; it is empty, too long, or not printable.
    """
    label = text.strip()
    if not label or len(label) > MAX_LABEL or not label.isprintable():
        msg = f"{option}: {text[:40]!r} is not a label"
        remedy = f"use 1 to {MAX_LABEL} printable characters, for example a date"
        raise MisuseError(msg, remedy=remedy)
    return label


@final
@dataclass(frozen=True, slots=True)
class Memory:
    """State of earlier runs."""

    refusal: PositionRefused | None = None
    """Why their position cannot be used; None if it can, or if there is none."""
    reset: str | None = None
    """The last applied token of ``--reset``."""
    ignored: str | None = None
    """The last applied label of ``--ignore-checkpoint``."""


@final
@dataclass(frozen=True, slots=True)
class Resolution:
    """Where a run starts, and why."""

    new_generation: bool
    """Whether a new generation starts, instead of the current one."""
    start: Reset | None
    """Start of the new one; None to use the options of the stream."""
    memory: Memory
    """State to save."""
    why: str
    """The reason, for users."""


def resolve(
    memory: Memory | None, reset: Reset | None = None, ignore: str | None = None
) -> Resolution:
    """Decide where a run starts. Pure.

    In this order: a new ``ignore`` starts again by the options of the stream; a new
    ``reset`` starts at its position; a reached position is continued; a missing or
    unreadable one is refused; without an earlier run ``reset`` decides, else the
    options.

    Args:
        memory: State of earlier runs; None if there was none.
        reset: A position given by a user.
        ignore: A label given by a user.

    Raises:
        MisuseError: misuse; two new overrides contradict each other.
        PositionRefused: permanent; the recorded position cannot be used.
    """
    before = memory or Memory()
    after = Memory(
        reset=before.reset if reset is None else reset.token,
        ignored=before.ignored if ignore is None else ignore,
    )
    if memory is None:
        start = "as the stream is configured" if reset is None else _at(reset)
        return Resolution(True, reset, after, f"there is no checkpoint: starts {start}")
    fresh_ignore = ignore is not None and ignore != memory.ignored
    fresh_reset = reset is not None and reset.token != memory.reset
    if fresh_ignore and fresh_reset:
        msg = "--ignore-checkpoint and --reset both set where to begin"
        raise MisuseError(msg, remedy="--reset alone sets the checkpoint aside too")
    if fresh_ignore:
        why = f"--ignore-checkpoint {ignore} is new: starts as the stream is configured"
        return Resolution(True, None, after, why)
    if reset is not None and fresh_reset:
        return Resolution(True, reset, after, f"--reset is new: starts {_at(reset)}")
    if memory.refusal is not None:
        raise memory.refusal
    repeated = [
        option
        for option, given in (("--reset", reset), ("--ignore-checkpoint", ignore))
        if given is not None
    ]
    why = "continues from the checkpoint"
    if repeated:
        verb = "was" if len(repeated) == 1 else "were"
        why = f"{' and '.join(repeated)} {verb} applied before: {why}"
    return Resolution(False, None, after, why)


def _at(reset: Reset) -> str:
    shown = reset.token if len(reset.token) <= 80 else f"{reset.token[:77]}..."
    return f"at {shown}"
