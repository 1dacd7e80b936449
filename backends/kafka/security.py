"""Translation of credentials of the Java client and of Pinot to librdkafka."""

from __future__ import annotations

import base64
import binascii
import re
import textwrap
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError
from streamfactory.spi.files import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import StreamConfig

_LONGEST_STORE: Final = 1 << 20
PREFIXES: Final = ("sasl.", "security.", "ssl.", "enable.sasl.", "enable.ssl.")

MECHANISM: Final = frozenset({"sasl.mechanism", "sasl.mechanisms"})
"""Two names of one property."""
OAUTHBEARER: Final = "OAUTHBEARER"
MSK_IAM: Final = "AWS_MSK_IAM"
"""What Java calls the login of Amazon MSK; its tokens are those of OAUTHBEARER."""
MECHANISMS: Final = ("GSSAPI", OAUTHBEARER, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Those of librdkafka that brokers have, as it spells them."""

_RENAMED: Final[Mapping[str, str]] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
CLASSES: Final[Mapping[str, str]] = {
    "sasl.client.callback.handler.class": "set sasl.username and sasl.password",
    "sasl.login.callback.handler.class": "set sasl.oauthbearer.method=oidc, or "
    "stream.kafka.sasl.oauthbearer.token",
    "sasl.login.class": "set sasl.mechanism and its credentials",
    "ssl.engine.factory.class": "set ssl.ca.location, ssl.certificate.location and "
    "ssl.key.location",
    "security.providers": "librdkafka uses OpenSSL",
}
"""Properties that name classes of Java, which are not used, and what to set instead."""
_DROPPED: Final = frozenset(
    {
        "ssl.cipher.suites.class",
        "ssl.enabled.protocols",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        *CLASSES,
    }
)
JAVA_KEYS: Final = _DROPPED.union(
    _RENAMED,
    ("sasl.jaas.config", "ssl.keystore.type", "ssl.truststore.location"),
    ("ssl.truststore.password", "ssl.truststore.type"),
)
"""Properties of the Java client that are translated, or have no effect."""

_JAAS: Final = re.compile(
    r"""\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b
    (?P<options>(?:\s+[\w.]+\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s;"]+))*)\s*;?\s*""",
    re.VERBOSE,
)
_JAAS_OPTION: Final = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
_LOGINS: Final[Mapping[str, Mapping[str, str]]] = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
    "IAMLoginModule": {},
}
"""Login modules of Java, with librdkafka's names of their options."""
_KERBEROS: Final = "Krb5LoginModule"
NO_KERBEROS: Final = (
    "the wheels of confluent-kafka contain no Kerberos: install librdkafka with "
    "libsasl2, and then pip install --no-binary confluent-kafka confluent-kafka"
)


def java_security(given: Mapping[str, str]) -> dict[str, str]:
    """Security properties with librdkafka's names.

    Raises:
        ConfigError: config; only Java can read a given file or property.
    """
    found = {
        _RENAMED.get(key, key): value
        for key, value in given.items()
        if key not in _DROPPED
    }
    _truststore(found)
    _keystore(found)
    if "sasl.jaas.config" in found:
        for key, value in _login(found.pop("sasl.jaas.config")).items():
            found.setdefault(key, value)
    for key in MECHANISM.intersection(found):
        if found[key] == MSK_IAM:
            found[key] = OAUTHBEARER
    if "sasl.oauthbearer.client.id" in found:
        found.setdefault("sasl.oauthbearer.method", "oidc")
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def pinot_security(config: StreamConfig) -> dict[str, str]:
    """Pinot's base64 certificates as PEM.

    Raises:
        ConfigError: config; a value is not base64.
    """
    found = {}
    for key, target, label in (
        ("ssl.server.certificate", "ssl.ca.pem", "CERTIFICATE"),
        ("ssl.client.certificate", "ssl.certificate.pem", "CERTIFICATE"),
        ("ssl.client.key", "ssl.key.pem", "PRIVATE KEY"),
    ):
        if config.get(key):
            found[target] = _pem(config[key], label, f"stream.{config.type}.{key}")
    return found


def _truststore(found: dict[str, str]) -> None:
    location = found.pop("ssl.truststore.location", None)
    kind = found.pop("ssl.truststore.type", "JKS").upper()
    found.pop("ssl.truststore.password", None)
    if location is None:
        return
    if kind != "PEM" and not _is_pem(location):
        msg = f"ssl.truststore.location={location!r} is a Java key store ({kind})"
        remedy = "export its certificates as PEM, and set ssl.ca.location"
        raise ConfigError(msg, remedy=remedy)
    found.setdefault("ssl.ca.location", location)


def _keystore(found: dict[str, str]) -> None:
    location = found.get("ssl.keystore.location")
    kind = found.pop("ssl.keystore.type", "").upper()
    if location is None:
        return
    if kind == "PEM" or (not kind and _is_pem(location)):
        del found["ssl.keystore.location"]
        found.pop("ssl.keystore.password", None)
        found.setdefault("ssl.certificate.location", location)
        found.setdefault("ssl.key.location", location)
    elif kind == "JKS" or location.lower().endswith(".jks"):
        msg = f"ssl.keystore.location={location!r} is a Java key store"
        raise ConfigError(msg, remedy="convert it to PKCS#12 or PEM")


def _is_pem(location: str) -> bool:
    try:
        return b"-----BEGIN" in read_file(location, _LONGEST_STORE)
    except OSError:
        return location.lower().endswith((".pem", ".crt"))


def _login(text: str) -> dict[str, str]:
    match = _JAAS.fullmatch(text)
    module = "" if match is None else match["module"].rpartition(".")[2]
    if match is None or module not in _LOGINS:
        what = module or "text of an unsupported form"
        msg = f"sasl.jaas.config contains {what}, which only Java supports"
        remedy = "set sasl.mechanism, sasl.username and sasl.password"
        if module == _KERBEROS:
            remedy = "set sasl.kerberos.principal and sasl.kerberos.keytab; "
            remedy += NO_KERBEROS
        raise ConfigError(msg, remedy=remedy)
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
        for name, quoted, bare in _JAAS_OPTION.findall(match["options"])
    }
    names = _LOGINS[module]
    return {names[name]: text for name, text in options.items() if name in names}


def _pem(text: str, label: str, key: str) -> str:
    if "-----BEGIN" in text:
        return text
    try:
        raw = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        msg = f"{key} is neither base64 nor PEM"
        raise ConfigError(msg) from None
    if b"-----BEGIN" in raw:
        return raw.decode("ascii", "replace")
    body = "\n".join(textwrap.wrap(base64.b64encode(raw).decode(), 64))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"
