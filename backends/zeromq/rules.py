"""Rules over several options of ``zeromq``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.zeromq.options import (
    DEALER_ROUTER,
    DURABLE_WAY,
    PUB_SUB,
)
from streamfactory.live.rules import replay_problems, side_of, without_effect
from streamfactory.spi import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.backends.zeromq.endpoints import Endpoint
    from streamfactory.spi import Problem, StreamConfig

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
        resumes = config["pattern"] == DEALER_ROUTER
        yield from replay_problems(config, DURABLE_WAY, resumes=resumes)
    yield from _pattern_problems(config)
    side = side_of(config, "bind")
    if isinstance(side, str):
        endpoints = [endpoint for each in config[side] for endpoint in each]
        yield from _security_problems(config, side, endpoints)
    else:
        yield side


def _pattern_problems(config: StreamConfig) -> Iterator[Problem]:
    pattern, is_plain = config["pattern"], config["framing"] == "plain"
    if is_plain and pattern == DEALER_ROUTER:
        what = "excludes pattern=dealer-router: acknowledgements need sequence numbers"
        yield config.problem("framing", what, "remove framing, or use push-pull")
    if is_plain:
        why = "with framing=plain: such messages do not identify senders"
        yield from without_effect(config, "senders", why)
    for key, wanted in _OF_PATTERN.items():
        if pattern != wanted:
            yield from without_effect(config, key, f"with pattern={pattern}")


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
    yield from without_effect(config, other, f"where this side {key}s")
