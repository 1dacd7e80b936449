"""Options of ``csv``, with Pinot's names as aliases, and the resulting dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from streamfactory.decoders.columns.options import UNITS, shared_options, text_problem
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
_JAVA: Final = "fields are quoted where necessary"
_ANY_END: Final = "any line end ends a record, as in Pinot's reader"


def _character(text: str) -> str:
    found = {"\\t": "\t", "\\\\": "\\"}.get(text, text)
    if len(found) != 1 or not found.isascii() or found in "\r\n\0":
        msg = "is not one ASCII character"
        raise ValueError(msg)
    return found


def _character_or_none(text: str) -> str:
    return _character(text) if text else ""


def _flat(text: str) -> str | None:
    reason = text_problem(parse_schema(text), nested=False)
    return None if reason is None else f"cannot be CSV: {reason}"


CHARACTER: Final = OptionType("character", _character, {"type": "string"})
CHARACTER_OR_NONE: Final = OptionType(
    "character, or nothing", _character_or_none, {"type": "string"}
)

OPTIONS: Final = (
    *shared_options(_flat),
    Option(
        "file.format",
        "Preset of the options below.",
        choice(*_FORMATS),
        default="default",
        aliases=("fileFormat",),
    ),
    Option("delimiter", "Field delimiter; a comma by default.", CHARACTER),
    Option(
        "quote.character",
        'Quote character, doubled within a field; " by default, empty for none.',
        CHARACTER_OR_NONE,
        aliases=("quoteCharacter",),
    ),
    Option(
        "escape.character",
        "Character that escapes the next one; none by default.",
        CHARACTER_OR_NONE,
        aliases=("escapeCharacter",),
    ),
    Option(
        "multi.value.delimiter",
        "Delimiter of the values of a list.",
        CHARACTER,
        default=";",
        aliases=("multiValueDelimiter",),
    ),
    Option(
        "numbers",
        "What text a number may have: any that can be parsed, or only text that the "
        "number keeps, without plus sign, leading zeros and digits beyond its type.",
        choice("parsed", "exact"),
        default="parsed",
    ),
    Option(
        "null.value",
        "Unquoted text of a null field; empty by default.",
        aliases=("nullStringValue",),
    ),
    Option(
        "comment.marker",
        "First character of comment lines.",
        CHARACTER_OR_NONE,
        aliases=("commentMarker",),
    ),
    Option(
        "header",
        "Names of the columns, delimited; by default those of the schema.",
    ),
    Option(
        "header.in.message",
        "Whether the first record of each message is a header.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "skip.header",
        "Whether to skip the first record of each message.",
        BOOLEAN,
        default="false",
        aliases=("skipHeader",),
    ),
    Option(
        "ignore.empty.lines",
        "Whether to skip empty lines.",
        BOOLEAN,
        default="true",
        aliases=("ignoreEmptyLines",),
    ),
    Option(
        "ignore.surrounding.spaces",
        "Whether to trim spaces around unquoted fields.",
        BOOLEAN,
        aliases=("ignoreSurroundingSpaces",),
    ),
    Option(
        "quote.mode",
        "Pinot's quote mode.",
        no_effect=_JAVA,
        aliases=("quoteMode",),
    ),
    Option(
        "record.separator",
        "Pinot's record separator.",
        no_effect=_ANY_END,
        aliases=("recordSeparator",),
    ),
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The resolved format of records."""

    delimiter: str
    quote: str
    escape: str
    null: str
    lists: str
    comment: str
    empty_lines: bool
    """Whether an empty line is a record."""
    trim: bool
    unit: str | None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The dialect of parsed options."""
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
            msg += "is supported only if decoder.prop.quote.character is empty"
            raise ConfigError(msg)
        return made

    @property
    def escaped_null(self) -> bool:
        """Whether the text of null begins with the escape, as in MySQL."""
        return bool(self.escape) and self.null.startswith(self.escape)
