"""The settings of the pages: their options, rules, token and certificates."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from streamfactory.spi import BOOLEAN, LIST, ConfigError, Option
from streamfactory.spi.addresses import is_loopback, parse_address
from streamfactory.spi.listening import (
    LISTENING_OPTIONS,
    listening_problems,
    read_tls,
)
from streamfactory.wiring.config.configure import resolve_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.spi import Problem, StreamConfig
    from streamfactory.wiring.config.definition import Property

MIN_TOKEN: Final = 16
"""Characters."""

OPTIONS: Final = (
    Option(
        "address",
        "Host and port to listen on; port 0 selects a free one.",
        default="127.0.0.1:9816",
        example="127.0.0.1:9816",
    ),
    Option(
        "token",
        f"Allows actions; at least {MIN_TOKEN} characters. Required on other addresses "
        "than loopback and with hosts, where reading requires it, too.",
        secret=True,
        example="${env:UI_TOKEN}",
    ),
    Option(
        "edit",
        "Whether clients that gave the token may change the files of streams and "
        "pipelines.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "hosts",
        "Names by which browsers call this server, for instance that of a proxy.",
        LIST,
        example="streams.example.com",
    ),
    *LISTENING_OPTIONS,
)


def page_settings(properties: Sequence[Property]) -> StreamConfig:
    """Validated settings of the pages.

    Raises:
        ConfigError: config; every problem at once.
    """
    return resolve_settings("the pages", "ui", OPTIONS, properties, _problems)


def must_log_in(config: StreamConfig) -> bool:
    """Whether reading requires the token, too: others than this machine connect."""
    return not is_loopback(parse_address(config["address"])[0]) or "hosts" in config


def _problems(config: StreamConfig) -> Iterator[Problem]:
    found = list(listening_problems(config))
    yield from found
    if config["edit"] and "token" not in config:
        what = "lets clients change files, and requires a token"
        yield config.problem("edit", what, "set token, by reference: ${file:PATH}")
    if not found and "token" not in config and must_log_in(config):
        key = "hosts" if "hosts" in config else "address"
        what = "opens the pages to others than this machine, and requires a token"
        yield config.problem(key, what, "set token, by reference: ${file:PATH}")


def read_token(config: StreamConfig) -> str | None:
    """Resolve the token; None where there is none.

    Raises:
        ConfigError: config; it cannot be resolved, is too short, or is not one line.
    """
    if "token" not in config:
        return None
    token = str(config["token"]).strip()
    remedy = "write one: python -c 'import secrets; print(secrets.token_urlsafe())'"
    if len(token) < MIN_TOKEN:
        msg = f"the token of the pages has fewer than {MIN_TOKEN} characters"
        raise ConfigError(msg, remedy=remedy)
    if not token.isprintable():
        msg = "the token of the pages has line breaks or control characters"
        raise ConfigError(msg, remedy=remedy)
    return token


def tls_context(config: StreamConfig) -> ssl.SSLContext | None:
    """TLS of the server; None where it is not configured.

    Raises:
        ConfigError: config; a file cannot be read, is no PEM, or does not fit.
    """
    if "tls.certificate" not in config:
        return None
    pem = read_tls(config, "tls.client.ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(config["tls.certificate"], config["tls.key"], password="")
    if "tls.client.ca" in pem:
        context.load_verify_locations(cadata=pem["tls.client.ca"].decode("ascii"))
        context.verify_mode = ssl.CERT_REQUIRED
    return context
