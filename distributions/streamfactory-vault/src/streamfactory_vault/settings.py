"""Where the server is, and how a process signs in: variables of its environment.

The names are those of the clients of OpenBao (``BAO_...``) and Vault (``VAULT_...``).
A value may be a reference: ``VAULT_TOKEN='${file:/run/secrets/vault}'``.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from streamfactory.spi import ConfigError
from streamfactory.spi.references import resolve

KEEP_SECONDS: Final = 300.0
"""How long values are kept, unless ``VAULT_KEEP_SECONDS`` says otherwise."""
_PREFIXES: Final = ("BAO_", "VAULT_")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach the server.

    Args:
        address: ``https://vault.example:8200``, without a path.
        token: A token; empty to sign in by AppRole.
        role_id: Of AppRole.
        secret_id: Of AppRole; empty for roles that need none.
        auth_mount: Where AppRole is mounted.
        namespace: A namespace; empty for the root.
        keep_seconds: How long values are kept, at most.
    """

    address: str
    token: str = field(repr=False)
    role_id: str = field(repr=False)
    secret_id: str = field(repr=False)
    auth_mount: str
    namespace: str
    keep_seconds: float

    @classmethod
    def of_environment(cls) -> Settings:
        """Read the variables, with their references resolved.

        Raises:
            ConfigError: config; one is missing, or not valid.
        """
        address = _variable("ADDR").rstrip("/")
        if not address:
            msg = "the environment has no VAULT_ADDR: the address of the server"
            raise ConfigError(msg)
        _check_address(address)
        token, role = _header("TOKEN"), _variable("ROLE_ID")
        if not token and not role:
            msg = "the environment has neither VAULT_TOKEN nor VAULT_ROLE_ID"
            raise ConfigError(msg)
        return cls(
            address,
            "" if role else token,
            role,
            _variable("SECRET_ID"),
            _variable("AUTH_MOUNT") or "approle",
            _header("NAMESPACE"),
            _keep_seconds(),
        )


def tls_context() -> ssl.SSLContext:
    """Return what verifies the server, and has the certificate of the client.

    Raises:
        ConfigError: config; a file cannot be used.
    """
    try:
        context = ssl.create_default_context(
            cafile=_variable("CACERT") or None, capath=_variable("CAPATH") or None
        )
        if certificate := _variable("CLIENT_CERT"):
            context.load_cert_chain(certificate, _variable("CLIENT_KEY") or None)
    except OSError as error:  # ssl.SSLError is one
        names = "VAULT_CACERT, VAULT_CAPATH, VAULT_CLIENT_CERT or VAULT_CLIENT_KEY"
        msg = f"{names} cannot be used: {error}"
        raise ConfigError(msg) from None
    return context


def _variable(name: str) -> str:
    given = (os.environ.get(prefix + name) for prefix in _PREFIXES)
    text = next(filter(None, given), "")
    if "${vault:" in text:
        msg = f"VAULT_{name} refers to the server that it is needed for"
        raise ConfigError(msg)
    return resolve(text).strip()


def _header(name: str) -> str:
    """A variable that is sent as a header: errors of HTTP would quote a bad one."""
    text = _variable(name)
    if not is_header(text):
        msg = f"VAULT_{name} has blanks, line ends, or characters that are not ASCII"
        raise ConfigError(msg)
    return text


def is_header(text: str) -> bool:
    """Whether a text can be sent as a header, and be only that."""
    return text.isascii() and text.isprintable() and " " not in text


def shows_secrets(url: str) -> bool:
    """Whether a request to a URL is read by the network, and the user did not allow it.

    Raises:
        ValueError: It is not a URL.
    """
    parts = urlsplit(url)
    plain = parts.scheme == "http" and parts.hostname not in _LOOPBACK
    return plain and _variable("ALLOW_HTTP") != "true"


def _check_address(address: str) -> None:
    """Refuse addresses that show secrets to the network, or are none."""
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 - which may raise
    except ValueError:
        address, parts = "", urlsplit("")
    if shows_secrets(address):
        msg = (
            "VAULT_ADDR is not encrypted: write https://, or set VAULT_ALLOW_HTTP=true "
            "if something else protects the way there"
        )
        raise ConfigError(msg)
    sound = parts.scheme in ("http", "https") and parts.hostname
    if not sound or parts.username or parts.path or parts.query or parts.fragment:
        msg = "VAULT_ADDR is not an address such as https://vault.example:8200"
        raise ConfigError(msg)


def _keep_seconds() -> float:
    text = _variable("KEEP_SECONDS")
    try:
        seconds = float(text) if text else KEEP_SECONDS
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        msg = "VAULT_KEEP_SECONDS is not a number of seconds from 0 to 86400"
        raise ConfigError(msg)
    return seconds
