"""Options and rules of servers that listen on an address, with or without TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi.addresses import is_loopback, parse_address
from streamfactory.spi.errors import ConfigError
from streamfactory.spi.files import read_file
from streamfactory.spi.options import BOOLEAN, PATH, Option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi.config import StreamConfig
    from streamfactory.spi.errors import Problem

_LONGEST_PEM: Final = 4 << 20

LISTENING_OPTIONS: Final = (
    Option(
        "allow.remote",
        "Listen on other addresses than loopback without TLS.",
        BOOLEAN,
        default="false",
    ),
    Option("tls.certificate", "PEM file with the server certificate.", PATH),
    Option("tls.key", "PEM file with the key of the certificate.", PATH),
    Option(
        "tls.client.ca",
        "PEM file with CA certificates; only clients with a certificate of them may "
        "connect.",
        PATH,
    ),
)
"""Beside them, a server has the option ``address``, with a default."""


def listening_problems(config: StreamConfig) -> Iterator[Problem]:
    """Yield problems with the address of a server, and with its TLS.

    For `StreamServer.check_options`: opens no file, and connects to nothing.

    Args:
        config: With ``address`` and `LISTENING_OPTIONS`.
    """
    for key, other in (
        ("tls.certificate", "tls.key"),
        ("tls.key", "tls.certificate"),
        ("tls.client.ca", "tls.certificate"),
    ):
        if key in config and other not in config:
            yield config.problem(key, f"requires {other}", f"set {other}")
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


def read_pem(config: StreamConfig, key: str) -> bytes | None:
    """Read the file that an option names; None where the option is not set.

    Raises:
        ConfigError: config; the file is missing, no regular one, or cannot be read.
    """
    if key not in config:
        return None
    try:
        return read_file(config[key], _LONGEST_PEM)
    except OSError as error:
        msg = f"{key} {config[key]!r} cannot be read: {error.strerror}"
        raise ConfigError(msg) from error


def read_tls(config: StreamConfig, authorities: str) -> dict[str, bytes]:
    """Read the PEM files of ``tls.certificate``, ``tls.key`` and of an authority.

    Checked here, because client libraries report a wrong one as a peer that cannot be
    reached.

    Args:
        config: The configuration.
        authorities: The option that names the CA certificates.

    Returns:
        The content of those that are set, by key.

    Raises:
        ConfigError: config; a file cannot be read, is no PEM, or the key belongs to
            another certificate.
    """
    import ssl  # configurations without TLS do not wait for it

    keys = (authorities, "tls.certificate", "tls.key")
    found = {key: read_pem(config, key) for key in keys if key in config}
    context, which = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), authorities
    try:
        if (content := found.get(authorities)) is not None:
            context.load_verify_locations(cadata=content.decode("ascii"))
        if "tls.certificate" in found and "tls.key" in found:
            which = "tls.certificate"
            # Without a password, OpenSSL would ask for that of the key at the terminal.
            files = config["tls.certificate"], config["tls.key"]
            context.load_cert_chain(*files, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        msg = f"{which} {config[which]!r} cannot be used: {reason}"
        if which == "tls.certificate":
            msg = f"{which} {config[which]!r} with tls.key {config['tls.key']!r} "
            msg += f"cannot be used: {reason}"
        remedy = "give PEM files: a certificate, and its key without a passphrase"
        raise ConfigError(msg, stream=config.name, remedy=remedy) from error
    return {key: content for key, content in found.items() if content is not None}
