"""Rules over the options of a storage: what applies to which kind of place.

Used by stream types that keep or read files, when a configuration is validated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.options import MODE_OPTIONS, STORAGE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from streamfactory.spi import Problem, StreamConfig

_S3: Final = {
    "storage.endpoint": "endpoint",
    "storage.region": "region",
    "storage.access.key": "access_key_id",
    "storage.secret.key": "secret_access_key",
    "storage.token": "session_token",
}
_GS: Final = {
    "storage.endpoint": "base_url",
    "storage.token": "bearer_token",
    "storage.service.account": "service_account",
}
_AZ: Final = {
    "storage.endpoint": "endpoint",
    "storage.account": "account_name",
    "storage.secret.key": "account_key",
    "storage.token": "sas_key",
}
KINDS: Final = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    "gs": _GS,
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), _AZ),
}
"""Object stores by scheme: the client's names of our options."""
_ALL_KINDS: Final = (
    "storage.anonymous",
    "storage.allow.http",
    "storage.certificate",
    "storage.timeout.millis",
)


def scheme_of(path: str) -> str:
    """Return the scheme of a URL, in lower case; empty for a local folder."""
    return path.partition("://")[0].lower() if "://" in path else ""


def storage_options(scheme: str) -> frozenset[str]:
    """Return the options ``storage.*`` that apply to a scheme."""
    kind = KINDS.get(scheme)
    return frozenset() if kind is None else frozenset({*kind, *_ALL_KINDS})


def place_problems(config: StreamConfig, *, writes: bool) -> Iterator[Problem]:
    """Yield problems of storage options that do not apply, or exclude each other.

    Args:
        config: With the options of `arrowlog.disk.options` and ``path``.
        writes: Whether the configuration may be used for writing.
    """
    yield from storage_problems(config, storage_options(scheme_of(config["path"])))
    yield from _mode_problems(config)
    if (
        writes
        and config["fsync"] != "interval"
        and config.given("fsync.interval.millis")
    ):
        what = "has no effect without fsync=interval"
        yield config.problem("fsync.interval.millis", what, level="warning")


def storage_problems(
    config: StreamConfig,
    applies: Collection[str],
    hints: Mapping[str, str] | None = None,
    key: str = "path",
) -> Iterator[Problem]:
    """Yield options ``storage.*`` that do not apply to a location, and plain HTTP.

    Args:
        config: With ``STORAGE_OPTIONS``.
        applies: The options ``storage.*`` that apply to the scheme of the location;
            empty where it is not in an object store.
        hints: What to do instead of an option that does not apply, by its key.
        key: Of the option with the location.
    """
    scheme = scheme_of(config[key])
    for option in STORAGE_OPTIONS:
        if option.key in applies or not config.given(option.key):
            continue
        if applies:
            what = f"has no effect for {scheme}://"
            hint = (hints or {}).get(option.key, f"omit it, or check {key}")
            yield config.problem(option.key, what, hint)
        else:
            what = f"has no effect: {key} is not in an object store"
            yield config.problem(option.key, what, level="warning")
    yield from plain_http_problems(config, "storage.endpoint")


def _mode_problems(config: StreamConfig) -> Iterator[Problem]:
    """Yield permissions for storage without permissions.

    An error, as they protect data.
    """
    scheme = scheme_of(config["path"])
    for option in MODE_OPTIONS:
        if scheme and config.given(option.key):
            what = f"has no effect for {scheme}://"
            hint = "omit it, and set the permissions of the bucket"
            yield config.problem(option.key, what, hint)


def plain_http_problems(config: StreamConfig, key: str) -> Iterator[Problem]:
    """Yield an endpoint without TLS, unless it is explicitly allowed.

    Args:
        config: With ``STORAGE_OPTIONS``.
        key: Of the option with the endpoint.
    """
    endpoint = str(config.get(key, ""))
    if endpoint.lower().startswith("http:") and not config["storage.allow.http"]:
        what = "is not encrypted: keys and rows could be read on the network"
        own = config.settings[key].full_key.removesuffix(key)
        hint = f"use https://, or set {own}storage.allow.http=true"
        yield config.problem(key, what, hint)
