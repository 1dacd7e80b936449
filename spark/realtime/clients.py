"""Options of Spark's Kafka connector, from the configuration of a stream.

Its clients are those of Java. References to secrets are passed on as references, which
these clients resolve in the process that uses them: Spark's plans have no secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.spi import Problem
from streamfactory.spi.references import has_reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.spi import StreamConfig
    from streamfactory.spi.config import Setting

CONSUMER: Final = "consumer"
PRODUCER: Final = "producer"
_SECURITY: Final = ("sasl.", "security.", "ssl.")
_PROVIDERS: Final = {
    "config.providers": "env,dir",
    "config.providers.env.class": "EnvVarConfigProvider",
    "config.providers.dir.class": "DirectoryConfigProvider",
}
_PACKAGE: Final = "org.apache.kafka.common.config.provider"
_REFERENCE: Final = re.compile(r"\$\{(\w+):([^{}]*)\}")
_LOGINS: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SAME: Final = frozenset(
    {
        "sasl.jaas.config",
        "security.protocol",
        "ssl.cipher.suites",
        "ssl.key.password",
        "ssl.truststore.certificates",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
    }
)
_SAME_OF: Final = {
    CONSUMER: frozenset(
        {"fetch.max.bytes", "fetch.min.bytes", "max.partition.fetch.bytes"}
    ),
    PRODUCER: frozenset(
        {"batch.size", "compression.type", "delivery.timeout.ms", "linger.ms"}
    ),
}
"""Properties that both clients have, by the same name and meaning."""
_TEXTS: Final = {
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_FILES: Final = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
"""Files of PEM, whose content Java reads as such a property."""
_MECHANISMS: Final = ("sasl.mechanism", "sasl.mechanisms")
_CHECK: Final = "ssl.endpoint.identification.algorithm"
_CONSUMED: Final = frozenset({"sasl.username", "sasl.password", *_MECHANISMS, _CHECK})
_QUOTING: Final = '"\\'
_QUOTED: Final = "contains a quote or a backslash, which end the text in Java's login"
_NOT_PASSED: Final = "is not passed to Spark's Kafka connector"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of a client, and what prevents them."""

    options: dict[str, str]
    """For Spark's connector: names begin with ``kafka.``."""
    problems: list[Problem] = field(default_factory=list)


def client_options(config: StreamConfig, kind: str) -> ClientOptions:
    """Translate the address, the credentials and the properties of a client.

    Args:
        config: Of a stream of the type ``kafka``.
        kind: `CONSUMER` or `PRODUCER`. Missing credentials are those of the other.
    """
    other = config.client.get(PRODUCER if kind == CONSUMER else CONSUMER, {})
    given = {k: s for k, s in other.items() if k.startswith(_SECURITY)}
    given |= config.client.get(kind, {})
    if "isolation.level" in given:  # an option of the stream, as well
        given = {k: s for k, s in given.items() if k != "isolation.level"}
    problems = [one for s in given.values() for one in _reference_problems(s)]
    options = {"bootstrap.servers": str(config["broker.list"])}
    options |= _login(given, problems)
    options |= _endpoint_check(given)
    for key, setting in given.items():
        if key in _FILES:
            path = Path(setting.text).absolute()
            problems += _path_problems(setting, path)
            options[_FILES[key]] = f"${{file:{path}}}"
        elif key in _TEXTS or key in _SAME | _SAME_OF[kind]:
            options[_TEXTS.get(key, key)] = setting.text
        elif key not in _CONSUMED:
            hint = "remove it for this pipeline"
            problems.append(
                Problem(setting.full_key, _NOT_PASSED, setting.origin, hint)
            )
    for store in ("truststore", "keystore"):
        if any(key.startswith(f"ssl.{store}.") for key in options):
            options[f"ssl.{store}.type"] = "PEM"
    if any(map(has_reference, options.values())):
        options |= {
            key: text if key == "config.providers" else f"{_PACKAGE}.{text}"
            for key, text in _PROVIDERS.items()
        }
    named = {f"kafka.{key}": _for_java(text) for key, text in options.items()}
    return ClientOptions(named, problems)


def _login(given: Mapping[str, Setting], problems: list[Problem]) -> dict[str, str]:
    """The mechanism, and the login as Java has it."""
    found = [given[key] for key in _MECHANISMS if key in given]
    if not found:
        return {}
    mechanism = found[0]
    module = _LOGINS.get(mechanism.text)
    if module is None:
        what = f"{mechanism.text!r} is none of {', '.join(_LOGINS)}, which pipelines "
        what += "in real time support"
        problems.append(Problem(mechanism.full_key, what, mechanism.origin))
        return {}
    if "sasl.jaas.config" in given:
        return {"sasl.mechanism": mechanism.text}
    login = module + " required"
    for key in ("username", "password"):
        setting = given.get(f"sasl.{key}")
        if setting is None:
            what = f"requires sasl.{key}"
            problems.append(Problem(mechanism.full_key, what, mechanism.origin))
        elif set(_QUOTING) & set(setting.text):
            problems.append(Problem(setting.full_key, _QUOTED, setting.origin))
        else:
            login += f' {key}="{setting.text}"'
    return {"sasl.mechanism": mechanism.text, "sasl.jaas.config": f"{login};"}


def _endpoint_check(given: Mapping[str, Setting]) -> dict[str, str]:
    """Whether names of brokers are compared with their certificates."""
    setting = given.get(_CHECK)
    if setting is None:
        return {}
    return {_CHECK: "" if setting.text.lower() in ("", "none") else setting.text}


def _reference_problems(setting: Setting) -> Iterator[Problem]:
    """Why a value cannot be passed to Java."""
    text = setting.text
    if "$${" in text:
        what = "contains $${, which Java does not read"
        yield Problem(setting.full_key, what, setting.origin)
    for match in _REFERENCE.finditer(text):
        scheme, name = match.groups()
        if scheme not in ("env", "file"):
            what = f"${{{scheme}:...}} is resolved in Python only"
            hint = "write ${env:NAME} or ${file:PATH}"
            yield Problem(setting.full_key, what, setting.origin, hint)
        elif scheme == "file":
            yield from _file_problems(setting, Path(name))


def _file_problems(setting: Setting, path: Path) -> Iterator[Problem]:
    yield from _path_problems(setting, path)
    if setting.key not in ("sasl.username", "sasl.password"):
        return
    content = _content(path)
    if content.endswith((b"\n", b"\r")):
        what = f"{str(path)!r} ends with a line end, which Java keeps"
        hint = "write the file without it, as printf does"
        yield Problem(setting.full_key, what, setting.origin, hint)
    if set(content) & set(_QUOTING.encode()):
        what = f"{str(path)!r} {_QUOTED}"
        yield Problem(setting.full_key, what, setting.origin)


def _path_problems(setting: Setting, path: Path) -> Iterator[Problem]:
    """Why Java does not read a path in a reference."""
    if not path.is_absolute() or set(str(path)) & set(":{}"):
        what = f"{str(path)!r} is no absolute path without colons and braces, which "
        what += "Java requires"
        yield Problem(setting.full_key, what, setting.origin, "move the file")


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""  # the client of this process reports it


def _for_java(text: str) -> str:
    """References as the providers of Java's clients read them."""

    def written(match: re.Match[str]) -> str:
        scheme, name = match.groups()
        if scheme == "env":
            return match[0]
        return f"${{dir:{Path(name).parent}:{Path(name).name}}}"

    return _REFERENCE.sub(written, text)
