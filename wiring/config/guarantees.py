"""Delivery guarantees of sources, sinks and paths, compared with the requested ones.

They are computed from claims and options, without connecting. A path leads from a
source to a sink, and has the weaker guarantee of the two.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from streamfactory.spi import (
    ConsumerFactory,
    Guarantee,
    GuaranteeRefused,
    Role,
    StreamError,
    Verdict,
)
from streamfactory.spi.claims import combine, sink_guarantee, source_guarantee
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Backend, Claims, Problem, StreamConfig

_KEY: Final = "guarantee"
_REMEDY: Final = "request a weaker guarantee, or remove the causes above"


class Transport(NamedTuple):
    """What the transport of a spool promises to its receiver."""

    claims: Claims
    renumbers: bool
    """See `ConsumerFactory.RENUMBERS`."""


def end_verdict(
    config: StreamConfig,
    claims: Claims,
    role: Role,
    *,
    writer_id: bool = True,
    transport: Transport | None = None,
) -> Verdict:
    """Return the guarantee of one end of a path.

    Args:
        config: Configuration of the stream.
        claims: Claims of its factory, under this configuration.
        role: Source or sink.
        writer_id: For a sink, whether the writer has an id that survives a restart.
        transport: For a source that is read through a spool, what is behind it.
    """
    if role is Role.READ:
        verdict = source_guarantee(claims, out_of_range=config["out.of.range"])
        if transport is None:
            return verdict
        return _through_spool(config, verdict, claims, transport)
    return sink_guarantee(claims, writer_id=writer_id)


def transport_of(factory: ConsumerFactory) -> Transport | None:
    """Return what the transport of a spool promises; None without a spool.

    Connects to nothing.
    """
    if SPOOL_PATH not in factory.config:
        return None
    # Imported here: Arrow is loaded only to read through a spool.
    from streamfactory.wiring.spool.reading import SpoolConsumerFactory

    if not isinstance(factory, SpoolConsumerFactory):
        return None
    return Transport(factory.transport_claims(), factory.TRANSPORT.RENUMBERS)


def _through_spool(
    config: StreamConfig, readers: Verdict, spool: Claims, transport: Transport
) -> Verdict:
    """Return the guarantee of a transport and its spool together.

    Args:
        config: Configuration of the stream.
        readers: Guarantee of the spool for its readers.
        spool: Claims of the spool.
        transport: What the transport promises.
    """
    reasons = []
    guarantee = readers.guarantee
    if transport.claims.redelivers and transport.renumbers:
        guarantee = min(guarantee, Guarantee.AT_LEAST_ONCE)
        reasons.append(
            "received at least once: messages that were acknowledged right before the "
            "receiver was killed may be delivered again, and stored twice"
        )
    elif transport.claims.redelivers:
        reasons.append(
            "received exactly once: unacknowledged messages are delivered again, and "
            "duplicates are dropped by their offset"
        )
    else:
        guarantee = Guarantee.AT_MOST_ONCE
        reasons.append(
            f"at-most-once until received, {readers.guarantee} from there: the "
            "transport does not redeliver messages that a receiver lost"
        )
    if not spool.durable:
        fsync = config["spool.fsync"]
        reasons.append(
            f"a power failure of the receiver may lose messages (spool.fsync={fsync})"
        )
        guarantee = Guarantee.AT_MOST_ONCE
    full, most = config["spool.full"], config.get("spool.full.bytes")
    if most is not None and full == "drop-oldest":
        reasons.append("spool.full=drop-oldest releases unread rows")
        guarantee = Guarantee.AT_MOST_ONCE
    return Verdict(guarantee, (*reasons, *readers.reasons))


def offline_verdict(config: StreamConfig, backend: Backend, role: Role) -> Verdict:
    """Return the guarantee of one end; creates its factory, but connects to nothing.

    Raises:
        StreamError: From the factory: the stream cannot be used in this role.
    """
    make = backend.consumer_factory if role is Role.READ else backend.producer_factory
    assert make is not None
    factory = make(config)
    try:
        transport = (
            transport_of(factory) if isinstance(factory, ConsumerFactory) else None
        )
        return end_verdict(config, factory.claims(), role, transport=transport)
    finally:
        factory.close()


def check_guarantee(
    what: str, verdict: Verdict, configs: Sequence[StreamConfig]
) -> Verdict:
    """Return a verdict, unless a stream requests a stronger guarantee.

    Args:
        what: The end or path, as it follows ``this`` in a sentence.
        verdict: Its guarantee.
        configs: Configurations of its streams; the error has the name of the last.

    Raises:
        GuaranteeRefused: config; ``guarantee`` of one of them is stronger.
    """
    asked = [wanted for c in configs if (wanted := c.get(_KEY)) is not None]
    highest = max(asked, default=Guarantee.AT_MOST_ONCE)
    if highest > verdict.guarantee:
        msg = f"guarantee={highest} is required, but this {what} has {verdict}"
        raise GuaranteeRefused(msg, stream=configs[-1].name)
    return verdict


def guarantee_problems(config: StreamConfig, backend: Backend) -> list[Problem]:
    """Return what prevents a stream from having its ``guarantee``, by role.

    An error if it has it neither as a source nor as a sink, a warning of the one role
    in which it lacks it and is refused.

    Args:
        config: Configuration of the stream.
        backend: Its stream type.
    """
    wanted = config.get(_KEY)
    if not wanted:  # at-most-once, the weakest, always holds
        return []
    verdicts = {}
    for role, made in (
        (Role.READ, backend.consumer_factory),
        (Role.WRITE, backend.producer_factory),
    ):
        if made is not None:
            # A stream that cannot be used in a role is refused when it is used in it.
            with suppress(StreamError):
                verdicts[role] = offline_verdict(config, backend, role)
    lacking = {r: v for r, v in verdicts.items() if v.guarantee < wanted}
    if not lacking:
        return []
    names = {Role.READ: "source", Role.WRITE: "sink"}
    gives = ", and ".join(f"as a {names[r]} {v}" for r, v in lacking.items())
    what = f"{wanted} is required, but this stream has {gives}"
    problem = config.problem(_KEY, what, _REMEDY)
    if len(lacking) == len(verdicts):
        return [problem]
    (role,) = lacking
    what = f"{what}: it is refused as a {names[role]}"
    return [replace(problem, what=what, level="warning")]


def path_problem(
    source: tuple[StreamConfig, Verdict],
    sink: tuple[StreamConfig, Verdict],
    name: str,
) -> Problem | None:
    """Return why a path has a weaker guarantee than its source or sink requires.

    Args:
        source: Configuration and guarantee of the source.
        sink: Configuration and guarantee of the sink.
        name: Name of the sink.
    """
    verdict = combine(source[1], sink[1])
    try:
        check_guarantee(f"path to {name!r}", verdict, [source[0], sink[0]])
    except GuaranteeRefused as error:
        asking = max((source[0], sink[0]), key=lambda c: c.get(_KEY) or 0)
        return asking.problem(_KEY, error.what, _REMEDY)
    return None
