"""Rules over several options of ``zeromq``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.zeromq.options import (
    DEALER_ROUTER,
    DURABLE_WAY,
    PUB_SUB,
)
from streamfactory.spi import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.backends.zeromq.endpoints import Endpoint
    from streamfactory.spi import Problem, StreamConfig

_NEED_REPLAY: Final = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)
_OF_PATTERN: Final = {
    "prefixes": PUB_SUB,
    "prefix": PUB_SUB,
    "readers": PUB_SUB,
    "when.full": PUB_SUB,
    "acknowledge": DEALER_ROUTER,
    "sender.id": DEALER_ROUTER,
}
"""Options that apply to one pattern."""


def check_options(config: StreamConfig, role: Role | None) -> Iterator[Problem]:
    """See `Backend.check_options`."""
    if role is not Role.WRITE:
        yield from _replay_problems(config)
    yield from _pattern_problems(config)
    given = [key for key in ("bind", "connect") if key in config]
    if not given:
        yield config.problem("bind", "or connect is required", "set one of them")
    elif len(given) > 1:
        yield config.problem("bind", "excludes connect", "set one of them")
    else:
        endpoints = [e for each in config[given[0]] for e in each]
        yield from _security_problems(config, given[0], endpoints)


def _pattern_problems(config: StreamConfig) -> Iterator[Problem]:
    pattern, is_plain = config["pattern"], config["framing"] == "plain"
    if is_plain and pattern == DEALER_ROUTER:
        what = "excludes pattern=dealer-router: acknowledgements need sequence numbers"
        yield config.problem("framing", what, "remove framing, or use push-pull")
    if is_plain and config.given("senders"):
        what = "has no effect with framing=plain: such messages do not identify senders"
        yield config.problem("senders", what, level="warning")
    for key, wanted in _OF_PATTERN.items():
        if pattern != wanted and config.given(key):
            what = f"has no effect with pattern={pattern}"
            yield config.problem(key, what, level="warning")


def _security_problems(
    config: StreamConfig, key: str, endpoints: list[Endpoint]
) -> Iterator[Problem]:
    # Asking the configuration itself would resolve the secret.
    binds, has_curve = key == "bind", "curve.secret.key" in config.settings
    own, other = "curve.allowed.keys", "curve.server.key"
    if not binds:
        own, other = other, own
    if has_curve:
        if own not in config:
            what = f"requires {own} where this side {key}s"
            yield config.problem("curve.secret.key", what)
        if any(endpoint.transport == "inproc" for endpoint in endpoints):
            what = "has no effect on inproc endpoints, which stay within the process"
            yield config.problem("curve.secret.key", what, "remove it")
    elif own in config:
        yield config.problem(own, "requires curve.secret.key")
    elif not config["allow.plaintext"]:
        open_to = [str(e) for e in endpoints if not e.is_local]
        if open_to:
            what = f"{open_to[0]!r} can be reached from other machines"
            remedy = "set curve.secret.key, or allow.plaintext=true"
            yield config.problem(key, what, remedy)
    if other in config:
        what = f"has no effect where this side {key}s"
        yield config.problem(other, what, level="warning")


def _replay_problems(config: StreamConfig) -> Iterator[Problem]:
    """Options of a reader that need messages to be read again."""
    for key in _NEED_REPLAY:
        if key in config:
            what = f"{config.settings[key].text!r} requires replay"
            yield config.problem(key, what, DURABLE_WAY)
    if config["consumer.type"] == "highlevel" and config["pattern"] != DEALER_ROUTER:
        what = "highlevel requires replay: the stream cannot be read from a checkpoint"
        yield config.problem("consumer.type", what, DURABLE_WAY)
