"""Rules over several options of ``kafka``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.kafka.security import CLASSES, NO_KERBEROS, java_security
from streamfactory.backends.kafka.writing_options import TASK
from streamfactory.spi import ConfigError, Problem, Role
from streamfactory.spi.references import has_reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.spi import StreamConfig
    from streamfactory.spi.config import Setting

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
    for given in config.client.values():
        yield from _check_login(given)
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
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    if mechanism is not None and mechanism.text.upper() == "GSSAPI":
        yield _problem(mechanism, "is Kerberos", NO_KERBEROS, "warning")
    login = given.get("sasl.jaas.config")
    if login is not None and not has_reference(login.text):
        try:
            java_security({login.key: login.text})
        except ConfigError as error:
            yield _problem(login, error.what, error.remedy)


def _problem(
    setting: Setting, what: str, remedy: str | None, level: str = "error"
) -> Problem:
    return Problem(setting.full_key, what, setting.origin, remedy, level)
