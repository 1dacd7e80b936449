"""Delivery guarantees: what ends and paths promise, and what was asked.

Judged from claims and options alone: nothing has to be connected. A path lies between a
source and a sink, and is as weak as the weaker of them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    Guarantee,
    GuaranteeRefused,
    Role,
    StreamError,
    Verdict,
    combine,
    sink_guarantee,
    source_guarantee,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Backend, Claims, Problem, StreamConfig

_KEY: Final = "guarantee"
_REMEDY: Final = "ask for less, or change what the reasons name"


def end_verdict(
    config: StreamConfig, claims: Claims, role: Role, *, writer_id: bool = True
) -> Verdict:
    """What one end promises.

    Args:
        config: Of the stream.
        claims: Of its factory, under this configuration.
        role: Which end it is.
        writer_id: Of a sink, whether who writes has a name that survives a restart.
    """
    if role is Role.READ:
        return source_guarantee(claims, out_of_range=config["out.of.range"])
    return sink_guarantee(claims, writer_id=writer_id)


def offline_verdict(config: StreamConfig, backend: Backend, role: Role) -> Verdict:
    """The most that an end promises; makes its factory, and connects to nothing.

    Raises:
        StreamError: The factory's; the stream cannot be used in this role.
    """
    make = backend.consumer_factory if role is Role.READ else backend.producer_factory
    assert make is not None
    factory = make(config)
    try:
        return end_verdict(config, factory.claims(), role)
    finally:
        factory.close()


def check_guarantee(
    what: str, verdict: Verdict, configs: Sequence[StreamConfig]
) -> Verdict:
    """Answer a verdict, unless one of the streams asks for more.

    Args:
        what: The end or path, as it follows ``this`` in a sentence.
        verdict: What it promises.
        configs: Of the streams that it touches; the last one names the error.

    Raises:
        GuaranteeRefused: config; ``guarantee`` of one of them asks for more.
    """
    asked = [wanted for c in configs if (wanted := c.get(_KEY)) is not None]
    highest = max(asked, default=Guarantee.AT_MOST_ONCE)
    if highest > verdict.guarantee:
        msg = f"{highest} is wanted, this {what} gives {verdict}"
        raise GuaranteeRefused(msg, stream=configs[-1].name)
    return verdict


def guarantee_problems(config: StreamConfig, backend: Backend) -> list[Problem]:
    """Refuse a ``guarantee`` that a stream can give neither as source nor as sink.

    Args:
        config: Of the stream.
        backend: Its type.
    """
    wanted = config.get(_KEY)
    if not wanted:  # at-most-once, the least, is no wish
        return []
    verdicts = {}
    for role, made in (
        (Role.READ, backend.consumer_factory),
        (Role.WRITE, backend.producer_factory),
    ):
        if made is not None:
            # A stream that cannot be used in a role is refused where it is used so.
            with suppress(StreamError):
                verdicts[role] = offline_verdict(config, backend, role)
    if not verdicts or any(v.guarantee >= wanted for v in verdicts.values()):
        return []
    names = {Role.READ: "source", Role.WRITE: "sink"}
    gives = ", and ".join(f"as a {names[r]} {v}" for r, v in verdicts.items())
    what = f"{wanted} is wanted, this stream gives {gives}"
    return [config.problem(_KEY, what, _REMEDY)]


def path_problem(
    source: tuple[StreamConfig, Verdict],
    sink: tuple[StreamConfig, Verdict],
    name: str,
) -> Problem | None:
    """Why a path from a source to a sink gives less than one of them asks for.

    Args:
        source: Its configuration, and what it promises.
        sink: Likewise.
        name: Of the sink.
    """
    verdict = combine(source[1], sink[1])
    try:
        check_guarantee(f"path to {name!r}", verdict, [source[0], sink[0]])
    except GuaranteeRefused as error:
        asking = max((source[0], sink[0]), key=lambda c: c.get(_KEY) or 0)
        return asking.problem(_KEY, error.what, _REMEDY)
    return None
