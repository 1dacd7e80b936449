"""Rules over several options: which exclude, require or bound each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.spi import Backend
    from streamfactory.spi.config import Setting

_EXCLUSIVE: Final = (
    ("topic.name", "subscribe", "subscribePattern", "assign"),
    (
        "realtime.segment.flush.threshold.rows",
        "realtime.segment.flush.threshold.segment.rows",
        "realtime.segment.flush.threshold.segment.size",
    ),
)
_NEEDS: Final = (
    ("maxTriggerDelay", "minOffsetsPerTrigger"),
    ("includeHeaders", "metadata.columns"),
)


def cross_checks(
    settings: Mapping[str, Setting], use: str | None, backend: Backend | None = None
) -> list[Problem]:
    """Yield problems among options that are each valid.

    Args:
        settings: By short key. An unresolved one (None) violates no rule.
        use: ``read``, ``write``, ``spark``; None if the use is not known.
        backend: The stream type, if it is known.
    """
    known = {k: s for k, s in settings.items() if s.secret or s.value is not None}
    given = {k: s for k, s in known.items() if s.origin != "default"}
    problems = [*_exclusions(given), *_bounds(known, given), *_decoding(known, given)]
    consumer_type = given.get("consumer.type")
    if consumer_type and consumer_type.value == "highlevel" and use in (None, "read"):
        needed = ["group.id"]
        if not _keeps_groups(backend):
            needed.append("checkpoint.location")
        problems += [
            Problem(key, "is required by consumer.type=highlevel", consumer_type.origin)
            for key in needed
            if key not in settings
        ]
    return problems


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
    for group in _EXCLUSIVE:
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
    for key, needed in _NEEDS:
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
