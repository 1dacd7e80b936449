"""Options ``stream.<type>.*`` of every stream type; the names are Pinot's."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from streamfactory.spi import BOOLEAN, INTEGER, PERIOD, Option, choice
from streamfactory.spi.topics import topic_name_problem
from streamfactory.wiring.options.types import PLUGIN, RESET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streamfactory.spi import Backend

READ: Final = frozenset({"read", "spark"})

_SHARED: Final = (
    Option(
        "topic.name",
        "Name of the topic.",
        required=True,
        validator=topic_name_problem,
        example="clicks",
    ),
    Option(
        "consumer.type",
        "How `open()` reads: lowlevel by partition and offset, highlevel as a member "
        "of the group `group.id`, from its last checkpoint.",
        choice("lowlevel", "simple", "highlevel"),
        default="lowlevel",
        applies=READ,
    ),
    Option(
        "consumer.factory.class.name",
        "The stream type again, or with --allow-class-paths `module:DESCRIPTOR`.",
        PLUGIN,
    ),
    Option(
        "decoder.class.name",
        "Name of the decoder, or with --allow-class-paths `module:DESCRIPTOR`.",
        PLUGIN,
        example="json",
    ),
    Option(
        "key.decoder.class.name",
        "Name of the decoder of keys, whose options are key.decoder.prop.*; without "
        "one, `_key` is bytes. When written, keys are encoded by it.",
        PLUGIN,
        example="avro",
    ),
    Option(
        "key.decoder.columns",
        "Whether the columns of keys are columns of the rows, before those of the "
        "values, instead of `_key`. When written, they are producer.key.columns, "
        "which values then lack.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "key.decoder.columns.prefix",
        "Prefix of the names of these columns, where keys and values have columns of "
        "the same name.",
        default="",
        example="key_",
    ),
    Option(
        "connection.timeout.millis",
        "How long connecting and asking for metadata may take, retries included.",
        PERIOD,
        default="30000",
        minimum=1,
    ),
    Option(
        "fetch.timeout.millis",
        "How long one fetch waits for messages.",
        PERIOD,
        default="5000",
        applies=READ,
    ),
    Option(
        "idle.timeout.millis",
        "Create a new consumer after this time without data; negative: never.",
        INTEGER,
        default="180000",
        applies=READ,
    ),
    Option(
        "metadata.populate",
        "Pinot's name of metadata.columns=true with includeHeaders=true.",
        BOOLEAN,
        default="false",
        applies=READ,
    ),
    Option(
        "consumer.prop.auto.offset.reset",
        "Where a new reader starts if no start option is set: smallest, largest, "
        "earliest, latest, a period before now, a time, or milliseconds. Never passed "
        "on.",
        RESET,
        applies=READ,
        example="2d",
    ),
)

SHARED_OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {option.key: option for option in _SHARED}
)


def stream_options(backend: Backend | None) -> dict[str, Option]:
    """Return the options under ``stream.<type>.``.

    Shared ones, overridden by the backend's.
    """
    own = () if backend is None else backend.options
    return {**SHARED_OPTIONS, **{option.key: option for option in own}}


def by_spelling(options: Iterable[Option]) -> dict[str, Option]:
    """Return options by all spellings of their keys, in lower case."""
    return {
        spelling.lower(): option for option in options for spelling in option.spellings
    }
