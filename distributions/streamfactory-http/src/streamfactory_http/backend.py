"""``http``: batches to an endpoint, server-sent events from one."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
from streamfactory import spi
from streamfactory.spi.addresses import is_loopback

from streamfactory_http.options import OPTIONS
from streamfactory_http.reading import HttpConsumerFactory
from streamfactory_http.writing import HttpProducerFactory


def check_options(
    config: spi.StreamConfig, role: spi.Role | None
) -> Iterator[spi.Problem]:
    """Rules over several options."""
    url = urlsplit(config["url"])
    if url.scheme != "http":
        return
    if config.given("ca.file"):
        yield config.problem("ca.file", "has no effect with http:", level="warning")
    if config.given("token") and not is_loopback(url.hostname or ""):
        what = "is sent without encryption: use https"
        yield config.problem("token", what, level="warning")


@spi.hookimpl
def streamfactory_backend() -> spi.Backend:
    """The stream type, its options and its factories."""
    return spi.Backend(
        name="http",
        doc="Posts batches of messages, and follows server-sent events.",
        spi_level=1,
        options=OPTIONS,
        consumer_factory=HttpConsumerFactory,
        producer_factory=HttpProducerFactory,
        yields=spi.Yields.ENVELOPE,
        check_options=check_options,
        translate=spi.ErrorTable(
            {
                ssl.SSLCertVerificationError: spi.NotAuthorized,
                httpx.TimeoutException: spi.StreamTimeout,
                httpx.HTTPError: spi.ConnectionFailed,
                httpx.InvalidURL: spi.PermanentError,
            }
        ),
    )
