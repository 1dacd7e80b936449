"""Connections by configuration, and the claims of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.backends.flight.client.connection import Connection
from streamfactory.spi import Claims, ConfigError, EpochVisibility
from streamfactory.spi.listening import read_tls

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

CLAIMS: Final = Claims(
    replayable=True,
    durable=True,
    shared=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)

_LONGEST_TOKEN: Final = 8192
_PEM: Final = {
    "tls.ca": "tls_root_certs",
    "tls.certificate": "cert_chain",
    "tls.key": "private_key",
}


def connect(config: StreamConfig) -> Connection:
    """The connection of one factory; opened on first use."""
    return Connection(
        config["location"],
        config["connection.timeout.millis"] / 1000,
        config["upload.timeout.millis"] / 1000,
        lambda: _credentials(config),
        (config["tls.certificate"], config["tls.key"])
        if "tls.certificate" in config
        else None,
    )


def _credentials(config: StreamConfig) -> tuple[dict[str, Any], list[Any]]:
    """TLS arguments of the client, and the headers of its calls.

    Read for each new connection: a token or certificate may be renewed.

    Raises:
        ConfigError: config; a file cannot be read or used, or the token is none.
    """
    given = any(key in config for key in _PEM)
    pem = read_tls(config, "tls.ca") if given else {}
    tls = {_PEM[key]: content for key, content in pem.items()}
    if "token" not in config:
        return tls, []
    token: str = config["token"]
    if not (token.isascii() and token.isprintable()) or len(token) > _LONGEST_TOKEN:
        msg = "token has characters that no header can have: line breaks, control or "
        msg += f"non-ASCII characters, or more than {_LONGEST_TOKEN} in all"
        raise ConfigError(
            msg, remedy="correct the variable or file that it is read from"
        )
    return tls, [(b"authorization", b"Bearer " + token.encode())]
