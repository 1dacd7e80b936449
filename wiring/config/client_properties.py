"""Validates the properties that are passed to the client library of a stream type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi.config import Setting
from streamfactory.wiring.config.resolution import looks_secret, resolved_or_empty
from streamfactory.wiring.core.nearest import LIKELY, nearest

if TYPE_CHECKING:
    from collections.abc import Collection

    from streamfactory.spi import Backend
    from streamfactory.wiring.config.definition import Property
    from streamfactory.wiring.config.resolution import Resolver


class ClientProperties:
    """Collects the client properties of one definition.

    Args:
        resolver: Reports problems.
        backend: The stream type; None if it is unknown.
        on_spark: Whether plans show the properties.
    """

    def __init__(
        self, resolver: Resolver, backend: Backend | None, *, on_spark: bool
    ) -> None:
        self._resolver = resolver
        self._backend = backend
        self._on_spark = on_spark
        self.settings: dict[str, dict[str, Setting]] = {}
        """By namespace and key."""

    def add(self, namespace: str, key: str, prop: Property) -> None:
        """Check and keep a property.

        Args:
            namespace: ``consumer`` or ``producer``.
            key: As the client spells it.
            prop: As it is configured.
        """
        backend = self._backend
        before = self.settings.setdefault(namespace, {}).get(key)
        owned = {} if backend is None else backend.owned_client_keys
        hint = {k.lower(): hint for k, hint in owned.items()}.get(key.lower())
        if not key:
            self._resolver.error(prop.key, "lacks the name of a property", prop.origin)
        elif backend is not None and namespace not in backend.client_namespaces:
            what = (
                f"has no effect: stream type {backend.name!r} has no {namespace} client"
            )
            self._resolver.error(prop.key, what, prop.origin)
        elif hint is not None:
            what = "is set by streamfactory itself"
            self._resolver.error(prop.key, what, prop.origin, hint)
        elif before is not None and before.text != prop.text:
            what = f"conflicts with {before.full_key} [{before.origin}]"
            self._resolver.error(prop.key, what, prop.origin, "keep one of them")
        elif backend is not None and backend.client_keys:
            self._check_known(backend.client_keys, key, prop)
        secret = looks_secret(key)
        if self._resolver.well_formed(prop, secret=True):
            if secret:
                self._resolver.literal_secret(prop)
            else:
                self._resolver.credentials(prop, resolved_or_empty(prop.text))
        self.settings[namespace][key] = Setting(
            key, prop.key, prop.text, None, prop.origin, secret, passed=True
        )

    def _check_known(self, known: Collection[str], key: str, prop: Property) -> None:
        """Report an unknown client property.

        On Spark an error, because plans show it.
        """
        if key in known:
            return
        near = nearest(key, known, likeness=LIKELY)
        hint = f"did you mean {near}?" if near else None
        what = "is not a known property of the client"
        report = self._resolver.error if self._on_spark else self._resolver.warn
        report(prop.key, what, prop.origin, hint)
