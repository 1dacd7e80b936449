"""The ladder that a property climbs, and what came of a definition that climbed it.

Which option is it (whatever its case, aliases too); was it given twice, and do the two
agree; can its references be resolved; can it be parsed; is it within bounds; does it
have an effect here (`settling`). Then, over all of them: is something required missing,
and do they go together (`crosschecks`).
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from streamfactory.spi import (
    Backend,
    ConfigError,
    ConsumerFactory,
    Decoder,
    Option,
    Problem,
    Role,
    Setting,
    StreamConfig,
    Yields,
)
from streamfactory.spi.hooks import BACKENDS, DECODERS
from streamfactory.spi.references import has_reference, resolve
from streamfactory.wiring.config.crosschecks import cross_checks
from streamfactory.wiring.config.finding import Finder, java_hint
from streamfactory.wiring.config.guarantees import guarantee_problems
from streamfactory.wiring.config.imports.pinotnames import PINOT_FACTORIES
from streamfactory.wiring.config.resolution import (
    Resolver,
    by_spelling,
    clip,
    looks_secret,
)
from streamfactory.wiring.options.shared import SHARED_OPTIONS
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.options.spool import spool_strays, transport_options
from streamfactory.wiring.options.types import PLUGIN
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS
from streamfactory.wiring.plugins.known import KNOWN_BACKENDS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from streamfactory.wiring.config.definition import Property, StreamDefinition
    from streamfactory.wiring.plugins.manager import PluginManager

_META: Final = "stream.meta."
_DECODER: Final = "decoder.prop."
_KEY_DECODER: Final = "key.decoder.prop."
_ROLES: Final = {role.value: role for role in Role}
_CHOOSERS: Final = ("subscribe", "subscribePattern", "assign")
_MOST: Final = 1000
"""Properties of one stream: each unknown one is compared with all that are known."""


@dataclass(slots=True)
class Inspection:
    """What came of a definition: a configuration, or the reasons why not."""

    definition: StreamDefinition
    config: StreamConfig | None = None
    backend: Backend | None = None
    decoder: Decoder | None = None
    key_decoder: Decoder | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """Those that forbid use."""
        return [p for p in self.problems if p.level == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """Those worth knowing."""
        return [p for p in self.problems if p.level != "error"]


def stream_options(backend: Backend | None) -> dict[str, Option]:
    """The options under ``stream.<type>.``: shared ones, under the backend's."""
    own = () if backend is None else backend.options
    return {**SHARED_OPTIONS, **{option.key: option for option in own}}


class ConfigValidator:
    """Validates one definition in steps; holds what the steps share. Used once."""

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
        self._settler = Resolver(self._result.problems, use)
        self._finder = Finder(
            plugins, self._settler, allow_class_paths=allow_class_paths
        )
        self._type = ""
        self._own: dict[str, Option] = {}
        self._bare = by_spelling(FRAMEWORK_OPTIONS.values())
        self._given: dict[str, list[Property]] = defaultdict(list)
        self._decoder_given: dict[str, list[tuple[str, Property]]] = {
            _DECODER: [],
            _KEY_DECODER: [],
        }
        self._client: dict[str, dict[str, Setting]] = {}
        self._meta: dict[str, str] = {}
        self._meant: set[str] = set()

    def validate(self) -> Inspection:
        """Check everything; once."""
        count = len(self._definition.properties)
        if count > _MOST:
            what = f"has {count} properties, at most {_MOST} are read"
            name, origin = self._definition.name, self._definition.origin
            self._settler.error(name or "(unnamed)", what, origin)
            return self._result
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
            for key in self._meant - self._given.keys():
                options.pop(key, None)  # misspelt, which was told: not missing too
            prefix = f"stream.{self._type}."
            settings |= self._settler.settle(options.values(), self._given, prefix)
        decoder, decoder_settings = self._find_decoder(settings)
        settings |= self._find_key_decoder(settings)
        self._result.problems += cross_checks(
            settings, self._use, own_groups=_keeps_groups(self._result.backend)
        )
        if not self._result.errors:
            config = self._config(settings, decoder, decoder_settings)
            self._result.problems += self._rules(config)
            if not self._result.errors:
                warnings = tuple(self._result.warnings)
                self._result.config = replace(config, warnings=warnings)
        return self._result

    def _rules(self, config: StreamConfig) -> list[Problem]:
        """What the type's own rules say of a configuration, and the guarantee."""
        backend = self._result.backend
        if backend is None or _has_unresolved(config):
            return []
        problems = list[Problem]()
        try:
            if backend.check_options is not None:
                # What readers of a spool ask for is not asked of the transport.
                spooled = SPOOL_PATH in config and self._role is not Role.WRITE
                checked = transport_options(config) if spooled else config
                problems += backend.check_options(checked, self._role)
            if self._role is not Role.WRITE:
                problems += spool_strays(config)
            if SPOOL_PATH in config and self._role is not Role.WRITE:
                # Imported here: only who reads through a spool pays for loading Arrow.
                from streamfactory.wiring.spool.reading import read_through_spool
                from streamfactory.wiring.spool.rules import spool_problems

                problems += spool_problems(config, backend)
                backend = read_through_spool(backend, config)
            if self._use is None and not any(p.level == "error" for p in problems):
                # Where the use is known, its end judges: a writer id counts there.
                problems += guarantee_problems(config, backend)
        except Exception as error:  # noqa: BLE001 - the author's code
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
                # Without the type nothing else can be said, not even offline.
                self._settler.error(word.key, error.what, word.origin)
        # Missing, empty, too long, or in disagreement: the option itself complains.
        name = values.pop() if len(values) == 1 else ""
        return name if len(name) <= (PLUGIN.longest or 0) else ""

    def _find_backend(self) -> Backend | None:
        word = self._factory_word()
        text = "" if word is None else _resolved(word.text)
        if word is not None and ":" in text:
            return self._finder.by_path(
                word.key, text, word.origin, Backend, self._type
            )
        if word is not None and text and text.strip().lower() != self._type:
            what = f"names {clip(text)}, but the stream's type is {self._type!r}"
            hint = java_hint(text, PINOT_FACTORIES) or f"write {self._type}, or nothing"
            self._settler.error(word.key, what, word.origin, hint)
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
                self._settler.literal_secret(prop)
            self._meta[prop.key[len(_META) :]] = prop.text
        elif key in self._bare:
            self._given[self._bare[key].key].append(prop)
        elif not self._type:
            return  # without a type nobody can say what belongs to it
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
        """Spark-Kafka's: ``kafka.`` before an option, or a client's own property."""
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
            self._client_property(namespace, short, prop)
        return True

    def _pass_through(self, prop: Property, short: str) -> bool:
        lowered = short.lower()
        for start, given in self._decoder_given.items():
            if lowered.startswith(start):
                given.append((short[len(start) :], prop))
                return True
        for namespace in ("consumer", "producer"):
            start = f"{namespace}.prop."
            if lowered.startswith(start):
                self._client_property(namespace, short[len(start) :], prop)
                return True
        return False

    def _client_property(self, namespace: str, key: str, prop: Property) -> None:
        backend = self._result.backend
        before = self._client.setdefault(namespace, {}).get(key)
        owned = {} if backend is None else backend.owned_client_keys
        hint = {k.lower(): hint for k, hint in owned.items()}.get(key.lower())
        if not key:
            self._settler.error(prop.key, "names no property", prop.origin)
        elif backend is not None and namespace not in backend.client_namespaces:
            what = f"the type {backend.name!r} has no {namespace} client to pass it to"
            self._settler.error(prop.key, what, prop.origin)
        elif hint is not None:
            what = "is set by streamfactory itself"
            self._settler.error(prop.key, what, prop.origin, hint)
        elif before is not None and before.text != prop.text:
            what = f"has another value as {before.full_key} [{before.origin}]"
            self._settler.error(prop.key, what, prop.origin, "say it once")
        elif backend is not None and backend.client_keys:
            self._check_client_key(backend.client_keys, key, prop)
        secret = looks_secret(key)
        if self._settler.well_formed(prop, secret=True):
            if secret:
                self._settler.literal_secret(prop)
            else:
                self._settler.credentials(prop, _resolved(prop.text))
        self._client[namespace][key] = Setting(
            key, prop.key, prop.text, None, prop.origin, secret, passed=True
        )

    def _check_client_key(
        self, known: Collection[str], key: str, prop: Property
    ) -> None:
        """Tell of a key that the client does not have; Spark's plans would show it."""
        if key in known:
            return
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else None
        what = "is no property of the client that is known"
        tell = self._settler.error if self._use == "spark" else self._settler.warn
        tell(prop.key, what, prop.origin, hint)

    def _unknown(self, prop: Property) -> None:
        prefix = f"stream.{self._type}."
        known = {prefix + key: prefix + option.key for key, option in self._own.items()}
        known |= {key: prefix + option.key for key, option in self._own.items()}
        known |= {key: option.key for key, option in self._bare.items()}
        # A prefix alone is near to every short word.
        word = "" if prop.key.endswith(".") else prop.key.lower()
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
        other = re.match(r"stream\.([^.]+)\.", prop.key.lower())
        types = {*self._plugins.names(BACKENDS), *KNOWN_BACKENDS} - {self._type}
        backend = self._result.backend
        hint = None if backend is None else backend.bare_hints.get(prop.key.lower())
        if hint is not None:
            near = []
        elif other and (other[1] in types or (not near and other[1] != self._type)):
            hint, near = f"this stream is of type {self._type!r}", []
        elif near:
            hint = f"did you mean {known[near[0]]}?"
        meant = self._own.get(near[0].removeprefix(prefix)) if near else None
        if meant is not None:
            self._meant.add(meant.key)
        # Never its value: a word of a secret, misspelt, still holds the secret.
        self._settler.error(prop.key, "unknown option", prop.origin, hint)

    # --- which decoder ------------------------------------------------------------

    def _find_decoder(
        self, settings: Mapping[str, Setting]
    ) -> tuple[str | None, dict[str, Setting]]:
        word = settings.get("decoder.class.name")
        backend = self._result.backend
        key = f"stream.{self._type}.decoder.class.name"
        if word is None:
            if "decoder.class.name" in self._given:
                return None, {}  # told already
            if backend is not None and backend.yields is Yields.ENVELOPE:
                hint = f"known are {', '.join(self._plugins.names(DECODERS))}"
                what = f"is required: {backend.name!r} yields undecoded messages"
                self._settler.error(key, what, "", hint)
            self._refuse_orphans(_DECODER, key)
            return None, {}
        if backend is not None and backend.yields is Yields.TYPED:
            what = f"is refused: {backend.name!r} yields typed rows"
            self._settler.error(word.full_key, what, word.origin, "leave it out")
            return None, {}
        if word.value is None:
            return None, {}  # not resolved here, and told
        name, self._result.decoder = self._finder.decoder(word)
        decoder = self._result.decoder
        return name, {} if decoder is None else self._decoder_settings(
            decoder, _DECODER
        )

    def _find_key_decoder(self, settings: Mapping[str, Setting]) -> dict[str, Setting]:
        """The settings of the decoder of keys, which stand among the others."""
        word = settings.get("key.decoder.class.name")
        key = f"stream.{self._type}.key.decoder.class.name"
        if word is None:
            self._refuse_orphans(_KEY_DECODER, key)
            return {}
        if "decoder.class.name" not in settings:
            what = "is set, but not the decoder of the values"
            self._settler.error(word.full_key, what, word.origin)
            return {}
        if word.value is None:
            return {}  # not resolved here, and told
        _, decoder = self._finder.decoder(word)
        self._result.key_decoder = decoder
        if decoder is None:
            return {}
        if decoder.decoder is None:
            what = f"{decoder.name!r} decodes nothing"
            hint = "leave it out: keys are bytes then"
            self._settler.error(word.full_key, what, word.origin, hint)
            return {}
        found = self._decoder_settings(decoder, _KEY_DECODER)
        return {_KEY_DECODER + name: setting for name, setting in found.items()}

    def _refuse_orphans(self, start: str, needed: str) -> None:
        for _, prop in self._decoder_given[start]:
            self._settler.error(prop.key, f"is set, but not {needed}", prop.origin)

    def _decoder_settings(self, decoder: Decoder, start: str) -> dict[str, Setting]:
        prefix = f"stream.{self._type}.{start}"
        spellings = by_spelling(decoder.options)
        given: dict[str, list[Property]] = defaultdict(list)
        for short, prop in self._decoder_given[start]:
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
        shown = "*" if topic is None else topic.value or topic.text
        name = self._definition.name
        return StreamConfig(
            name=name or f"{self._type}:{shown}",
            type=self._type,
            settings=settings,
            client=self._client,
            decoder=decoder,
            decoder_settings=decoder_settings,
            meta=self._meta,
            description=self._definition.description,
        )


def _has_unresolved(config: StreamConfig) -> bool:
    """Whether the value of a setting is a reference that was not resolved here."""
    return any(
        setting.value is None and not setting.secret and has_reference(setting.text)
        for setting in config.settings.values()
    )


def _resolved(text: str) -> str:
    try:
        return resolve(text)
    except ConfigError:
        return ""  # the option itself complains of that


def _keeps_groups(backend: Backend | None) -> bool:
    """Whether groups of a type are its own, with their checkpoints."""
    if backend is None or backend.consumer_factory is None:
        return False
    made: type[ConsumerFactory] = backend.consumer_factory
    return (
        made.create_stream_level_consumer
        is not ConsumerFactory.create_stream_level_consumer
        or made.create_checkpoint_store is not ConsumerFactory.create_checkpoint_store
    )
