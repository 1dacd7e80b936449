"""Rules over several options of ``kafka``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from streamfactory.backends.kafka.options import AWS, INSTALL_AWS, SIGNER, TOKEN
from streamfactory.backends.kafka.security import (
    CLASSES,
    MECHANISM,
    MECHANISMS,
    MSK_IAM,
    NO_KERBEROS,
    OAUTHBEARER,
    java_security,
)
from streamfactory.backends.kafka.writing_options import TASK
from streamfactory.spi import ConfigError, Problem, Role
from streamfactory.spi.references import has_reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.spi import StreamConfig
    from streamfactory.spi.config import Setting

_KNOWN: Final = ", ".join((*MECHANISMS, MSK_IAM))
_SOURCES: Final = frozenset(
    {
        "enable.sasl.oauthbearer.unsecure.jwt",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.metadata.authentication.type",
        "sasl.oauthbearer.method",
    }
)
"""Properties by which the client gets tokens itself."""
_LEVEL: Final = "isolation.level"
_OF_STAGING: Final = ("staging.location", "staging.inline.bytes", "staging.age.millis")


def check_options(config: StreamConfig, role: Role | None) -> Iterator[Problem]:
    """See `Backend.check_options`."""
    if role is not Role.WRITE:
        ours = config.get(_LEVEL)
        theirs = config.client.get("consumer", {}).get(_LEVEL)
        if ours and theirs and not has_reference(theirs.text) and theirs.text != ours:
            what = f"{ours!r} disagrees with {theirs.full_key}"
            yield config.problem(_LEVEL, what, "set it once")
        if config["consumer.type"] == "highlevel" and "assign" in config:
            what = (
                "is not supported in a group: Kafka assigns partitions to its members"
            )
            hint = "set topic.name, subscribe or subscribePattern"
            yield config.problem("assign", what, hint)
    logins = [config.client.get(kind, {}) for kind in ("consumer", "producer")]
    for own, other in (logins, logins[::-1]):
        yield from _check_login(own)
        # A kind without credentials uses those of the other one.
        yield from _check_mechanism(config, own, {**other, **own})
    if role is not Role.READ and config["commit.mode"] == TASK:
        for key in _OF_STAGING:
            if config.given(key):
                what = f"has no effect with commit.mode={TASK}: no rows are staged"
                yield config.problem(key, what, level="warning")


def _check_login(given: Mapping[str, Setting]) -> Iterator[Problem]:
    """Name what of Java's logins is not used, and what only Java can read."""
    for key in sorted(CLASSES.keys() & given.keys()):
        what = f"names the Java class {given[key].text}, which is not used"
        yield _problem(given[key], what, CLASSES[key], "warning")
    login = given.get("sasl.jaas.config")
    if login is not None and not has_reference(login.text):
        try:
            java_security({login.key: login.text})
        except ConfigError as error:
            yield _problem(login, error.what, error.remedy)


def _check_mechanism(
    config: StreamConfig, own: Mapping[str, Setting], all_: Mapping[str, Setting]
) -> Iterator[Problem]:
    """Refuse mechanisms that the client does not have, or has no tokens for.

    Args:
        config: The stream.
        own: The properties of one kind of client.
        all_: With what it takes from the other kind.
    """
    for key in sorted(MECHANISM & own.keys()):
        mechanism, name = own[key], own[key].text
        if has_reference(name):
            continue
        if name == "GSSAPI":
            yield _problem(mechanism, "is Kerberos", NO_KERBEROS, "warning")
        elif name in (MSK_IAM, OAUTHBEARER):
            yield from _check_tokens(config, mechanism, all_)
        elif name not in MECHANISMS:
            # Only the spelling of a known one is quoted: another text may be a secret.
            known = name.upper() if name.upper() in MECHANISMS else None
            hint = f"write {known}" if known else f"write one of {_KNOWN}"
            yield _problem(mechanism, "is no mechanism of the client", hint)


def _check_tokens(
    config: StreamConfig, mechanism: Setting, given: Mapping[str, Setting]
) -> Iterator[Problem]:
    """Name a login by tokens that has no source of tokens."""
    source = config.get(TOKEN)
    if source == AWS and find_spec(SIGNER) is None:
        what, hint = "requires AWS's signer, which is not installed here", INSTALL_AWS
        yield config.problem(TOKEN, what, hint, level="warning")
    if source is not None:
        return
    if mechanism.text == MSK_IAM:
        hint = f"set stream.{config.type}.{TOKEN}={AWS}"
        yield _problem(mechanism, "is a login of Java's client", hint)
    elif all(given[key].text.lower() == "false" for key in _SOURCES & given.keys()):
        hint = f"set stream.{config.type}.{TOKEN}, or sasl.oauthbearer.method=oidc"
        yield _problem(mechanism, "has no source of tokens", hint)


def _problem(
    setting: Setting, what: str, remedy: str | None, level: str = "error"
) -> Problem:
    return Problem(setting.full_key, what, setting.origin, remedy, level)
