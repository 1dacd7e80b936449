"""Validates a stream definition in steps.

Each property is matched to an option (ignoring case, by aliases too), compared with
other spellings of the same option, its references are resolved, and its value is parsed
and checked against its bounds and its use (`resolution`). Then missing options and
rules over several options are checked (`crosschecks`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    Backend,
    ConfigError,
    Decoder,
    Option,
    Problem,
    Role,
    StreamConfig,
)
from streamfactory.spi.hooks import BACKENDS
from streamfactory.spi.references import has_reference, resolve
from streamfactory.wiring.config.client_properties import ClientProperties
from streamfactory.wiring.config.crosschecks import cross_checks
from streamfactory.wiring.config.decoder_options import DecoderOptions
from streamfactory.wiring.config.finding import Finder, java_hint
from streamfactory.wiring.config.guarantees import guarantee_problems
from streamfactory.wiring.config.imports.pinotnames import PINOT_FACTORIES
from streamfactory.wiring.config.resolution import (
    Resolver,
    by_spelling,
    clip,
    looks_secret,
    resolved_or_empty,
)
from streamfactory.wiring.core.nearest import LIKELY, nearest
from streamfactory.wiring.options.shared import SHARED_OPTIONS
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.options.spool import spool_strays, transport_options
from streamfactory.wiring.options.types import PLUGIN
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS
from streamfactory.wiring.plugins.known import KNOWN_BACKENDS

if TYPE_CHECKING:
    from streamfactory.spi.config import Setting
    from streamfactory.wiring.config.definition import Property, StreamDefinition
    from streamfactory.wiring.plugins.manager import PluginManager

_META: Final = "stream.meta."
_ROLES: Final = {role.value: role for role in Role}
_CHOOSERS: Final = ("subscribe", "subscribePattern", "assign")
_MOST: Final = 1000
"""Maximum properties of a stream: each unknown one is compared with all known ones."""


@dataclass(slots=True)
class Inspection:
    """The result of validation: a configuration, or the problems."""

    definition: StreamDefinition
    config: StreamConfig | None = None
    backend: Backend | None = None
    decoder: Decoder | None = None
    key_decoder: Decoder | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """The errors."""
        return [p for p in self.problems if p.level == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """The warnings."""
        return [p for p in self.problems if p.level != "error"]


def stream_options(backend: Backend | None) -> dict[str, Option]:
    """Return the options under ``stream.<type>.``.

    Shared ones, overridden by the backend's.
    """
    own = () if backend is None else backend.options
    return {**SHARED_OPTIONS, **{option.key: option for option in own}}


class ConfigValidator:
    """Validates one definition in steps. Used once."""

    def __init__(
        self,
        definition: StreamDefinition,
        plugins: PluginManager,
        *,
        use: str | None,
        allow_class_paths: bool,
        role: Role | None = None,
    ) -> None:
        self._definition = definition
        self._plugins = plugins
        self._use = use
        self._role = role or _ROLES.get(use or "")
        self._result = Inspection(definition, problems=list(definition.notes))
        self._resolver = Resolver(self._result.problems, use)
        self._finder = Finder(
            plugins, self._resolver, allow_class_paths=allow_class_paths
        )
        self._type = ""
        self._own: dict[str, Option] = {}
        self._bare = by_spelling(FRAMEWORK_OPTIONS.values())
        self._given: dict[str, list[Property]] = defaultdict(list)
        self._decoders: DecoderOptions
        self._client: ClientProperties
        self._meta: dict[str, str] = {}
        self._meant: set[str] = set()

    def validate(self) -> Inspection:
        """Run all checks; call it once."""
        count = len(self._definition.properties)
        if count > _MOST:
            what = f"has {count} properties, more than the maximum of {_MOST}"
            name, origin = self._definition.name, self._definition.origin
            self._resolver.error(name or "(unnamed)", what, origin)
            return self._result
        self._type = self._find_type()
        if self._type:
            self._result.backend = self._find_backend()
        settings = self._settings()
        decoder, self._result.decoder, decoder_settings = self._decoders.of_values(
            settings, is_given="decoder.class.name" in self._given
        )
        self._result.key_decoder, of_keys = self._decoders.of_keys(settings)
        settings |= of_keys
        self._result.problems += cross_checks(settings, self._use, self._result.backend)
        if not self._result.errors:
            config = self._config(settings, decoder, decoder_settings)
            self._result.problems += self._rules(config)
            if not self._result.errors:
                warnings = tuple(self._result.warnings)
                self._result.config = replace(config, warnings=warnings)
        return self._result

    def _settings(self) -> dict[str, Setting]:
        """Match the properties to options, and resolve those of the stream."""
        backend = self._result.backend
        self._decoders = DecoderOptions(
            self._resolver, self._finder, self._plugins, self._type, backend
        )
        self._client = ClientProperties(
            self._resolver, backend, on_spark=self._use == "spark"
        )
        options = stream_options(backend)
        self._own = by_spelling(options.values())
        for prop in self._definition.properties:
            self._classify(prop)
        settings = self._resolver.resolve_all(
            FRAMEWORK_OPTIONS.values(), self._given, ""
        )
        if self._type:
            chosen = any(word in self._given for word in _CHOOSERS)
            if chosen and "topic.name" not in self._given:
                del options["topic.name"]
            for key in self._meant - self._given.keys():
                # misspelt, which is reported: do not report it as missing too
                options.pop(key, None)
            prefix = f"stream.{self._type}."
            settings |= self._resolver.resolve_all(
                options.values(), self._given, prefix
            )
        return settings

    def _rules(self, config: StreamConfig) -> list[Problem]:
        """Return problems by the type's own rules, and of the guarantee."""
        backend = self._result.backend
        if backend is None or _has_unresolved(config):
            return []
        problems = list[Problem]()
        try:
            if backend.check_options is not None:
                # Options for readers of a spool do not apply to the transport.
                spooled = SPOOL_PATH in config and self._role is not Role.WRITE
                checked = transport_options(config) if spooled else config
                problems += backend.check_options(checked, self._role)
            if self._role is not Role.WRITE:
                problems += spool_strays(config)
            if SPOOL_PATH in config and self._role is not Role.WRITE:
                # Imported here: Arrow is loaded only to read through a spool.
                from streamfactory.wiring.spool.reading import read_through_spool
                from streamfactory.wiring.spool.rules import spool_problems

                problems += spool_problems(config, backend)
                backend = read_through_spool(backend, config)
            if self._use is None and not any(p.level == "error" for p in problems):
                # If the use is known, the guarantee is checked there, with the writer
                # id.
                problems += guarantee_problems(config, backend)
        except Exception as error:  # noqa: BLE001 - the plug-in's code
            what = f"checking its options failed: {type(error).__name__}: {error}"
            hint = f"report it to the author of the stream type {config.type!r}"
            problems = [Problem(f"stream.{config.type}", what, "", hint)]
        return problems

    # --- which type ---------------------------------------------------------------

    def _type_words(self) -> list[Property]:
        words = ("streamtype", "stream.type")
        return [p for p in self._definition.properties if p.key.lower() in words]

    def _find_type(self) -> str:
        values = set()
        for word in self._type_words():
            try:
                values.add(resolve(word.text).strip().lower())
            except ConfigError as error:
                # Without the type nothing else can be validated.
                self._resolver.error(word.key, error.what, word.origin)
        # Missing, empty, too long or conflicting: reported with the option itself.
        name = values.pop() if len(values) == 1 else ""
        return name if len(name) <= (PLUGIN.longest or 0) else ""

    def _find_backend(self) -> Backend | None:
        word = self._factory_word()
        text = "" if word is None else resolved_or_empty(word.text)
        if word is not None and ":" in text:
            return self._finder.by_path(
                word.key, text, word.origin, Backend, self._type
            )
        if word is not None and text and text.strip().lower() != self._type:
            what = f"is {clip(text)}, but the stream's type is {self._type!r}"
            hint = java_hint(text, PINOT_FACTORIES) or f"write {self._type}, or omit it"
            self._resolver.error(word.key, what, word.origin, hint)
        origin = self._type_words()[0].origin
        return self._finder.backend(self._type, origin)

    def _factory_word(self) -> Property | None:
        wanted = f"stream.{self._type}.consumer.factory.class.name"
        return next(
            (p for p in self._definition.properties if p.key.lower() == wanted), None
        )

    # --- which option -------------------------------------------------------------

    def _classify(self, prop: Property) -> None:
        key = prop.key.lower()
        prefix = f"stream.{self._type}."
        if key.startswith(_META):
            if looks_secret(key):
                self._resolver.literal_secret(prop)
            self._meta[prop.key[len(_META) :]] = prop.text
        elif key in self._bare:
            self._given[self._bare[key].key].append(prop)
        elif not self._type:
            return  # the options of an unknown type are unknown
        elif self._short_spelling(prop):
            return
        elif not key.startswith(prefix):
            self._unknown(prop)
        elif key[len(prefix) :] in self._own:
            self._given[self._own[key[len(prefix) :]].key].append(prop)
        elif self._pass_through(prop, prop.key[len(prefix) :]):
            return
        elif self._result.backend is not None:
            self._unknown(prop)

    def _short_spelling(self, prop: Property) -> bool:
        """Handle Spark's spelling: ``kafka.`` before an option or a client property."""
        key, backend = prop.key.lower(), self._result.backend
        if backend is None:
            return False
        if key in backend.bare_names:
            self._given[backend.bare_names[key]].append(prop)
            return True
        short = prop.key[len(self._type) + 1 :]
        if not key.startswith(f"{self._type}.") or not backend.client_namespaces:
            return False
        if short.lower() in self._own:
            self._given[self._own[short.lower()].key].append(prop)
        else:
            namespace = "producer" if self._use == "write" else "consumer"
            self._client.add(namespace, short, prop)
        return True

    def _pass_through(self, prop: Property, short: str) -> bool:
        lowered = short.lower()
        if self._decoders.add(short, prop):
            return True
        for namespace in ("consumer", "producer"):
            start = f"{namespace}.prop."
            if lowered.startswith(start):
                self._client.add(namespace, short[len(start) :], prop)
                return True
        return False

    def _unknown(self, prop: Property) -> None:
        prefix = f"stream.{self._type}."
        known = {prefix + key: prefix + option.key for key, option in self._own.items()}
        known |= {key: prefix + option.key for key, option in self._own.items()}
        known |= {key: option.key for key, option in self._bare.items()}
        # A prefix alone is similar to every short key.
        word = "" if prop.key.endswith(".") else prop.key.lower()
        near = nearest(word, known, likeness=LIKELY)
        other = re.match(r"stream\.([^.]+)\.", prop.key.lower())
        types = {*self._plugins.names(BACKENDS), *KNOWN_BACKENDS} - {self._type}
        backend = self._result.backend
        hint = None if backend is None else backend.bare_hints.get(prop.key.lower())
        if hint is not None:
            near = None
        elif other and (other[1] in types or (not near and other[1] != self._type)):
            hint, near = f"this stream is of type {self._type!r}", None
        elif near:
            hint = f"did you mean {known[near]}?"
        meant = self._own.get(near.removeprefix(prefix)) if near else None
        if meant is not None:
            self._meant.add(meant.key)
        # Without its value: a misspelt key of a secret has the secret as value.
        self._resolver.error(prop.key, "unknown option", prop.origin, hint)

    # --- the result ---------------------------------------------------------------

    def _config(
        self,
        settings: dict[str, Setting],
        decoder: str | None,
        decoder_settings: dict[str, Setting],
    ) -> StreamConfig:
        topic = settings.get("topic.name")
        shown = "*" if topic is None else topic.value or topic.text
        name = self._definition.name
        return StreamConfig(
            name=name or f"{self._type}:{shown}",
            type=self._type,
            settings=settings,
            client=self._client.settings,
            decoder=decoder,
            decoder_settings=decoder_settings,
            meta=self._meta,
            description=self._definition.description,
        )


def _has_unresolved(config: StreamConfig) -> bool:
    """Whether a setting has a reference that was not resolved here."""
    return any(
        setting.value is None and not setting.secret and has_reference(setting.text)
        for setting in config.settings.values()
    )
