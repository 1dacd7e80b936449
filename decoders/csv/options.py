"""The options of ``csv``, Pinot's names among them, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from streamfactory.decoders.columns.casting import unsupported
from streamfactory.decoders.columns.options import UNITS, shared_options
from streamfactory.spi import BOOLEAN, ConfigError, Option, OptionType, choice
from streamfactory.spi.arrowjson import parse_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMATS: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "excel": {},
    "rfc4180": {},
    "mysql": {
        "delimiter": "\t",
        "quote.character": "",
        "escape.character": "\\",
        "null.value": "\\N",
    },
    "tdf": {"delimiter": "\t", "ignore.surrounding.spaces": True},
}
_JAVA: Final = "it is about writing in Java: fields are quoted where they have to be"
_ANY_END: Final = "Pinot does not read by it either: any line end ends a record"


def _character(text: str) -> str:
    found = {"\\t": "\t", "\\\\": "\\"}.get(text, text)
    if len(found) != 1 or not found.isascii() or found in "\r\n\0":
        msg = "is not one ASCII character"
        raise ValueError(msg)
    return found


def _character_or_none(text: str) -> str:
    return _character(text) if text else ""


def _flat(text: str) -> str | None:
    complaint = unsupported(parse_schema(text), nested=False)
    return None if complaint is None else f"cannot be CSV: {complaint}"


CHARACTER: Final = OptionType("character", _character, {"type": "string"})
CHARACTER_OR_NONE: Final = OptionType(
    "character, or nothing", _character_or_none, {"type": "string"}
)

OPTIONS: Final = (
    *shared_options(_flat),
    Option(
        "file.format",
        "What the options below are where they are not set.",
        choice(*_FORMATS),
        default="default",
        aliases=("fileFormat",),
    ),
    Option("delimiter", "What stands between fields; a comma.", CHARACTER),
    Option(
        "quote.character",
        'What a field may be within, twice where the field has it; ", or nothing.',
        CHARACTER_OR_NONE,
        aliases=("quoteCharacter",),
    ),
    Option(
        "escape.character",
        "What takes its meaning from the character behind it; nothing.",
        CHARACTER_OR_NONE,
        aliases=("escapeCharacter",),
    ),
    Option(
        "multi.value.delimiter",
        "What stands between the values of a field that is a list.",
        CHARACTER,
        default=";",
        aliases=("multiValueDelimiter",),
    ),
    Option(
        "null.value",
        "What a field without quotes is where it is null; nothing between delimiters.",
        aliases=("nullStringValue",),
    ),
    Option(
        "comment.marker",
        "What lines begin with that are no records.",
        CHARACTER_OR_NONE,
        aliases=("commentMarker",),
    ),
    Option(
        "header",
        "The columns of a record, between delimiters; else those of the schema.",
    ),
    Option(
        "header.in.message",
        "Whether the first record of each message names its columns.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "skip.header",
        "Whether the first record of each message is left out.",
        BOOLEAN,
        default="false",
        aliases=("skipHeader",),
    ),
    Option(
        "ignore.empty.lines",
        "Whether a line without a character is no record.",
        BOOLEAN,
        default="true",
        aliases=("ignoreEmptyLines",),
    ),
    Option(
        "ignore.surrounding.spaces",
        "Whether spaces around a field are left out; those within quotes stay.",
        BOOLEAN,
        aliases=("ignoreSurroundingSpaces",),
    ),
    Option(
        "quote.mode",
        "Pinot's word on which fields are written with quotes.",
        no_effect=_JAVA,
        aliases=("quoteMode",),
    ),
    Option(
        "record.separator",
        "Pinot's word on what ends a record.",
        no_effect=_ANY_END,
        aliases=("recordSeparator",),
    ),
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How records are written."""

    delimiter: str
    quote: str
    escape: str
    null: str
    lists: str
    comment: str
    empty_lines: bool
    """Whether one is a record."""
    trim: bool
    unit: str | None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """As the options say."""
        base = {
            "delimiter": ",",
            "quote.character": '"',
            "escape.character": "",
            "null.value": "",
            "ignore.surrounding.spaces": False,
            **_FORMATS[options["file.format"]],
        }
        found = base | {key: options[key] for key in base if key in options}
        unit = options.get("timestamp.unit")
        made = cls(
            found["delimiter"],
            found["quote.character"],
            found["escape.character"],
            found["null.value"],
            options["multi.value.delimiter"],
            options.get("comment.marker", ""),
            not options["ignore.empty.lines"],
            found["ignore.surrounding.spaces"],
            None if unit is None else UNITS[unit],
        )
        if made.escaped_null and made.quote:
            msg = "decoder.prop.null.value begins with the escape character, which "
            msg += "is told apart only where decoder.prop.quote.character is nothing"
            raise ConfigError(msg)
        return made

    @property
    def escaped_null(self) -> bool:
        """Whether null is written with an escape, as MySQL does."""
        return bool(self.escape) and self.null.startswith(self.escape)
