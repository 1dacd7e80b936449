"""TLS contexts for the connecting and the listening side."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from streamfactory.spi import ConfigError
from streamfactory.spi.listening import read_pem

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig


def make_context(config: StreamConfig, *, listens: bool) -> ssl.SSLContext:
    """The context that the options ``tls.*`` describe.

    Args:
        config: The configuration. Its secret is resolved here, for each connection.
        listens: Whether this side listens.

    Raises:
        ConfigError: config; a file cannot be read, or has the wrong content.
    """
    side = ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if listens:
        # A writer reads nothing, so session tickets would stay unread. Closing would
        # then reset the connection and drop data in flight.
        context.num_tickets = 0
    for key in ("tls.ca", "tls.certificate", "tls.key"):
        read_pem(config, key)  # OpenSSL would wait for a pipe, and read any device
    key = "tls.ca"
    try:
        if "tls.ca" in config:
            context.load_verify_locations(config["tls.ca"])
            context.verify_mode = ssl.CERT_REQUIRED
        elif not listens:
            context.load_default_certs()
        if "tls.certificate" in config:
            key = "tls.certificate"
            # Without a password OpenSSL would prompt for one on the terminal.
            password = config.get("tls.key.password", "")
            context.load_cert_chain(
                config["tls.certificate"], config["tls.key"], lambda: password
            )
    except OSError as error:  # SSLError is one
        msg = f"the files of {key} cannot be used: {_reason(error)}"
        remedy = f"set stream.{config.type}.{key} and its key to PEM files"
        raise ConfigError(msg, stream=config.name, remedy=remedy) from error
    return context


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)
