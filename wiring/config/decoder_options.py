"""Finds the decoders of a stream and validates their options."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from streamfactory.spi import Yields
from streamfactory.spi.hooks import DECODERS
from streamfactory.wiring.config.resolution import by_spelling
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import Backend, Decoder
    from streamfactory.spi.config import Setting
    from streamfactory.wiring.config.definition import Property
    from streamfactory.wiring.config.finding import Finder
    from streamfactory.wiring.config.resolution import Resolver
    from streamfactory.wiring.plugins.manager import PluginManager

_DECODER: Final = "decoder.prop."
_KEY_DECODER: Final = "key.decoder.prop."


class DecoderOptions:
    """Collects the options of the decoders of one definition.

    Args:
        resolver: Resolves options and reports problems.
        finder: Finds decoders.
        plugins: Lists the known decoders.
        type_name: Name of the stream type; empty if it is unknown.
        backend: The stream type; None if it is unknown.
    """

    def __init__(
        self,
        resolver: Resolver,
        finder: Finder,
        plugins: PluginManager,
        type_name: str,
        backend: Backend | None,
    ) -> None:
        self._resolver = resolver
        self._finder = finder
        self._plugins = plugins
        self._type = type_name
        self._backend = backend
        self._given: dict[str, list[tuple[str, Property]]] = {
            _DECODER: [],
            _KEY_DECODER: [],
        }

    def add(self, short: str, prop: Property) -> bool:
        """Keep a property, if it is an option of a decoder; returns whether it is.

        Args:
            short: Its key without ``stream.<type>.``.
            prop: As it is configured.
        """
        for start, given in self._given.items():
            if short.lower().startswith(start):
                given.append((short[len(start) :], prop))
                return True
        return False

    def of_values(
        self, settings: Mapping[str, Setting], *, is_given: bool
    ) -> tuple[str | None, Decoder | None, dict[str, Setting]]:
        """Find the decoder of values: its name, the decoder and its settings.

        Args:
            settings: The resolved options of the stream.
            is_given: Whether the configuration names a decoder, valid or not.
        """
        word = settings.get("decoder.class.name")
        backend = self._backend
        key = f"stream.{self._type}.decoder.class.name"
        if word is None:
            if is_given:
                return None, None, {}  # reported already
            if backend is not None and backend.yields is Yields.ENVELOPE:
                hint = f"known are {', '.join(self._plugins.names(DECODERS))}"
                what = (
                    f"is required: stream type {backend.name!r} yields "
                    f"undecoded messages"
                )
                self._resolver.error(key, what, "", hint)
            self._refuse_orphans(_DECODER, key)
            return None, None, {}
        if backend is not None and backend.yields is Yields.TYPED:
            what = f"has no effect: stream type {backend.name!r} yields typed rows"
            self._resolver.error(word.full_key, what, word.origin, "omit it")
            return None, None, {}
        if word.value is None:
            return None, None, {}  # not resolved here, and reported
        name, decoder = self._finder.decoder(word)
        found = {} if decoder is None else self._settings(decoder, _DECODER)
        return name, decoder, found

    def of_keys(
        self, settings: Mapping[str, Setting]
    ) -> tuple[Decoder | None, dict[str, Setting]]:
        """Find the decoder of keys, with its settings."""
        word = settings.get("key.decoder.class.name")
        key = f"stream.{self._type}.key.decoder.class.name"
        if word is None:
            self._refuse_orphans(_KEY_DECODER, key)
            return None, {}
        if "decoder.class.name" not in settings:
            what = "is set, but the decoder of the values is not"
            self._resolver.error(word.full_key, what, word.origin)
            return None, {}
        if word.value is None:
            return None, {}  # not resolved here, and reported
        _, decoder = self._finder.decoder(word)
        if decoder is None:
            return None, {}
        if decoder.decoder is None:
            what = f"the decoder {decoder.name!r} does not decode"
            hint = "omit it to read keys as bytes"
            self._resolver.error(word.full_key, what, word.origin, hint)
            return decoder, {}
        found = self._settings(decoder, _KEY_DECODER)
        return decoder, {_KEY_DECODER + name: one for name, one in found.items()}

    def _refuse_orphans(self, start: str, needed: str) -> None:
        for _, prop in self._given[start]:
            self._resolver.error(prop.key, f"is set, but {needed} is not", prop.origin)

    def _settings(self, decoder: Decoder, start: str) -> dict[str, Setting]:
        prefix = f"stream.{self._type}.{start}"
        spellings = by_spelling(decoder.options)
        given: dict[str, list[Property]] = defaultdict(list)
        for short, prop in self._given[start]:
            option = spellings.get(short.lower())
            if option is not None:
                given[option.key].append(prop)
                continue
            near = nearest(short.lower(), spellings)
            hint = f"did you mean {prefix}{spellings[near].key}?" if near else None
            what = f"the decoder {decoder.name!r} has no such option"
            self._resolver.error(prop.key, what, prop.origin, hint)
        return self._resolver.resolve_all(decoder.options, given, prefix)
