"""The text of a definition that is not saved yet: its name, problems, and parts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.definition import parse_pipeline
from streamfactory.spark.pipelines.detection import PIPELINES, TESTS, is_pipeline_body
from streamfactory.spi import ConfigError, Problem, StreamError
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.editing.files import SUFFIX, Folder
from streamfactory.ui.editing.secrets import literals, refuse_literals
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.documents import Document, read_toml
from streamfactory.wiring.config.files import definitions_of
from streamfactory.wiring.core.shown import masked
from streamfactory.wiring.options.shared import by_spelling, stream_options
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from streamfactory.spi import Backend, Decoder, Option
    from streamfactory.wiring.config.classification import StreamPlugins
    from streamfactory.wiring.config.definition import StreamDefinition

_PARTS: Final = ("Always", "Reading", "Writing", "On Spark", "Spool")
"""Of the framework's options."""
_LINE: Final = re.compile(r":(\d+)(?::\d+)?$")


@dataclass(frozen=True, slots=True)
class Remark:
    """One problem of a text."""

    level: str
    key: str
    text: str
    line: int | None


@dataclass(frozen=True, slots=True)
class OptionSet:
    """Options of one part of a definition."""

    title: str
    prefix: str
    options: Sequence[Option]


@dataclass(frozen=True, slots=True)
class Draft:
    """A text as it was understood; it has no literal secrets."""

    kind: str
    """``stream`` or ``pipeline``."""
    text: str
    name: str
    """Empty if it cannot be read."""
    remarks: tuple[Remark, ...]
    definition: StreamDefinition | None = None
    """Of a stream whose text can be read."""
    type: str = ""
    backend: Backend | None = None
    options: tuple[OptionSet, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether it may be saved."""
        return not any(one.level == "error" for one in self.remarks)

    @property
    def problems(self) -> list[Remark]:
        """Errors and warnings, by line; those without a line come first."""
        found = [one for one in self.remarks if one.level != "note"]
        return sorted(found, key=lambda one: one.line or 0)


def folder_of(kind: str) -> Folder:
    """Where definitions of a kind are."""
    place = catalogue().folder
    if kind == "stream":
        return Folder(place)
    return Folder(place.parent / PIPELINES, TESTS)


def draft_of(kind: str, path: Path, text: str) -> Draft:
    """Read the text of a definition; connects to nothing.

    Args:
        kind: ``stream`` or ``pipeline``.
        path: Of its file, which need not exist.
        text: The text.

    Raises:
        MisuseError: misuse; it has literal secrets.
    """
    return _READERS[kind](path, text)


# --- streams ----------------------------------------------------------------------


def _stream(path: Path, text: str) -> Draft:
    document = Document(path, text)
    try:
        document.body = read_toml(document)
        (definition,) = definitions_of(document)
    except ConfigError as error:
        known = by_spelling(FRAMEWORK_OPTIONS.values())
        refuse_literals(literals(document, known), path.name)
        return Draft("stream", text, "", tuple(_of_error(error)))
    checked = inspect(definition, default_manager())
    sets = tuple(_option_sets(definition, checked.plugins))
    known = {
        f"{one.prefix}{spelling}".lower(): option
        for one in sets
        for option in one.options
        for spelling in option.spellings
    }
    refuse_literals(literals(document, known), path.name)
    problems = [*checked.problems, *_taken(definition.name, path)]
    return Draft(
        "stream",
        text,
        definition.name,
        tuple(map(remark_of, problems)),
        definition,
        _type_of(definition),
        checked.plugins.backend,
        sets,
    )


def _option_sets(
    definition: StreamDefinition, plugins: StreamPlugins
) -> Iterator[OptionSet]:
    """The options that apply to a stream, by what declares them."""
    kind = _type_of(definition)
    prefix = f"stream.{kind}."
    if plugins.backend is not None:
        options = stream_options(plugins.backend).values()
        title = f"Options of the type {kind}"
        yield OptionSet(title, prefix, _required_first(list(options)))
    decoders: tuple[tuple[str, Decoder | None], ...] = (
        ("decoder.prop.", plugins.decoder),
        ("key.decoder.prop.", plugins.key_decoder),
    )
    for namespace, decoder in decoders:
        if decoder is not None and decoder.options:
            of = "keys" if namespace.startswith("key") else "values"
            title = f"Decoder {decoder.name} of {of}"
            yield OptionSet(title, prefix + namespace, _required_first(decoder.options))
    for title in _PARTS:
        some = [one for one in FRAMEWORK_OPTIONS.values() if _part_of(one) == title]
        yield OptionSet(title, "", some)


def _part_of(option: Option) -> str:
    """Which part of the framework's options an option is in."""
    if option.key.startswith("spool."):
        return "Spool"
    words = option.applies
    if words == {"spark"}:
        return "On Spark"
    if "read" in words:
        return "Reading"
    return "Writing" if "write" in words else "Always"


def _required_first(options: Sequence[Option]) -> list[Option]:
    return sorted(options, key=lambda one: not one.required)


def _type_of(definition: StreamDefinition) -> str:
    spellings = {word.lower() for word in FRAMEWORK_OPTIONS["streamType"].spellings}
    for prop in definition.properties:
        if prop.key.lower() in spellings:
            return prop.text.strip().lower()
    return ""


def _taken(name: str, path: Path) -> Iterator[Problem]:
    """Another file that defines a stream of the same name."""
    for other in catalogue().definitions(name):
        file = re.sub(r":\d+$", "", other.origin)
        if file != str(path):
            what = f"{name!r} is defined in {file} too"
            yield Problem("name", what, suggestion="choose another name")


# --- pipelines --------------------------------------------------------------------


def _pipeline(path: Path, text: str) -> Draft:
    document = Document(path, text)
    try:
        document.body = read_toml(document)
        if not is_pipeline_body(document.body):
            what = "the text is no pipeline: it has no source, or no sinks"
            raise ConfigError(what)
        found = parse_pipeline(document, catalogue())
    except ConfigError as error:
        refuse_literals(literals(document, {}), path.name)
        return Draft("pipeline", text, "", tuple(_of_error(error)))
    refuse_literals(literals(document, {}), path.name)
    try:
        problems = check_draft(found)
    except StreamError as error:
        problems = [Problem("", str(error))]
    name = found.name or path.name.removesuffix(SUFFIX)
    return Draft("pipeline", text, name, tuple(map(remark_of, problems)))


_READERS: Final[dict[str, Callable[[Path, str], Draft]]] = {
    "stream": _stream,
    "pipeline": _pipeline,
}
KINDS: Final = tuple(_READERS)


# --- problems ---------------------------------------------------------------------


def _of_error(error: ConfigError) -> Iterator[Remark]:
    for one in error.problems or [Problem("", error.what)]:
        yield remark_of(one)


def remark_of(problem: Problem) -> Remark:
    """A problem as pages show it."""
    text = f"{problem.key}: {problem.what}" if problem.key else problem.what
    if problem.suggestion:
        text += f"; {problem.suggestion}"
    found = _LINE.search(problem.origin)
    line = None if found is None else int(found[1])
    return Remark(problem.level, problem.key, masked(text, str), line)
