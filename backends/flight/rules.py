"""Options of ``flight`` that exclude or require one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from streamfactory.backends.flight.options import PLAIN, TLS
from streamfactory.spi import Role
from streamfactory.spi.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Problem, StreamConfig

_OF_TLS: Final = ("tls.ca", "tls.certificate", "tls.key")
_OF_PLAIN: Final = ("plain.command", "plain.deterministic")


def check_options(config: StreamConfig, role: Role | None) -> Iterator[Problem]:
    """See `Backend.check_options`."""
    locations: tuple[str, ...] = config.get("location") or ()
    insecure = [place for place in locations if urlsplit(place).scheme != TLS]
    exposed = [
        place for place in insecure if not is_loopback(urlsplit(place).hostname or "")
    ]
    if config.given("token") and exposed:
        what = f"would be sent to {exposed[0]} in the clear"
        yield config.problem("token", what, "use a grpc+tls location")
    if config.given("tls.certificate") != config.given("tls.key"):
        given = "tls.certificate" if config.given("tls.certificate") else "tls.key"
        what = "tls.certificate and tls.key belong together"
        yield config.problem(given, what, "give both")
    for key in _OF_TLS:
        if config.given(key) and locations and len(insecure) == len(locations):
            what = "has no effect: no location is grpc+tls"
            yield config.problem(key, what, level="warning")
    if config["protocol"] == PLAIN:
        if role is Role.WRITE:
            what = "plain Flight servers are read-only"
            yield config.problem("protocol", what, "set stream.flight.protocol=log")
        grouped = config.get("consumer.type") == "highlevel"
        if grouped and not config.given("checkpoint.location"):
            what = "a plain Flight server stores no checkpoints of groups"
            yield config.problem("consumer.type", what, "set checkpoint.location")
        return
    for key in _OF_PLAIN:
        if config.given(key):
            what = "has no effect without protocol=plain"
            yield config.problem(key, what, level="warning")
