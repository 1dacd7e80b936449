"""JSON Schemas of configurations, for editors and validators; connects to nothing.

All come from the declarations of options: those of the framework, of stream types and
of decoders, third-party ones included.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import PluginError
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.wiring.options.shared import stream_options
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streamfactory.spi import Backend, Decoder, Option
    from streamfactory.wiring.plugins.manager import PluginManager

    Schema = dict[str, Any]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Final = {"type": ["string", "integer", "boolean"]}
"""Values with a canonical text."""
_REFERENCE: Final = {"$ref": "#/$defs/reference"}
_REFERENCE_TEXT: Final = {
    "description": "Contains ${env:NAME} or ${file:PATH}.",
    "type": "string",
    "pattern": r"\$\{",
}
_ANYTHING: Final = {"type": ["string", "integer", "boolean", "object"]}
"""A value of a key that a client reads, or a table of them."""
_TOPIC_CHOOSERS: Final = ("subscribe", "subscribePattern", "assign")
DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
"""The dialect of schemas of files: the latest that editors of TOML read."""


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
            "reference": _REFERENCE_TEXT,
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


# --- files ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Types:
    """The plug-ins whose options a schema describes."""

    backends: Sequence[Backend]
    decoders: Sequence[Decoder]
    others: Sequence[str]
    """Names of stream types that cannot be loaded: their keys are not checked."""


def installed_types(plugins: PluginManager) -> Types:
    """Return the plug-ins that can be loaded."""
    backends, decoders = list[Any](), list[Any]()
    others: list[str] = []
    for name in plugins.names(BACKENDS):
        try:
            backends.append(plugins.backend(name))
        except PluginError:
            others.append(name)
    for name in plugins.names(DECODERS):
        with suppress(PluginError):
            decoders.append(plugins.decoder(name))
    return Types(backends, decoders, others)


def stream_file_schema(types: Types) -> Schema:
    """Return the JSON Schema, draft 7, of the files of streams."""
    definitions = stream_definitions(types)
    del definitions["names"]
    return {
        "$schema": DRAFT_7,
        "title": "A stream of streamfactory",
        "type": "object",
        "properties": {
            "name": {
                "description": "Name of the stream; by default that of the file.",
                "type": "string",
            },
            "description": {"description": "Description for users.", "type": "string"},
            "properties": {
                **definitions.pop("stream"),
                # Editors then mark the key; with `propertyNames` they mark all keys.
                "additionalProperties": False,
                "allOf": [*_by_type(types)],
            },
        },
        "required": ["properties"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def stream_definitions(types: Types) -> Schema:
    """Return the definitions ``stream``, of the properties of a stream of any type.

    ``names`` is that of their names: tables that have them may have others, too.
    """
    schemas: Schema = {}
    refs: Schema = {}
    open_names = {f"stream.{name}." for name in types.others}

    def declare(key: str, option: Option, *names: str) -> None:
        schemas.setdefault(key, _option_schema(option))
        for name in names:
            refs[name] = {"$ref": f"#/$defs/{key}"}

    for key, option in FRAMEWORK_OPTIONS.items():
        declare(key, option, *_spellings(key, option))
    for backend in types.backends:
        prefix = f"stream.{backend.name}."
        open_names.update(_open_namespaces(backend))
        for key, option in stream_options(backend).items():
            declare(prefix + key, option, *_spellings(prefix + key, option))
        for decoder in types.decoders:
            for option in decoder.options:
                name = f"{prefix}decoder.prop.{option.key}"
                declare(f"decoder.{option.key}", option, name)
    names = [*(backend.name for backend in types.backends), *types.others]
    schemas["streamType"] |= {"anyOf": [{"enum": sorted(names)}, _REFERENCE]}
    tables: Schema = {}
    table = table_schema(refs, sorted(open_names), tables)
    keys = [{"enum": [*table["properties"]]}]
    keys += [{"pattern": pattern} for pattern in table["patternProperties"]]
    del table["additionalProperties"]
    return {
        "stream": table,
        "names": {"anyOf": keys},
        "reference": _REFERENCE_TEXT,
        **schemas,
        **tables,
    }


def options_schema(options: Iterable[Option]) -> Schema:
    """Return the schemas of options by their spellings."""
    return {
        name: _option_schema(option)
        for option in options
        for name in _spellings(option.key, option)
    }


def table_schema(
    properties: Mapping[str, Any],
    open_names: Iterable[str] = (),
    tables: Schema | None = None,
) -> Schema:
    """Return the schema of a table of TOML whose keys may be tables, at each dot.

    Args:
        properties: Schemas by dotted key.
        open_names: Beginnings of keys, with the last dot, that may end in anything.
        tables: Gets inner tables, as definitions: types have many in common.
    """
    open_names = [*open_names]
    found = dict(properties)
    inner: dict[str, Schema] = {}
    for key, value in properties.items():
        first, dot, rest = key.partition(".")
        if dot:
            inner.setdefault(first, {})[rest] = value
    within: dict[str, list[str]] = {}
    for name in open_names:
        first, dot, rest = name.partition(".")
        if dot:
            within.setdefault(first, []).append(rest)
    for first in {**inner, **within}:
        table = table_schema(inner.get(first, {}), within.get(first, []), tables)
        if tables is not None:
            text = json.dumps(table, sort_keys=True)
            name = f"table-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
            tables[name] = table
            table = {"$ref": f"#/$defs/{name}"}
        if first in found:
            shown = {"description": found[first].get("description", "")}
            found[first] = {"anyOf": [found[first], table], **shown}
        else:
            found[first] = table
    schema: Schema = {"type": "object", "properties": found}
    if "" in open_names:
        return schema
    if open_names:
        patterns = {f"^{_escaped(name)}": _ANYTHING for name in open_names}
        schema["patternProperties"] = patterns
    return schema | {"additionalProperties": False}


def _spellings(key: str, option: Option) -> list[str]:
    start = key.removesuffix(option.key)
    return [start + spelling for spelling in option.spellings]


def _by_type(types: Types) -> Iterator[Schema]:
    """Yield what the type of a stream requires, and what it excludes."""
    keys = _spellings("streamType", FRAMEWORK_OPTIONS["streamType"])
    nested = {"properties": {"stream": {"required": ["type"]}}, "required": ["stream"]}
    yield {"anyOf": [*({"required": [key]} for key in keys), nested]}
    names = [*(backend.name for backend in types.backends), *types.others]
    for backend in types.backends:
        others = "|".join(_escaped(one) for one in names if one != backend.name)
        for key in keys:
            is_it = {"properties": {key: {"const": backend.name}}, "required": [key]}
            own = {"not": {"pattern": rf"^stream\.({others})\."}}
            yield {"if": is_it, "then": {"propertyNames": own}}
