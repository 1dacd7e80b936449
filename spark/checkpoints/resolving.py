"""Where a run begins: its checkpoint, or a position said by hand, once (rule P4).

Two options override a checkpoint. Each carries a token, the last applied one of each is
remembered, and the same token again has no effect: so a command line that is run again
and again may keep them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, final

from streamfactory.spi import MisuseError, Position, PositionRefused
from streamfactory.wiring.options.types import RESET, Ago

MAX_LABEL: Final = 200


@final
@dataclass(frozen=True, slots=True)
class Reset:
    """A position said by hand, as ``--reset POSITION`` or ``POSITION#LABEL``."""

    token: str
    """The same text for the same demand."""
    at: str | int | Ago | Position
    """``earliest``, ``latest``, milliseconds since 1970, a period, or offsets."""

    @classmethod
    def parse(cls, text: str) -> Reset:
        """Read what a user wrote.

        Raises:
            MisuseError: misuse; it is neither word, time nor position.
        """
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
    """A label as it is remembered.

    Raises:
        MisuseError: misuse; it is empty, too long, or cannot be printed.
    """
    label = text.strip()
    if not label or len(label) > MAX_LABEL or not label.isprintable():
        msg = f"{option}: {text[:40]!r} is no label"
        remedy = f"wanted 1 to {MAX_LABEL} printable characters, a date for instance"
        raise MisuseError(msg, remedy=remedy)
    return label


@final
@dataclass(frozen=True, slots=True)
class Memory:
    """What the runs before have left."""

    refusal: PositionRefused | None = None
    """Why their position cannot be used; None where it can, or none was reached."""
    reset: str | None = None
    """The last applied token of ``--reset``."""
    ignored: str | None = None
    """The last applied label of ``--ignore-checkpoint``."""


@final
@dataclass(frozen=True, slots=True)
class Resolution:
    """Where a run begins, and why."""

    anew: bool
    """Whether a new checkpoint begins; an old one is set aside."""
    start: Reset | None
    """Where the new one begins; None leaves that to the options of the stream."""
    memory: Memory
    """What to remember from here on."""
    why: str
    """In words, for people."""


def resolve(
    memory: Memory | None, reset: Reset | None = None, ignore: str | None = None
) -> Resolution:
    """Decide where a run begins. Pure.

    In this order: a fresh ``ignore`` begins anew, by the options of the stream; a fresh
    ``reset`` begins anew, where it says; a position that was reached is gone on from;
    one that should be there and is not, or cannot be read, is refused, not guessed; and
    with no run before, ``reset`` says, else the options do.

    Args:
        memory: What the runs before have left; None where there was none.
        reset: A position said by hand.
        ignore: A label, said by hand.

    Raises:
        MisuseError: misuse; two fresh overrides contradict one another.
        PositionRefused: permanent; the recorded position cannot be used.
    """
    before = memory or Memory()
    after = Memory(
        reset=before.reset if reset is None else reset.token,
        ignored=before.ignored if ignore is None else ignore,
    )
    if memory is None:
        begins = "as the stream says" if reset is None else _at(reset)
        return Resolution(
            True, reset, after, f"there is no checkpoint: begins {begins}"
        )
    fresh_ignore = ignore is not None and ignore != memory.ignored
    fresh_reset = reset is not None and reset.token != memory.reset
    if fresh_ignore and fresh_reset:
        msg = "--ignore-checkpoint and --reset both set where to begin"
        raise MisuseError(msg, remedy="--reset alone sets the checkpoint aside too")
    if fresh_ignore:
        why = f"--ignore-checkpoint {ignore} is new: begins as the stream says"
        return Resolution(True, None, after, why)
    if reset is not None and fresh_reset:
        return Resolution(True, reset, after, f"--reset is new: begins {_at(reset)}")
    if memory.refusal is not None:
        raise memory.refusal
    repeated = [
        option
        for option, given in (("--reset", reset), ("--ignore-checkpoint", ignore))
        if given is not None
    ]
    why = "goes on from the checkpoint"
    if repeated:
        verb = "was" if len(repeated) == 1 else "were"
        why = f"{' and '.join(repeated)} {verb} applied before: {why}"
    return Resolution(False, None, after, why)


def _at(reset: Reset) -> str:
    shown = reset.token if len(reset.token) <= 80 else f"{reset.token[:77]}..."
    return f"at {shown}"
