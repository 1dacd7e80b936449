"""Tokens for OAUTHBEARER, from a Python function or from AWS.

The function has the form of confluent-kafka's ``oauth_cb``. It is imported and called
by the process that connects: on Spark also by the workers of executors.
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from streamfactory.backends.kafka.options import AWS, INSTALL_AWS, REGION, SIGNER, TOKEN
from streamfactory.spi import ConfigError, NotAuthorized

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import StreamConfig

    Token = tuple[Any, ...]
    """The token and the time of its expiry in seconds since 1970-01-01 UTC; optionally
    the principal, and a dictionary of SASL extensions."""

log = logging.getLogger("streamfactory.kafka")

_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")


def token_callback(
    config: StreamConfig, settings: str
) -> Callable[[str], Token] | None:
    """Return the callback of a client; None if the configuration names none.

    The first token is fetched here: the client would wait ten seconds for one before it
    reports a failure, without its reason.

    Args:
        config: The stream's configuration.
        settings: The client's ``sasl.oauthbearer.config``, which the function is given.

    Raises:
        ConfigError: config; the function cannot be imported, or AWS's signer cannot.
        NotAuthorized: permanent; the function failed.
    """
    source = config.get(TOKEN)
    if source is None:
        return None
    fetch = _aws(config) if source == AWS else _function(source, config.name)
    try:
        first: list[Token] = [fetch(settings)]
    except Exception as error:
        reason = config.mask(f"{type(error).__name__}: {error}")
        msg = f"no token for OAUTHBEARER: {source} failed: {reason}"
        raise NotAuthorized(msg, stream=config.name) from error

    def fetch_token(settings: str) -> Token:
        try:
            return first.pop() if first else fetch(settings)
        except Exception as error:
            # The client tries again; with an old token it stays connected for a while.
            reason = config.mask(f"{type(error).__name__}: {error}")
            log.warning("no new token for OAUTHBEARER: %s failed: %s", source, reason)
            raise

    return fetch_token


def _function(path: str, stream: str) -> Callable[[str], Token]:
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    # A foreign module must not end the process at import.
    except (Exception, SystemExit) as error:
        msg = f"{TOKEN}: {path!r} cannot be loaded: {type(error).__name__}: {error}"
        remedy = "install its module where clients connect, on Spark on executors too"
        raise ConfigError(msg, stream=stream, remedy=remedy) from error
    if not callable(found):
        msg = f"{TOKEN}: {path!r} is a {type(found).__name__}, expected a function"
        raise ConfigError(msg, stream=stream)
    made: Callable[[str], Token] = found
    return made


def _aws(config: StreamConfig) -> Callable[[str], Token]:
    """Sign with the credentials that AWS's libraries find: role, profile, variables."""
    try:
        signer = importlib.import_module(f"{SIGNER}.MSKAuthTokenProvider")
    except ImportError as error:
        msg = f"{TOKEN}={AWS} requires the package aws-msk-iam-sasl-signer-python"
        raise ConfigError(msg, stream=config.name, remedy=INSTALL_AWS) from error
    region = config.get(REGION) or next(filter(None, map(os.environ.get, _REGIONS)), "")
    if not region:
        msg = f"{TOKEN}={AWS}: the region of the cluster is unknown"
        remedy = f"set stream.kafka.{REGION}, or the environment variable AWS_REGION"
        raise ConfigError(msg, stream=config.name, remedy=remedy)

    def sign(_: str) -> Token:
        token, expiry = signer.generate_auth_token(region)
        return token, expiry / 1000

    return sign
