"""Rules over several options of ``socket``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.socket.options import DURABLE_WAY
from streamfactory.live.rules import replay_problems, side_of, without_effect
from streamfactory.spi import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.backends.socket.addresses import Address
    from streamfactory.spi import Problem, StreamConfig

_OF_TLS: Final = (
    "tls.certificate",
    "tls.key",
    "tls.key.password",
    "tls.ca",
    "tls.hostname",
    "handshake.timeout.millis",
)
_OF_LISTENERS: Final = ("handshake.timeout.millis", "schema.timeout.millis")


def check_options(config: StreamConfig, role: Role | None) -> Iterator[Problem]:
    """See `Backend.check_options`."""
    if role is not Role.WRITE:
        yield from replay_problems(config, DURABLE_WAY)
    side = side_of(config, "listen")
    if isinstance(side, str):
        yield from _problems_of(config, side)
    else:
        yield side


def _problems_of(config: StreamConfig, key: str) -> Iterator[Problem]:
    """Problems of a stream that has only ``listen`` or only ``connect``."""
    addresses: tuple[Address, ...] = config[key]
    listens = key == "listen"
    if config["tls"]:
        yield from _tls_problems(config, addresses, listens=listens)
    elif not config["allow.plaintext"] and not all(a.is_local for a in addresses):
        what = f"{config.settings[key].text!r} is not an address of this machine alone"
        yield config.problem(key, what, "set tls=true, or allow.plaintext=true")
    if not listens:
        for word in ("writers", "readers"):
            if config[word] != 1:
                yield config.problem(
                    word, "requires listen: a connecting side has only one peer"
                )
    yield from _without_effect(config, listens=listens)


def _tls_problems(
    config: StreamConfig, addresses: tuple[Address, ...], *, listens: bool
) -> Iterator[Problem]:
    if addresses[0].is_unix:
        yield config.problem("tls", "is not supported on a Unix socket", "remove it")
    if listens and not {"tls.certificate", "tls.key"} <= set(config):
        what = "requires tls.certificate and tls.key with listen"
        yield config.problem("tls", what)
    elif ("tls.certificate" in config) != ("tls.key" in config):
        yield config.problem(
            "tls", "requires both tls.certificate and tls.key, or neither"
        )


def _without_effect(config: StreamConfig, *, listens: bool) -> Iterator[Problem]:
    for key in _OF_TLS if not config["tls"] else ():
        yield from without_effect(config, key, "without tls=true")
    if listens:
        if config["tls"]:
            yield from without_effect(config, "tls.hostname", "with listen")
        return
    for key in _OF_LISTENERS:
        if config["tls"] or key not in _OF_TLS:
            why = "without listen: it applies to accepted connections"
            yield from without_effect(config, key, why)
