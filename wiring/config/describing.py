"""Descriptions of options, configurations and backends to print; connects to nothing.

Option declarations yield tables and JSON Schema, a validated configuration its
effective values, a backend's classes its abilities and guarantees.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.spi import (
    Claims,
    ConsumerFactory,
    MetadataProvider,
    PartitionLevelConsumer,
    ProducerFactory,
    StreamCommitter,
)
from streamfactory.spi.claims import sink_guarantee, source_guarantee
from streamfactory.spi.masking import MASK, mask_value
from streamfactory.wiring.options.masking import looks_secret
from streamfactory.wiring.options.shared import stream_options
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamfactory.spi import Backend, Option, StreamConfig, Verdict

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Final = {"type": ["string", "integer", "boolean"]}
"""Values with a canonical text."""
_REFERENCE: Final = {"$ref": "#/$defs/reference"}
_TOPIC_CHOOSERS: Final = ("subscribe", "subscribePattern", "assign")


# --- options --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option as a row of a table."""

    key: str
    """As written in a configuration."""
    type: str
    default: str | None
    required: bool
    secret: bool
    doc: str
    aliases: tuple[str, ...] = ()
    applies: tuple[str, ...] = ()
    """``read``, ``write``, ``spark``; empty means always."""
    example: str | None = None
    former: tuple[str, ...] = ()
    """Deprecated spellings."""


def option_rows(options: Iterable[Option], prefix: str = "") -> list[OptionRow]:
    """Return the rows of a table, in the order of the declarations."""
    return [
        OptionRow(
            prefix + option.key,
            option.type.name,
            option.default,
            option.required,
            option.secret,
            option.doc,
            tuple(prefix + alias for alias in option.aliases),
            tuple(sorted(option.applies)),
            option.example,
            tuple(prefix + key for key in option.former),
        )
        for option in options
    ]


# --- effective values -----------------------------------------------------------


class Effective(NamedTuple):
    """One effective value and its origin."""

    key: str
    value: str
    """As written; a literal secret masked, a reference unresolved."""
    origin: str


def effective(config: StreamConfig) -> list[Effective]:
    """Return every value of a configuration with its origin, by key; secrets masked."""
    settings = [*config.settings.values(), *config.decoder_settings.values()]
    for namespace in config.client.values():
        settings += namespace.values()
    values = [Effective(s.full_key, s.shown, s.origin) for s in settings]
    values += [
        Effective(
            f"stream.meta.{key}", MASK if looks_secret(key) else mask_value(text), ""
        )
        for key, text in config.meta.items()
    ]
    return sorted(values)


# --- JSON Schema ----------------------------------------------------------------


def json_schema(backend: Backend) -> dict[str, Any]:
    """Return the JSON Schema, draft 2020-12, of the properties of a stream type.

    Keys are flat as in a map of strings; numbers and booleans are allowed if their
    canonical text is.
    """
    prefix = f"stream.{backend.name}."
    own = {prefix + key: option for key, option in stream_options(backend).items()}
    properties: dict[str, Any] = {}
    for key, option in {**FRAMEWORK_OPTIONS, **own}.items():
        start = key.removesuffix(option.key)
        properties[key] = _option_schema(option)
        for alias in option.spellings[1:]:
            doc = f"The same as {key}."
            properties[start + alias] = {**properties[key], "description": doc}
            if alias in option.former:
                properties[start + alias]["deprecated"] = True
    for key in ("streamType", *FRAMEWORK_OPTIONS["streamType"].aliases):
        properties[key] |= {"enum": [backend.name], "examples": [backend.name]}
    return {
        "$schema": _DIALECT,
        "title": f"Properties of a stream of type {backend.name}",
        "description": backend.doc,
        "$comment": "Keys are case-insensitive, which JSON Schema cannot express: "
        "these are the canonical spellings.",
        "type": "object",
        "properties": properties,
        "patternProperties": {
            f"^{_escaped(start)}": _TEXT for start in _open_namespaces(backend)
        },
        "additionalProperties": False,
        "allOf": list(_requirements(own)),
        "$defs": {
            "reference": {
                "description": "Contains ${env:NAME} or ${file:PATH}.",
                "type": "string",
                "pattern": r"\$\{",
            }
        },
    }


def _option_schema(option: Option) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": option.doc}
    value = dict(option.type.schema or _TEXT)
    words = value.pop("enum", None)
    if words is not None:
        # A choice may come from the environment, like any other value.
        value = {"anyOf": [{"enum": words}, _REFERENCE]}
    schema |= value
    for word, bound in (("minimum", option.minimum), ("maximum", option.maximum)):
        if bound is not None:
            schema[word] = bound
    if option.default is not None:
        schema["default"] = option.default
    if option.example is not None:
        schema["examples"] = [option.example]
    if option.secret:
        schema["writeOnly"] = True
    if option.deprecated:
        schema["deprecated"] = True
    return schema


def _open_namespaces(backend: Backend) -> Iterator[str]:
    prefix = f"stream.{backend.name}."
    yield "stream.meta."
    yield f"{prefix}decoder.prop."
    for namespace in sorted(backend.client_namespaces):
        yield f"{prefix}{namespace}.prop."


def _escaped(text: str) -> str:
    return text.replace(".", r"\.")


def _requirements(own: dict[str, Option]) -> Iterator[dict[str, Any]]:
    """Yield an entry for each required option: one of its spellings is present."""
    for key, option in {**FRAMEWORK_OPTIONS, **own}.items():
        if option.required:
            start = key.removesuffix(option.key)
            spellings = [start + spelling for spelling in option.spellings]
            if option.key == "topic.name":
                spellings += _TOPIC_CHOOSERS
            yield {"anyOf": [{"required": [spelling]} for spelling in spellings]}


# --- abilities ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Abilities:
    """Abilities of a backend, derived from its classes.

    None: unknown until it is used.
    """

    read: bool
    write: bool
    offsets_by_time: bool | None = False
    topic_list: bool | None = False
    schema: bool | None = False
    wake: bool | None = False
    own_group: bool | None = False
    keeps_checkpoints: bool | None = False
    replace: bool | None = False
    manage_topics: bool | None = False
    carries: tuple[str, ...] = ()
    """Those of ``_key``, ``_headers``, ``_timestamp``, ``_topic`` that a sink
    stores."""


def abilities(backend: Backend) -> Abilities:
    """Derive abilities from overridden methods, without calling the backend's code.

    The classes of providers, consumers and committers are searched in the modules of
    the factory's class and its bases: if none is found, or only some have an ability,
    the result is None.
    """
    reads, writes = backend.consumer_factory, backend.producer_factory
    found: dict[str, Any] = {"manage_topics": backend.topic_admin is not None}
    if reads is not None:
        found |= {
            "offsets_by_time": _made(reads, MetadataProvider, "fetch_offsets_at"),
            "topic_list": _made(reads, MetadataProvider, "fetch_topics"),
            "schema": _made(reads, MetadataProvider, "fetch_schema"),
            "wake": _made(reads, PartitionLevelConsumer, "wake"),
            "own_group": _overrides(
                reads, ConsumerFactory, "create_stream_level_consumer"
            ),
            "keeps_checkpoints": _overrides(
                reads, ConsumerFactory, "create_checkpoint_store"
            ),
        }
    if writes is not None:
        found["replace"] = _made(writes, StreamCommitter, "replace")
        found["carries"] = tuple(sorted(writes.CARRIES))
    return Abilities(reads is not None, writes is not None, **found)


def _made(factory: type, kind: type, method: str) -> bool | None:
    """Whether the objects that a factory creates override a method."""
    modules = {sys.modules[parent.__module__] for parent in factory.__mro__}
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, kind)
        and not inspect.isabstract(value)
    ]
    answers = {_overrides(value, kind, method) for value in classes}
    return answers.pop() if len(answers) == 1 else None


def _overrides(value: type, base: type, method: str) -> bool:
    return getattr(value, method) is not getattr(base, method)


# --- guarantees -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promise:
    """Claims of a type in one role, and the strongest guarantee that follows."""

    claims: Claims
    verdict: Verdict


def promises(backend: Backend) -> tuple[Promise | None, Promise | None]:
    """Return the strongest guarantees of any configuration, as source and as sink."""
    source = sink = None
    reads: type[ConsumerFactory] | None = backend.consumer_factory
    writes: type[ProducerFactory] | None = backend.producer_factory
    if reads is not None:
        source = Promise(reads.CLAIMS, source_guarantee(reads.CLAIMS))
    if writes is not None:
        sink = Promise(writes.CLAIMS, sink_guarantee(writes.CLAIMS, writer_id=True))
    return source, sink
