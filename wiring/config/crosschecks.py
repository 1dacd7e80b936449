"""Step 4 of a configuration: rules over several values, and the type's own rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from streamfactory.spi import Problem, Role, Yields
from streamfactory.spi.references import has_reference
from streamfactory.wiring.config.guarantees import guarantee_problems
from streamfactory.wiring.options.masks import HASH
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.options.spool import spool_strays, transport_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streamfactory.spi import Backend, StreamConfig
    from streamfactory.spi.config import Setting
    from streamfactory.wiring.config.classification import StreamPlugins
    from streamfactory.wiring.config.resolution import Resolved

EXCLUSIVE: Final = (
    ("topic.name", "subscribe", "subscribePattern", "assign"),
    (
        "realtime.segment.flush.threshold.rows",
        "realtime.segment.flush.threshold.segment.rows",
        "realtime.segment.flush.threshold.segment.size",
    ),
)
"""Keys of which a stream sets one at the most, except for those that are 0."""
NEEDS: Final = (
    ("maxTriggerDelay", "minOffsetsPerTrigger"),
    ("includeHeaders", "metadata.columns"),
    ("key.decoder.columns", "key.decoder.class.name"),
    ("key.decoder.columns.prefix", "key.decoder.columns"),
    ("includeTombstones", "metadata.columns"),
)
"""Keys that have no effect without another one."""


_ROLES: Final = {role.value: role for role in Role}


@dataclass(frozen=True, slots=True)
class Checked:
    """A configuration that was checked: valid, or with errors."""

    name: str
    """Name of the definition; may be empty."""
    config: StreamConfig | None
    """None if there are errors."""
    plugins: StreamPlugins
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> list[Problem]:
        """The errors."""
        return _errors(self.problems)

    @property
    def warnings(self) -> list[Problem]:
        """The warnings."""
        return [p for p in self.problems if p.level != "error"]


def check_rules(
    resolved: Resolved, use: str | None = None, role: Role | None = None
) -> Checked:
    """Check rules over several values; connects to nothing.

    Args:
        resolved: The values.
        use: ``read``, ``write`` or ``spark``; None if it is not known.
        role: Whether Spark reads or writes the stream, if known; implied by the uses
            ``read`` and ``write``.
    """
    config, plugins = resolved.config, resolved.plugins
    problems = [*resolved.problems, *_rules(config.settings, use, plugins.backend)]
    valid = not _errors(problems)
    if valid:
        role = role or _ROLES.get(use or "")
        problems += _type_rules(config, plugins.backend, use, role)
        valid = not _errors(problems)
    return Checked(
        resolved.name,
        replace(config, warnings=tuple(problems)) if valid else None,
        plugins,
        tuple(problems),
    )


def _rules(
    settings: Mapping[str, Setting], use: str | None, backend: Backend | None
) -> Iterator[Problem]:
    """Yield problems among options that are each valid.

    Args:
        settings: By short key. An unresolved one (None) violates no rule.
        use: ``read``, ``write``, ``spark``; None if the use is not known.
        backend: The stream type, if it is known.
    """
    known = {k: s for k, s in settings.items() if s.secret or s.value is not None}
    given = {k: s for k, s in known.items() if s.origin != "default"}
    yield from _exclusions(given)
    yield from _bounds(known, given)
    yield from _decoding(known, given)
    yield from _masking(given)
    consumer_type = given.get("consumer.type")
    if consumer_type and consumer_type.value == "highlevel" and use in (None, "read"):
        needed = ["group.id"]
        if not _keeps_groups(backend):
            needed.append("checkpoint.location")
        for key in needed:
            if key not in settings:
                what = "is required by consumer.type=highlevel"
                yield Problem(key, what, consumer_type.origin)


def _masking(given: Mapping[str, Setting]) -> Iterator[Problem]:
    masks = given.get("mask.columns")
    if masks is None or masks.value is None or "mask.key" in given:
        return
    if any(one.action == HASH for one in masks.value):
        what = "hashes, and requires mask.key"
        yield Problem(masks.full_key, what, masks.origin)


def _keeps_groups(backend: Backend | None) -> bool:
    """Whether a type has its own groups, with their checkpoints."""
    if backend is None or backend.consumer_factory is None:
        return False
    # Imported here: with a consumer factory, it is imported already.
    from streamfactory.spi import ConsumerFactory

    made: type[ConsumerFactory] = backend.consumer_factory
    return (
        made.create_stream_level_consumer
        is not ConsumerFactory.create_stream_level_consumer
        or made.create_checkpoint_store is not ConsumerFactory.create_checkpoint_store
    )


def _exclusions(given: Mapping[str, Setting]) -> Iterator[Problem]:
    for group in EXCLUSIVE:
        present = [
            given[key] for key in group if key in given and given[key].value != 0
        ]
        if len(present) > 1:
            first, second = present[:2]
            what = f"and {first.full_key} exclude each other"
            yield Problem(second.full_key, what, second.origin, "keep one of them")


def _bounds(
    settings: Mapping[str, Setting], given: Mapping[str, Setting]
) -> Iterator[Problem]:
    least, most = given.get("minOffsetsPerTrigger"), given.get("maxOffsetsPerTrigger")
    if least and most and least.value > most.value:
        what = f"{least.text} is greater than maxOffsetsPerTrigger, {most.text}"
        yield Problem(least.full_key, what, least.origin)
    initial = settings.get("retry.initial.millis")
    longest = settings.get("retry.max.millis")
    if initial and longest and initial.value > longest.value:
        what = f"{initial.text} is greater than retry.max.millis, {longest.text}"
        yield Problem(initial.full_key, what, initial.origin)
    for key, needed in NEEDS:
        if key in given and needed not in given:
            setting = given[key]
            what = f"has no effect without {needed}"
            yield Problem(setting.full_key, what, setting.origin, level="warning")


def _decoding(
    settings: Mapping[str, Setting], given: Mapping[str, Setting]
) -> Iterator[Problem]:
    """Yield decoding options of a stream that decodes no messages."""
    place, policy = given.get("dead.letter.stream"), settings.get("decode.on.error")
    if place and policy and policy.value != "dead-letter":
        what = "has no effect without decode.on.error=dead-letter"
        yield Problem(place.full_key, what, place.origin, level="warning")
    decoder = settings.get("decoder.class.name")
    if decoder is not None and str(decoder.value).lower() != "raw":
        return
    for key, nothing in (
        ("payload.compression", "none"),
        ("key.decoder.class.name", ""),
        # Without a decoder, rows may be typed.
        *([] if decoder is None else [("schema.contract", "")]),
    ):
        setting = given.get(key)
        if setting is not None and setting.value != nothing:
            what = "has no effect: this stream has no decoder"
            yield Problem(setting.full_key, what, setting.origin, level="warning")


# --- rules of the type ------------------------------------------------------------


def _type_rules(
    config: StreamConfig, backend: Backend | None, use: str | None, role: Role | None
) -> list[Problem]:
    """Return problems by the type's own rules, with the spool, and of the guarantee."""
    unresolved = (
        setting.value is None and not setting.secret and has_reference(setting.text)
        for setting in config.settings.values()
    )
    if backend is None or any(unresolved):
        return []
    problems, reads = list[Problem](), role is not Role.WRITE
    spooled = SPOOL_PATH in config and reads
    try:
        if not reads and backend.yields is Yields.ENVELOPE:
            problems += _unwritten_contract(config)
        if backend.check_options is not None:
            # Options for readers of a spool do not apply to the transport.
            checked = transport_options(config) if spooled else config
            problems += backend.check_options(checked, role)
        if reads:
            problems += spool_strays(config)
        if spooled:
            # Imported here: Arrow is loaded only to read through a spool.
            from streamfactory.wiring.spool.reading import read_through_spool
            from streamfactory.wiring.spool.rules import spool_problems

            problems += spool_problems(config, backend)
            backend = read_through_spool(backend, config)
        if use is None and not _errors(problems):
            # If the use is known, the guarantee is checked there, with the writer id.
            problems += guarantee_problems(config, backend)
    except Exception as error:  # noqa: BLE001 - the plug-in's code
        what = f"checking its options failed: {type(error).__name__}: {error}"
        hint = f"report it to the author of the stream type {config.type!r}"
        return [Problem(f"stream.{config.type}", what, "", hint)]
    return problems


def _unwritten_contract(config: StreamConfig) -> Iterator[Problem]:
    """Yield ``schema.contract`` of a stream whose messages are written."""
    if config.given("schema.contract"):
        what = "has no effect on what is written: the stream stores messages"
        yield config.problem("schema.contract", what, level="warning")


def _errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.level == "error"]
