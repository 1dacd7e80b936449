"""Step 2 of a configuration: matches each property to the option that it sets.

The stream type and the decoders are found here, because they declare options.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from streamfactory.spi import (
    FUNCTION,
    Backend,
    Decoder,
    Option,
    Problem,
    StreamError,
    Yields,
)
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.spi.references import resolve
from streamfactory.wiring.config.imports.pinotnames import (
    PINOT_DECODERS,
    PINOT_FACTORIES,
    pinot_name,
)
from streamfactory.wiring.core.nearest import LIKELY, nearest
from streamfactory.wiring.options.masking import clip
from streamfactory.wiring.options.shared import by_spelling, stream_options
from streamfactory.wiring.options.types import PLUGIN
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS
from streamfactory.wiring.plugins.finding import find_by_name, find_by_path
from streamfactory.wiring.plugins.known import KNOWN_BACKENDS, KNOWN_DECODERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from streamfactory.wiring.config.definition import Property, StreamDefinition
    from streamfactory.wiring.plugins.manager import PluginManager

ALLOWED: Final = "STREAMFACTORY_ALLOW_CLASS_PATHS"
"""Environment variable that allows functions where no flag can, as on Spark."""
_CHOOSERS: Final = ("subscribe", "subscribePattern", "assign")
_MOST: Final = 1000
"""Maximum properties of a stream: each unknown one is compared with all known ones."""

_OPTIONS: Final = tuple(FRAMEWORK_OPTIONS.values())
_BARE: Final = by_spelling(_OPTIONS)
# Namespaces of properties, by what their keys begin with.
_FRAMEWORK, _OWN, _META = "", "stream.<type>.", "stream.meta."
_DECODER, _KEY_DECODER = "decoder.prop.", "key.decoder.prop."
_CONSUMER, _PRODUCER = "consumer.prop.", "producer.prop."
_CATALOG = "catalog.prop."
_UNKNOWN, _UNCHECKED = "unknown", "unchecked"

Placed = tuple[str, "Property"]
"""A property, with its key in its namespace."""


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """The options of one namespace, with the properties that set them."""

    prefix: str = ""
    options: tuple[Option, ...] = ()
    given: Mapping[str, Sequence[Property]] = field(default_factory=dict)
    """By key of the option; several, if it is set by several spellings."""


@dataclass(frozen=True, slots=True)
class StreamPlugins:
    """The plug-ins of a stream: None if there is none, or it is not installed."""

    backend: Backend | None = None
    decoder: Decoder | None = None
    key_decoder: Decoder | None = None


@dataclass(frozen=True, slots=True)
class Classified:
    """The properties of a stream by what they set. No value is resolved yet."""

    definition: StreamDefinition
    problems: tuple[Problem, ...] = ()
    type: str = ""
    """Empty if it cannot be determined."""
    decoder: str | None = None
    """Name of the decoder."""
    plugins: StreamPlugins = StreamPlugins()
    framework: OptionGroup = OptionGroup()
    own: OptionGroup = OptionGroup()
    """Of the stream type."""
    decoder_options: OptionGroup = OptionGroup()
    key_options: OptionGroup = OptionGroup()
    """Of the decoder of keys."""
    client: Mapping[str, Sequence[Placed]] = field(default_factory=dict)
    """Properties that are passed on, by `Backend.client_namespaces`."""
    meta: tuple[Placed, ...] = ()
    """Annotations."""


class _Scope(NamedTuple):
    """The stream type with its options, and where plug-ins are found."""

    plugins: PluginManager
    allow_class_paths: bool
    type: str = ""
    backend: Backend | None = None

    @property
    def prefix(self) -> str:
        return f"stream.{self.type}."


class _Found(NamedTuple):
    """A decoder with the properties that set its options."""

    problems: Sequence[Problem] = ()
    name: str | None = None
    decoder: Decoder | None = None
    options: OptionGroup = OptionGroup()


def classify(
    definition: StreamDefinition,
    plugins: PluginManager,
    *,
    use: str | None = None,
    allow_class_paths: bool = False,
) -> Classified:
    """Match the properties of a definition to options.

    Args:
        definition: The definition.
        plugins: Finds the stream type and the decoders.
        use: ``read``, ``write`` or ``spark``; None if it is not known.
        allow_class_paths: Whether ``module:NAME`` may name a plug-in.
    """
    properties, problems = definition.properties, list(definition.notes)
    if len(properties) > _MOST:
        what = f"has {len(properties)} properties, more than the maximum of {_MOST}"
        name = definition.name or "(unnamed)"
        problems.append(Problem(name, what, definition.origin))
        return Classified(definition, tuple(problems))
    scope, found = _find_type(properties, _Scope(plugins, allow_class_paths))
    own_options = stream_options(scope.backend) if scope.type else {}
    spellings = by_spelling(own_options.values())
    placed: dict[str, list[Placed]] = defaultdict(list)
    for prop in properties:
        namespace, key = _place(prop.key, scope, spellings, writes=use == "write")
        placed[namespace].append((key, prop))
    unknown = _unknown([prop for _, prop in placed[_UNKNOWN]], scope, spellings)
    framework = OptionGroup("", _OPTIONS, _by_key(placed[_FRAMEWORK]))
    given, replaced = _by_key(placed[_OWN]), {meant for _, meant in unknown}
    if any(key in framework.given for key in _CHOOSERS):
        replaced.add("topic.name")
    # A misspelt option is reported already: it is not missing too.
    left = (
        option
        for key, option in own_options.items()
        if key in given or key not in replaced
    )
    own = OptionGroup(scope.prefix, tuple(left), given)
    values = _value_decoder(own, placed[_DECODER], scope)
    keys = _key_decoder(own, placed[_KEY_DECODER], scope)
    passed_on = {"consumer": _CONSUMER, "producer": _PRODUCER, "catalog": _CATALOG}
    client = {name: placed[namespace] for name, namespace in passed_on.items()}
    problems += (*found, *(problem for problem, _ in unknown))
    problems += refused_functions(own, allow_class_paths=scope.allow_class_paths)
    problems += (*values.problems, *keys.problems)
    return Classified(
        definition,
        tuple(problems),
        scope.type,
        values.name,
        StreamPlugins(scope.backend, values.decoder, keys.decoder),
        framework,
        own,
        values.options,
        keys.options,
        {namespace: passed for namespace, passed in client.items() if passed},
        tuple(placed[_META]),
    )


def refused_functions(
    own: OptionGroup, *, allow_class_paths: bool
) -> Iterator[Problem]:
    """Options that name a function, unless that is allowed: importing it runs code."""
    if allow_class_paths or os.environ.get(ALLOWED, "").lower() == "true":
        return
    for option in own.options:
        for prop in own.given.get(option.key, ()) if option.type is FUNCTION else ():
            if ":" in prop.text:
                what = f"{clip(prop.text)} is a class path, which requires "
                what += "--allow-class-paths"
                hint = f"on Spark, set the environment variable {ALLOWED}=true"
                yield Problem(prop.key, what, prop.origin, hint)


def group_properties(
    options: Sequence[Option], properties: Iterable[Placed], prefix: str = ""
) -> tuple[OptionGroup, list[Property]]:
    """Match properties to the options of one namespace; returns the others as well.

    Args:
        options: The options.
        properties: The properties, with their keys after the prefix.
        prefix: What full keys begin with.
    """
    spellings, placed, others = by_spelling(options), list[Placed](), list["Property"]()
    for key, prop in properties:
        option = spellings.get(key.lower())
        if option is None:
            others.append(prop)
        else:
            placed.append((option.key, prop))
    return OptionGroup(prefix, tuple(options), _by_key(placed)), others


def _by_key(placed: Iterable[Placed]) -> dict[str, list[Property]]:
    given: dict[str, list[Property]] = {}
    for key, prop in placed:
        given.setdefault(key, []).append(prop)
    return given


# --- the stream type --------------------------------------------------------------


def _find_type(
    properties: Sequence[Property], scope: _Scope
) -> tuple[_Scope, list[Problem]]:
    spellings = {word.lower() for word in FRAMEWORK_OPTIONS["streamType"].spellings}
    words = [prop for prop in properties if prop.key.lower() in spellings]
    names, problems = set[str](), list[Problem]()
    for word in words:
        try:
            names.add(resolve(word.text).strip().lower())
        except StreamError as error:
            # Without the type nothing else can be validated.
            problems.append(Problem(word.key, error.what, word.origin))
    # Missing, empty, too long or conflicting: reported with the option itself.
    name = names.pop() if len(names) == 1 else ""
    name = name if len(name) <= (PLUGIN.longest or 0) else ""
    scope = scope._replace(type=name)
    for found in _find_backend(words[0], properties, scope) if name else ():
        if isinstance(found, Problem):
            problems.append(found)
        else:
            scope = scope._replace(backend=found)
    return scope, problems


def _find_backend(
    word: Property, properties: Sequence[Property], scope: _Scope
) -> Iterator[Backend | Problem]:
    name, wanted = scope.type, f"{scope.prefix}consumer.factory.class.name"
    factory = next((prop for prop in properties if prop.key.lower() == wanted), None)
    text = None if factory is None else _text_of([factory])
    if factory is not None and text and ":" in text:
        allowed, place = scope.allow_class_paths, (factory.key, factory.origin)
        found = find_by_path(text, Backend, *place, allowed=allowed)
        yield found
        if isinstance(found, Backend) and found.name != name:
            what = f"{text} is of type {found.name!r}, not {name!r}"
            yield Problem(factory.key, what, factory.origin)
        return
    if factory is not None and text and text.strip().lower() != name:
        what = f"is {clip(text)}, but the stream's type is {name!r}"
        hint = _java_hint(text, PINOT_FACTORIES) or f"write {name}, or omit it"
        yield Problem(factory.key, what, factory.origin, hint)
    load, key = scope.plugins.backend, "streamType"
    yield find_by_name(load, KNOWN_BACKENDS, name, key, word.origin)


def _java_hint(text: str, names: Mapping[str, str]) -> str | None:
    """Return the remedy for the name of a Java class; None for other text."""
    if "." not in text.strip(".") or ":" in text:
        return None
    ours = pinot_name(text, names)
    if ours is not None:
        return f"the equivalent is {ours}"
    return "a Java class cannot run here: docs/spi.md shows how to write a plug-in"


def _text_of(properties: Sequence[Property]) -> str | None:
    """Return the name of a plug-in; None if it is invalid, which is reported later."""
    try:
        texts = {resolve(prop.text) for prop in properties}
    except StreamError:
        return None
    text = texts.pop()
    return None if texts or len(text) > (PLUGIN.longest or 0) else text


# --- properties -------------------------------------------------------------------


def _place(
    key: str, scope: _Scope, own: Mapping[str, Option], *, writes: bool
) -> tuple[str, str]:
    """Return the namespace of a property, and its key there."""
    lowered, backend = key.lower(), scope.backend
    if lowered.startswith(_META):
        return _META, key[len(_META) :]
    if lowered in _BARE:
        return _FRAMEWORK, _BARE[lowered].key
    if not scope.type:
        return _UNCHECKED, key  # the options of an unknown type are unknown
    if backend is not None and lowered in backend.bare_names:
        return _OWN, backend.bare_names[lowered]
    spark = f"{scope.type}."
    clients = frozenset() if backend is None else backend.client_namespaces
    if "consumer" in clients and lowered.startswith(spark):
        # Spark's spelling: ``kafka.`` before an option or a client property.
        short = key[len(spark) :]
        if short.lower() in own:
            return _OWN, own[short.lower()].key
        return _PRODUCER if writes else _CONSUMER, short
    if not lowered.startswith(scope.prefix):
        return _UNKNOWN, key
    short = key[len(scope.prefix) :]
    if short.lower() in own:
        return _OWN, own[short.lower()].key
    for namespace in (_DECODER, _KEY_DECODER, _CONSUMER, _PRODUCER, _CATALOG):
        if short.lower().startswith(namespace):
            return namespace, short[len(namespace) :]
    return _UNCHECKED if backend is None else _UNKNOWN, key


def _unknown(
    properties: Sequence[Property], scope: _Scope, options: Mapping[str, Option]
) -> list[tuple[Problem, str | None]]:
    """Return the problem with each unknown key, and the option of the type meant."""
    if not properties:
        return []
    own = {key: scope.prefix + option.key for key, option in options.items()}
    known = {scope.prefix + key: full for key, full in own.items()} | own
    known |= {key: option.key for key, option in _BARE.items()}
    # Once: to list the plug-ins, the metadata of all installed packages is read.
    types = {*scope.plugins.names(BACKENDS), *KNOWN_BACKENDS} - {scope.type}
    found = list[tuple[Problem, str | None]]()
    for prop in properties:
        near, hint = _meant(prop.key, scope, known, types)
        meant = options.get(near.removeprefix(scope.prefix)) if near else None
        # Without its value: a misspelt key of a secret has the secret as value.
        problem = Problem(prop.key, "unknown option", prop.origin, hint)
        found.append((problem, None if meant is None else meant.key))
    return found


def _meant(
    key: str, scope: _Scope, known: Mapping[str, str], types: Set[str]
) -> tuple[str | None, str | None]:
    """Return the spelling that an unknown key is nearest to, and the remedy."""
    lowered = key.lower()
    hints = {} if scope.backend is None else scope.backend.bare_hints
    if lowered in hints:
        return None, hints[lowered]
    # A prefix alone is similar to every short key.
    near = nearest("" if key.endswith(".") else lowered, known, likeness=LIKELY)
    other = re.match(r"stream\.([^.]+)\.", lowered)
    if other and (other[1] in types or (not near and other[1] != scope.type)):
        return None, f"this stream is of type {scope.type!r}"
    return near, f"did you mean {known[near]}?" if near else None


# --- decoders ---------------------------------------------------------------------


def _value_decoder(
    own: OptionGroup, properties: Sequence[Placed], scope: _Scope
) -> _Found:
    backend, key = scope.backend, f"{own.prefix}decoder.class.name"
    words = own.given.get("decoder.class.name")
    if backend is not None and backend.yields is Yields.TYPED and words:
        what = f"has no effect: stream type {backend.name!r} yields typed rows"
        return _Found([Problem(key, what, words[0].origin, "omit it")])
    found = _find_decoder(_DECODER, own, properties, scope)
    if backend is None or backend.yields is not Yields.ENVELOPE or words:
        return found
    what = f"is required: stream type {backend.name!r} yields undecoded messages"
    hint = f"known are {', '.join(scope.plugins.names(DECODERS))}"
    return _Found([Problem(key, what, "", hint), *found.problems])


def _key_decoder(
    own: OptionGroup, properties: Sequence[Placed], scope: _Scope
) -> _Found:
    key = f"{own.prefix}key.decoder.class.name"
    words = own.given.get("key.decoder.class.name")
    if words and "decoder.class.name" not in own.given:
        what = "is set, but the decoder of the values is not"
        return _Found([Problem(key, what, words[0].origin)])
    found = _find_decoder(_KEY_DECODER, own, properties, scope)
    if words and found.decoder is not None and found.decoder.decoder is None:
        what = f"the decoder {found.decoder.name!r} does not decode"
        hint = "omit it to read keys as bytes"
        return _Found([Problem(key, what, words[0].origin, hint)])
    return found


def _find_decoder(
    namespace: str, own: OptionGroup, properties: Sequence[Placed], scope: _Scope
) -> _Found:
    """Find the decoder whose options have a namespace, and match its options."""
    option = namespace.replace("prop.", "class.name")
    key, words = own.prefix + option, own.given.get(option)
    if words is None:
        what = f"is set, but {key} is not"
        return _Found([Problem(prop.key, what, prop.origin) for _, prop in properties])
    text, origin = _text_of(words), words[0].origin
    if text is None:
        return _Found()
    if ":" in text:
        allowed = scope.allow_class_paths
        found = find_by_path(text, Decoder, key, origin, allowed=allowed)
    else:
        load = scope.plugins.decoder
        found = find_by_name(load, KNOWN_DECODERS, text.lower(), key, origin)
    if isinstance(found, Problem):
        hint = _java_hint(text, PINOT_DECODERS)
        named = Problem(key, f"names {clip(text)}", origin, hint)
        return _Found([found if hint is None else named], text.lower())
    prefix = own.prefix + namespace
    group, others = group_properties(found.options, properties, prefix)
    spellings, problems = by_spelling(found.options), []
    for prop in others:
        near = nearest(prop.key[len(prefix) :].lower(), spellings)
        hint = f"did you mean {prefix}{spellings[near].key}?" if near else None
        what = f"the decoder {found.name!r} has no such option"
        problems.append(Problem(prop.key, what, prop.origin, hint))
    return _Found(problems, str(found.name), found, group)
