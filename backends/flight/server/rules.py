"""Rules over several settings of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk.places import place_problems
from streamfactory.backends.flight.server.options import STORE_OPTIONS
from streamfactory.spi import Problem
from streamfactory.spi.addresses import is_loopback, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import StreamConfig


def check_options(config: StreamConfig) -> Iterator[Problem]:
    """See `StreamServer.check_options`."""
    yield from _store(config)
    yield from _tls(config)
    yield from _address(config)


def _store(config: StreamConfig) -> Iterator[Problem]:
    if config["memory"] == ("path" in config):
        what = "the server needs either path or memory=true"
        yield Problem("path", what, "", "give --path PATH or --memory")
    elif "path" in config:
        yield from place_problems(config, writes=True)
    else:
        for option in STORE_OPTIONS:
            if config.given(option.key):
                what = "has no effect with memory=true"
                yield config.problem(option.key, what, level="warning")


def _tls(config: StreamConfig) -> Iterator[Problem]:
    for key, other in (
        ("tls.certificate", "tls.key"),
        ("tls.key", "tls.certificate"),
        ("tls.client.ca", "tls.certificate"),
    ):
        if key in config and other not in config:
            yield config.problem(key, f"requires {other}", f"set {other}")


def _address(config: StreamConfig) -> Iterator[Problem]:
    """Refuse to listen on the network without TLS, unless it is allowed."""
    address: str = config["address"]
    try:
        host, _ = parse_address(address)
    except ValueError as error:
        hint = "write for instance 127.0.0.1:8815"
        yield config.problem("address", str(error), hint)
        return
    if not (is_loopback(host) or "tls.certificate" in config or config["allow.remote"]):
        what = f"{address!r} is open to the network, and TLS is not configured"
        hint = "set tls.certificate and tls.key, or allow.remote=true"
        yield config.problem("address", what, hint)
