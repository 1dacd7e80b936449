"""Connections by configuration, and the claims of the server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.backends.flight.client.connection import Connection
from streamfactory.spi import Claims, ConfigError, EpochVisibility

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

CLAIMS: Final = Claims(
    replayable=True,
    durable=True,
    shared=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)

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
    )


def _credentials(config: StreamConfig) -> tuple[dict[str, Any], list[Any]]:
    """TLS arguments of the client, and the headers of its calls.

    Read for each new connection: a token or certificate may be renewed.

    Raises:
        ConfigError: config; a file cannot be read.
    """
    tls = {}
    for key, argument in _PEM.items():
        if key in config:
            try:
                tls[argument] = Path(config[key]).read_bytes()
            except OSError as error:
                msg = f"{key} {config[key]!r} cannot be read: {error.strerror}"
                raise ConfigError(msg) from error
    if "token" not in config:
        return tls, []
    return tls, [(b"authorization", b"Bearer " + config["token"].encode())]
