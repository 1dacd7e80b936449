"""The scheme ``vault``: values of the secrets engine KV, of version 1 or 2."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from streamfactory.spi import (
    ConfigError,
    ReferenceScheme,
    ResolvedReference,
    hookimpl,
)
from streamfactory.spi.hooks import require_installed

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS: Final = 10.0
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,512}")
_FORM: Final = "write ${vault:MOUNT/PATH#KEY}"

require_installed("httpx")


def look_up(what: str, seconds: float) -> ResolvedReference:
    """Return a key of a secret, as `ReferenceScheme.lookup`."""
    # Imported here: what validates definitions needs no HTTP.
    from streamfactory_vault.client import Vault
    from streamfactory_vault.settings import Settings

    path, key = _split(what)
    settings = Settings.of_environment()
    with Vault(settings, seconds) as vault:
        mount, version = _mount(vault.read(f"sys/internal/ui/mounts/{path}"))
        if not f"{path}/".startswith(mount) or len(path) <= len(mount):
            msg = f"there is no secrets engine KV at its beginning; {_FORM}"
            raise ConfigError(msg)
        if version == 2:
            answer = vault.read(f"{mount}data/{path[len(mount) :]}")
        else:
            answer = vault.read(path)
    fields = answer.get("data")
    if version == 2 and isinstance(fields, dict):
        fields = fields.get("data")
    value = _value(fields, key)
    lease = answer.get("lease_duration")
    kept = settings.keep_seconds
    if isinstance(lease, int) and lease > 0:
        kept = min(kept, lease)
    return ResolvedReference(value, kept)


def _split(what: str) -> tuple[str, str]:
    path, mark, key = what.rpartition("#")
    parts = path.strip("/").split("/")
    sound = all(_NAME.fullmatch(p) and p not in (".", "..") for p in parts)
    if not mark or not key or not sound or len(parts) < 2 or len(path) > 2048:
        msg = f"it is not the path of a secret with a key; {_FORM}"
        raise ConfigError(msg)
    return "/".join(quote(part, safe="") for part in parts), key


def _mount(answer: Mapping[str, Any]) -> tuple[str, int]:
    """The beginning of a path that is a secrets engine, quoted, and its version."""
    facts = answer.get("data")
    facts = facts if isinstance(facts, dict) else {}
    path, kind, options = facts.get("path"), facts.get("type"), facts.get("options")
    if kind not in ("kv", "generic") or not isinstance(path, str):
        msg = f"the secrets engine there is of the type {kind!r}; only kv can be read"
        raise ConfigError(msg)
    version = options.get("version") if isinstance(options, dict) else None
    quoted = "/".join(quote(part, safe="") for part in path.strip("/").split("/"))
    return f"{quoted}/", 2 if version == "2" else 1


def _value(fields: Any, key: str) -> str:
    if not isinstance(fields, dict):
        msg = "the secret was deleted"
        raise ConfigError(msg)
    if key not in fields:
        msg = f"the secret has no key {key!r}"
        raise ConfigError(msg)
    value = fields[key]
    if not isinstance(value, str):
        kind = type(value).__name__
        msg = f"the key {key!r} has a value of the type {kind}, expected text"
        raise ConfigError(msg)
    return value


@hookimpl
def streamfactory_reference() -> ReferenceScheme:
    """Describe the scheme."""
    return ReferenceScheme(
        name="vault",
        doc="A key of a secret of OpenBao or HashiCorp Vault.",
        spi_level=1,
        example="${vault:secret/kafka#password}",
        lookup=look_up,
        remote=True,
        timeout_seconds=_SECONDS,
    )
