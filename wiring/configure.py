"""From strings to a `StreamConfig`: every problem at once, each in words.

The ladder a property climbs: which option is it (whatever its case, aliases too);
was it given twice, and do the two agree; can its references be resolved; can it be
parsed; is it within bounds; does it have an effect here (`settling`). Then, over all
of them: is something required missing, and do they go together (`crosschecks`).
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from streamfactory.spi import (
    Backend,
    ConfigError,
    Decoder,
    NotInstalled,
    Option,
    PluginError,
    Problem,
    Setting,
    StreamConfig,
    UnknownPlugin,
    Yields,
)
from streamfactory.spi.config import MASK
from streamfactory.spi.hooks import DECODERS
from streamfactory.wiring.classpath import load_descriptor
from streamfactory.wiring.crosschecks import cross_checks
from streamfactory.wiring.known import KNOWN_BACKENDS, KNOWN_DECODERS
from streamfactory.wiring.settling import Settler, by_spelling, looks_secret
from streamfactory.wiring.vocabulary import FRAMEWORK_OPTIONS, SHARED_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.wiring.definition import Property, StreamDefinition
    from streamfactory.wiring.plugins import PluginManager

D = TypeVar("D", Backend, Decoder)
"""The kind of descriptor that a class path names."""

_META: Final = "stream.meta."
_DECODER: Final = "decoder.prop."
_CHOOSERS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(slots=True)
class Inspection:
    """What came of a definition: a configuration, or the reasons why not."""

    definition: StreamDefinition
    config: StreamConfig | None = None
    backend: Backend | None = None
    decoder: Decoder | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """Those that forbid use."""
        return [p for p in self.problems if p.level == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """Those worth knowing."""
        return [p for p in self.problems if p.level != "error"]


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration with the plug-ins that it names, loaded."""

    config: StreamConfig
    backend: Backend
    decoder: Decoder | None


def configure(
    definition: StreamDefinition,
    plugins: PluginManager,
    *,
    use: str,
    allow_class_paths: bool = False,
) -> Configured:
    """Validate a definition for use.

    Args:
        definition: Names and strings.
        plugins: Where types and decoders are found.
        use: ``read``, ``write`` or ``spark``: options without effect there are told.
        allow_class_paths: Whether ``module:NAME`` may name a descriptor.

    Raises:
        ConfigError: config; with every problem.
        PluginError: plugin; the type or decoder is not installed, and nothing else is
            wrong.
    """
    result = inspect(definition, plugins, use=use, allow_class_paths=allow_class_paths)
    config = result.config
    if config is None:
        count = len(result.errors)
        msg = f"{count} problem{'s' * (count > 1)} in the configuration"
        raise ConfigError(msg, problems=result.errors, stream=definition.name or None)
    # To `inspect` an absent plug-in is only a warning; here these two raise.
    backend = result.backend or plugins.backend(config.type)
    decoder = result.decoder
    if config.decoder is not None and decoder is None:
        decoder = plugins.decoder(config.decoder)
    return Configured(config, backend, decoder)


def inspect(
    definition: StreamDefinition,
    plugins: PluginManager,
    *,
    use: str | None = None,
    allow_class_paths: bool = False,
) -> Inspection:
    """Validate a definition offline; never raises for what a user wrote.

    A type or decoder that is known but not installed is a warning, and its own options
    stay unchecked.
    """
    ladder = _Ladder(definition, plugins, use=use, allow_class_paths=allow_class_paths)
    return ladder.climb()


def stream_options(backend: Backend | None) -> dict[str, Option]:
    """The options under ``stream.<type>.``: shared ones, under the backend's."""
    own = () if backend is None else backend.options
    return {**SHARED_OPTIONS, **{option.key: option for option in own}}


class _Ladder:
    """One climb; holds what the steps share."""

    def __init__(
        self,
        definition: StreamDefinition,
        plugins: PluginManager,
        *,
        use: str | None,
        allow_class_paths: bool,
    ) -> None:
        self._definition = definition
        self._plugins = plugins
        self._use = use
        self._class_paths = allow_class_paths
        self._result = Inspection(definition, problems=list(definition.notes))
        self._settler = Settler(self._result.problems, use)
        self._type = ""
        self._own: dict[str, Option] = {}
        self._bare = by_spelling(FRAMEWORK_OPTIONS.values())
        self._given: dict[str, list[Property]] = defaultdict(list)
        self._decoder_given: list[tuple[str, Property]] = []
        self._client: dict[str, dict[str, Setting]] = defaultdict(dict)
        self._meta: dict[str, str] = {}

    def climb(self) -> Inspection:
        self._type = self._find_type()
        if self._type:
            self._result.backend = self._find_backend()
        options = stream_options(self._result.backend)
        self._own = by_spelling(options.values())
        for prop in self._definition.properties:
            self._classify(prop)
        settings = self._settler.settle(FRAMEWORK_OPTIONS.values(), self._given, "")
        if self._type:
            chosen = any(word in self._given for word in _CHOOSERS)
            if chosen and "topic.name" not in self._given:
                del options["topic.name"]
            prefix = f"stream.{self._type}."
            settings |= self._settler.settle(options.values(), self._given, prefix)
        decoder, decoder_settings = self._find_decoder(settings)
        self._result.problems += cross_checks(settings)
        if not self._result.errors:
            self._result.config = self._config(settings, decoder, decoder_settings)
        return self._result

    # --- which type ---------------------------------------------------------------

    def _type_words(self) -> list[Property]:
        words = ("streamtype", "stream.type")
        return [p for p in self._definition.properties if p.key.lower() in words]

    def _find_type(self) -> str:
        values = {p.text.strip().lower() for p in self._type_words()}
        # Missing, empty, or in disagreement: the option itself complains of that.
        return values.pop() if len(values) == 1 else ""

    def _find_backend(self) -> Backend | None:
        word = self._factory_word()
        if word is not None and ":" in word.text:
            return self._by_path(word.key, word.text, word.origin, Backend, self._type)
        if word is not None and word.text.lower() != self._type:
            what = f"names {word.text!r}, but the stream's type is {self._type!r}"
            self._settler.error(word.key, what, word.origin)
        origin = self._type_words()[0].origin
        try:
            return self._plugins.backend(self._type)
        except PluginError as error:
            known = KNOWN_BACKENDS.get(self._type)
            self._absent_plugin("streamType", origin, error, known)
        return None

    def _factory_word(self) -> Property | None:
        wanted = f"stream.{self._type}.consumer.factory.class.name"
        return next(
            (p for p in self._definition.properties if p.key.lower() == wanted), None
        )

    def _by_path(
        self, key: str, path: str, origin: str, kind: type[D], name: str | None
    ) -> D | None:
        found = load_descriptor(path, kind, allowed=self._class_paths)
        if isinstance(found, str):
            self._settler.error(key, found, origin)
            return None
        if name is not None and found.name != name:
            what = f"{path} is of type {found.name!r}, not {name!r}"
            self._settler.error(key, what, origin)
        return found

    def _absent_plugin(
        self, key: str, origin: str, error: PluginError, known: str | None
    ) -> None:
        if isinstance(error, UnknownPlugin) and known is not None:
            self._settler.warn(key, "is known, but not installed here", origin, known)
        elif isinstance(error, NotInstalled):
            self._settler.warn(key, error.what, origin, error.remedy)
        else:
            self._settler.error(key, error.what, origin, error.remedy)

    # --- which option -------------------------------------------------------------

    def _classify(self, prop: Property) -> None:
        key = prop.key.lower()
        prefix = f"stream.{self._type}."
        if key.startswith(_META):
            self._meta[prop.key[len(_META) :]] = prop.text
        elif key in self._bare:
            self._given[self._bare[key].key].append(prop)
        elif not self._type:
            return  # without a type nobody can say what belongs to it
        elif not key.startswith(prefix):
            self._unknown(prop)
        elif key[len(prefix) :] in self._own:
            self._given[self._own[key[len(prefix) :]].key].append(prop)
        elif self._pass_through(prop, prop.key[len(prefix) :]):
            return
        elif self._result.backend is not None:
            self._unknown(prop)

    def _pass_through(self, prop: Property, short: str) -> bool:
        lowered = short.lower()
        if lowered.startswith(_DECODER):
            self._decoder_given.append((short[len(_DECODER) :], prop))
            return True
        for namespace in ("consumer", "producer"):
            start = f"{namespace}.prop."
            if lowered.startswith(start):
                self._client_property(namespace, short[len(start) :], prop)
                return True
        return False

    def _client_property(self, namespace: str, key: str, prop: Property) -> None:
        backend = self._result.backend
        if backend is not None and namespace not in backend.client_namespaces:
            what = f"the type {backend.name!r} has no {namespace} client to pass it to"
            self._settler.error(prop.key, what, prop.origin)
        elif backend is not None and key in backend.owned_client_keys:
            hint = backend.owned_client_keys[key]
            self._settler.error(
                prop.key, "is set by streamfactory itself", prop.origin, hint
            )
        secret = looks_secret(key)
        if secret:
            self._settler.literal_secret(prop)
        self._client[namespace][key] = Setting(
            key, prop.key, prop.text, None, prop.origin, secret
        )

    def _unknown(self, prop: Property) -> None:
        prefix = f"stream.{self._type}."
        known = {prefix + key: prefix + option.key for key, option in self._own.items()}
        known |= {key: option.key for key, option in self._bare.items()}
        near = difflib.get_close_matches(prop.key.lower(), known, n=1, cutoff=0.75)
        other = re.match(r"stream\.([^.]+)\.", prop.key)
        hint = None
        if near:
            hint = f"did you mean {known[near[0]]}?"
        elif other and other[1].lower() != self._type:
            hint = f"this stream is of type {self._type!r}"
        text = MASK if looks_secret(prop.key) else prop.text
        self._settler.error(
            prop.key, f"unknown option (value {text!r})", prop.origin, hint
        )

    # --- which decoder ------------------------------------------------------------

    def _find_decoder(
        self, settings: Mapping[str, Setting]
    ) -> tuple[str | None, dict[str, Setting]]:
        word = settings.get("decoder.class.name")
        backend = self._result.backend
        key = f"stream.{self._type}.decoder.class.name"
        if word is None:
            if backend is not None and backend.yields is Yields.ENVELOPE:
                hint = f"known are {', '.join(self._plugins.names(DECODERS))}"
                what = f"is required: {backend.name!r} yields undecoded messages"
                self._settler.error(key, what, "", hint)
            for _, prop in self._decoder_given:
                self._settler.error(prop.key, f"is set, but not {key}", prop.origin)
            return None, {}
        if backend is not None and backend.yields is Yields.TYPED:
            what = f"is refused: {backend.name!r} yields typed rows"
            self._settler.error(word.full_key, what, word.origin, "leave it out")
            return None, {}
        name = self._load_decoder(word)
        decoder = self._result.decoder
        return name, {} if decoder is None else self._decoder_settings(decoder)

    def _load_decoder(self, word: Setting) -> str:
        name = str(word.value)
        if ":" in name:
            found = self._by_path(word.full_key, name, word.origin, Decoder, None)
            self._result.decoder = found
            return name if found is None else str(found.name)
        name = name.lower()
        try:
            self._result.decoder = self._plugins.decoder(name)
        except PluginError as error:
            known = KNOWN_DECODERS.get(name)
            self._absent_plugin(word.full_key, word.origin, error, known)
        return name

    def _decoder_settings(self, decoder: Decoder) -> dict[str, Setting]:
        prefix = f"stream.{self._type}.{_DECODER}"
        spellings = by_spelling(decoder.options)
        given: dict[str, list[Property]] = defaultdict(list)
        for short, prop in self._decoder_given:
            option = spellings.get(short.lower())
            if option is not None:
                given[option.key].append(prop)
                continue
            near = difflib.get_close_matches(short.lower(), spellings, n=1)
            hint = f"did you mean {prefix}{spellings[near[0]].key}?" if near else None
            what = f"the decoder {decoder.name!r} has no such option"
            self._settler.error(prop.key, what, prop.origin, hint)
        return self._settler.settle(decoder.options, given, prefix)

    # --- the result ---------------------------------------------------------------

    def _config(
        self,
        settings: dict[str, Setting],
        decoder: str | None,
        decoder_settings: dict[str, Setting],
    ) -> StreamConfig:
        topic = settings.get("topic.name")
        name = self._definition.name
        return StreamConfig(
            name=name or f"{self._type}:{topic.value if topic else '*'}",
            type=self._type,
            settings=settings,
            client={
                namespace: dict(given) for namespace, given in self._client.items()
            },
            decoder=decoder,
            decoder_settings=decoder_settings,
            meta=self._meta,
            description=self._definition.description,
            warnings=tuple(self._result.warnings),
        )
