"""Delivery guarantees: what ends and paths promise, and what was asked.

Judged from claims and options alone: nothing has to be connected. A path lies between a
source and a sink, and is as weak as the weaker of them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    ConsumerFactory,
    Guarantee,
    GuaranteeRefused,
    Role,
    StreamError,
    Verdict,
    combine,
    sink_guarantee,
    source_guarantee,
)
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Backend, Claims, Problem, StreamConfig

_KEY: Final = "guarantee"
_REMEDY: Final = "ask for less, or change what the reasons name"


def end_verdict(
    config: StreamConfig,
    claims: Claims,
    role: Role,
    *,
    writer_id: bool = True,
    transport: Claims | None = None,
) -> Verdict:
    """What one end promises.

    Args:
        config: Of the stream.
        claims: Of its factory, under this configuration.
        role: Which end it is.
        writer_id: Of a sink, whether who writes has a name that survives a restart.
        transport: Of a source that is read through a spool, the claims of what is
            received.
    """
    if role is Role.READ:
        verdict = source_guarantee(claims, out_of_range=config["out.of.range"])
        if transport is None:
            return verdict
        return _through_spool(config, verdict, claims, transport)
    return sink_guarantee(claims, writer_id=writer_id)


def transport_claims(factory: ConsumerFactory) -> Claims | None:
    """What the transport behind a spool claims; None where there is no spool.

    Connects to nothing.
    """
    if SPOOL_PATH not in factory.config:
        return None
    # Imported here: only who reads through a spool pays for loading Arrow.
    from streamfactory.wiring.spool.reading import SpoolConsumerFactory

    if not isinstance(factory, SpoolConsumerFactory):
        return None
    return factory.transport_claims()


def _through_spool(
    config: StreamConfig, readers: Verdict, spool: Claims, transport: Claims
) -> Verdict:
    """What a transport and its spool promise together.

    Args:
        config: Of the stream.
        readers: What the spool promises its readers.
        spool: Its claims.
        transport: Those of what is received.
    """
    reasons = []
    guarantee = readers.guarantee
    if transport.redelivers:
        reasons.append(
            "received exactly once: what was not acknowledged is delivered again, and "
            "what comes twice is dropped by its offset"
        )
    else:
        guarantee = Guarantee.AT_MOST_ONCE
        reasons.append(
            f"at-most-once until received, {readers.guarantee} from there: the "
            "transport does not deliver again what a receiver has lost"
        )
    if not spool.durable:
        fsync = config["spool.fsync"]
        reasons.append(
            f"a power cut of the receiver may lose what was received (spool.fsync="
            f"{fsync})"
        )
        guarantee = Guarantee.AT_MOST_ONCE
    full, most = config["spool.full"], config.get("spool.full.bytes")
    if most is not None and full == "drop-oldest":
        reasons.append("spool.full=drop-oldest releases rows that nobody has read yet")
        guarantee = Guarantee.AT_MOST_ONCE
    return Verdict(guarantee, (*reasons, *readers.reasons))


def offline_verdict(config: StreamConfig, backend: Backend, role: Role) -> Verdict:
    """The most that an end promises; makes its factory, and connects to nothing.

    Raises:
        StreamError: The factory's; the stream cannot be used in this role.
    """
    make = backend.consumer_factory if role is Role.READ else backend.producer_factory
    assert make is not None
    factory = make(config)
    try:
        transport = (
            transport_claims(factory) if isinstance(factory, ConsumerFactory) else None
        )
        return end_verdict(config, factory.claims(), role, transport=transport)
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
