"""A stream's configuration as an author sees it: validated, typed, frozen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamfactory.spi.errors import Problem
from streamfactory.spi.masking import MASK, mask_secrets, mask_value, userinfo_secrets
from streamfactory.spi.references import (
    forget,
    has_reference,
    is_reference,
    known_text,
    parts_to_mask,
    resolve,
    values_to_mask,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value and its origin.

    Args:
        key: Short: what follows ``stream.<type>.``, or the bare word.
        full_key: As it is written in a configuration.
        text: As it was written; of a secret, the reference or the literal.
        value: Parsed; None for a secret, which is resolved when it is read.
        origin: ``default``, ``argument``, ``clicks.toml:12``, ...
        secret: Whether its value is masked wherever it is shown.
        passed: Whether it is passed through to a client library unchanged and
            unchecked.
    """

    key: str
    full_key: str
    text: str = field(repr=False)
    value: Any = field(repr=False)
    origin: str
    secret: bool = False
    passed: bool = False

    @property
    def shown(self) -> str:
        """The text, safe to show.

        Literal secrets and passed-through values are masked, and so are the credentials
        of a URL in any other value; a reference is not a secret.
        """
        hidden = (self.secret or self.passed) and not is_reference(self.text)
        return MASK if hidden else mask_value(self.text)


@dataclass(frozen=True, slots=True)
class StreamConfig(Mapping[str, Any]):
    """The configuration of one stream: a mapping of short keys to parsed values.

    Created and validated by the framework. Pickles with references to secrets
    unresolved. ``config["topic.name"]`` is the parsed value; a secret is resolved when
    it is read, by the process that reads it.

    Iteration covers the keys that have a value, set or by default.

    Args:
        name: The stream's name; ``<type>:<topic>`` if it has none.
        type: Name of the backend.
        settings: The options of the stream type and of the framework.
        client: Pass-through properties by namespace: ``consumer``, ``producer``,
            ``catalog``.
        decoder: Name of the decoder, if messages are envelopes.
        decoder_settings: The options of the decoder.
        meta: Annotations, ``stream.meta.*``: kept, but never interpreted.
        description: Of the stream, for users.
        warnings: What validation found to have no effect, or deprecated.
        reads_headers: Whether a decoder reads the headers of messages.
    """

    name: str
    type: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    client: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)
    decoder: str | None = None
    decoder_settings: Mapping[str, Setting] = field(default_factory=dict)
    meta: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    reads_headers: bool = False

    @property
    def topic(self) -> str:
        """The topic's name."""
        return str(self["topic.name"])

    @property
    def wants_headers(self) -> bool:
        """Whether the headers of messages are used.

        A consumer of envelopes may leave them null otherwise, if they cost time.
        """
        return bool(
            self.decoder in (None, "raw")
            or self.reads_headers
            or self.get("metadata.populate")
            or self.get("includeHeaders")
            or self.get("decode.on.error") == "dead-letter"
        )

    def given(self, key: str) -> bool:
        """Whether an option was set explicitly."""
        setting = self.settings.get(key)
        return setting is not None and setting.origin != "default"

    def problem(
        self, key: str, what: str, remedy: str | None = None, *, level: str = "error"
    ) -> Problem:
        """Create a problem with an option of the type, for `Backend.check_options`.

        Args:
            key: Short: what follows ``stream.<type>.``, or the bare word.
            what: The cause; it continues a sentence that begins with the key.
            remedy: What to write instead.
            level: ``error``, or ``warning`` for a value that has no effect.
        """
        setting = self.settings.get(key)
        if setting is None:
            return Problem(f"stream.{self.type}.{key}", what, "", remedy, level)
        origin = "" if setting.origin == "default" else setting.origin
        return Problem(setting.full_key, what, origin, remedy, level)

    def client_properties(self, namespace: str) -> dict[str, str]:
        """Return the pass-through properties of a client, with references resolved.

        Args:
            namespace: ``consumer``, ``producer`` or ``catalog``.
        """
        given = self.client.get(namespace, {})
        return {key: resolve(setting.text) for key, setting in given.items()}

    def decoder_options(self) -> dict[str, Any]:
        """Return the decoder's options, parsed, secrets resolved."""
        return {key: _value(s) for key, s in self.decoder_settings.items()}

    def mask(self, text: str) -> str:
        """Return ``text`` with what is secret in this configuration masked.

        That is each value of a secret option, each value from a reference, whatever its
        option, and the credentials of URLs.
        """
        # The text may contain the `repr` of a secret, with its escapes.
        found = {form for s in self._secrets() for form in (s, repr(s)[1:-1])}
        return mask_secrets(text, found)

    def renew(self) -> bool:
        """Have the secrets looked up again when they are next read.

        Called after a client was refused: a secret may have been replaced.

        Returns:
            Whether this process has looked one up, by a scheme of references that asks
            another process: only their values are kept.
        """
        texts = [one.text for one in self._all_settings() if "$" in one.text]
        return sum(map(forget, texts)) > 0

    def digest(self) -> str:
        """Return a digest: equal for equal settings, across processes.

        Reveals no secret.
        """
        pairs = sorted((s.full_key, s.text) for s in self._all_settings())
        text = json.dumps([self.name, self.type, pairs])
        # Imported here: it loads OpenSSL, and few programs need a digest.
        import hashlib

        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _all_settings(self) -> Iterator[Setting]:
        yield from self.settings.values()
        for namespace in self.client.values():
            yield from namespace.values()
        yield from self.decoder_settings.values()

    def _secrets(self) -> set[str]:
        found = set()
        for setting in self._all_settings():
            # Most settings: commands over all streams mask by the settings of each.
            if not setting.secret and not {"$", "@"} & set(setting.text):
                continue
            if has_reference(setting.text):
                found |= values_to_mask(setting.text)
                if isinstance(setting.value, str):  # resolved in another process
                    found |= parts_to_mask(setting.value)
            text = known_text(setting.text)
            if text is not None:
                found |= {text} if setting.secret else set(userinfo_secrets(text))
        return {secret for secret in found if len(secret) > 2}

    def __getitem__(self, key: str) -> Any:
        return _value(self.settings[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{s.full_key}={s.shown}"
            for s in self._all_settings()
            if s.origin != "default"
        )
        return f"StreamConfig({self.name!r}, {shown})"


def _value(setting: Setting) -> Any:
    return resolve(setting.text) if setting.secret else setting.value
