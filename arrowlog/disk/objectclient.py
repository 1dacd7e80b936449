"""The client of object stores, opened on first use in each process.

Every request has a deadline, and errors are translated, without secrets.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog.disk import forks
from streamfactory.spi import (
    ConnectionFailed,
    NotAuthorized,
    NotInstalled,
    StorageFailed,
    StreamError,
    StreamTimeout,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

_RETRIES: Final = 8
_CONNECT_SECONDS: Final = 5.0
_NOT_ALLOWED: Final = frozenset({401, 403})
_PASSING: Final = frozenset({408, 409, 425, 429})
_BUILT_IN: Final = (ValueError, OSError, NotImplementedError)
"""Exceptions of the client that are not of its own classes."""
_SECRET_WORDS: Final = ("secret", "key", "token", "account_key", "service_account")

_lock = forks.Lock()
_loaded: list[tuple[int, ModuleType]] = []
"""The processes that loaded the client, and the client of each: this one's is the last.

Those of parents are kept: see `forks.abandon`.
"""
_home: list[Path] = []
"""Location of the installed client."""


@dataclass(frozen=True, slots=True)
class ObjectOptions:
    """Connection options of a store."""

    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of the client, by its names: ``region``, ``endpoint``, ..."""
    allow_http: bool = False
    """Whether unencrypted requests are allowed."""
    certificate: str | None = None
    """PEM file of the certificate authorities of the store."""
    timeout: float = 30.0
    """Timeout of one request in seconds; it is retried for at most twice as long."""

    def secrets(self) -> list[str]:
        """Return the values that messages must not contain."""
        found = [
            value
            for key, value in self.config.items()
            if isinstance(value, str) and any(word in key for word in _SECRET_WORDS)
        ]
        return sorted((s for s in found if len(s) > 2), key=len, reverse=True)


class ObjectClient:
    """One store, by its URL. Thread-safe.

    Args:
        url: As `ObjectStorage` has it.
        options: How to reach it.
        make: Makes the client's store; of ``url`` and ``options`` where not given.
    """

    def __init__(
        self,
        url: str,
        options: ObjectOptions,
        make: Callable[[ModuleType], Any] | None = None,
    ) -> None:
        self.url = url
        self._options = options
        self._make = make or self._by_url
        self._opened: Any = None
        self._lock = forks.Lock()
        forks.register(self)

    def reset_after_fork(self) -> None:
        """Open a new store on the next request."""
        if self._opened is not None:
            forks.abandon(self._opened)
            self._opened = None

    @contextlib.contextmanager
    def asking(self, name: str) -> Iterator[tuple[ModuleType, Any]]:
        """Return the client and its store for a request; translates its errors.

        Raises:
            FileNotFoundError: There is no such blob.
            TransientError: transient; no response, or the store throttles.
            NotAuthorized: permanent.
            StorageFailed: permanent.
        """
        module, store = self._get(name)
        try:
            yield module, store
        except StreamError:
            raise
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error):
                raise FileNotFoundError(self._place(name)) from None
            raise self._no_bucket() from None
        except (module.exceptions.BaseError, *_BUILT_IN) as error:
            raise self._translated(error, name) from None

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            self._opened = None

    def _get(self, name: str) -> tuple[ModuleType, Any]:
        module = client()
        with self._lock:
            if self._opened is None:
                try:
                    self._opened = self._make(module)
                except (module.exceptions.BaseError, *_BUILT_IN) as error:
                    raise self._translated(error, name) from None
            return module, self._opened

    def _by_url(self, module: ModuleType) -> Any:
        options = self._options
        timeout = timedelta(seconds=options.timeout)
        client_options: dict[str, Any] = {
            "allow_http": options.allow_http,
            "timeout": timeout,
            "connect_timeout": min(timeout, timedelta(seconds=_CONNECT_SECONDS)),
        }
        if options.certificate is not None:
            client_options["root_certificate"] = Path(options.certificate).read_bytes()
        again = {
            "max_retries": _RETRIES,
            "retry_timeout": 2 * timeout,
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=2),
                "base": 2,
            },
        }
        return module.store.from_url(
            self.url,
            config=dict(options.config),
            client_options=client_options,
            retry_config=again,
        )

    def _place(self, name: str) -> str:
        return f"{self.url}/{name}" if name else self.url

    def _no_bucket(self) -> StorageFailed:
        msg = f"{self.url}: the bucket does not exist"
        return StorageFailed(
            msg, remedy="create it first: streamfactory does not create buckets"
        )

    def _translated(self, error: Exception, name: str) -> StreamError:
        """Translate an error of the client.

        Its kinds differ by text only. The text may be long and contain a signed URL:
        one line is shown, without queries and secrets.
        """
        text = str(error)
        code = re.search(r"<Code>(\w+)</Code>|\(code: (\w+)\)", text)
        reason = re.split(r":? <\?xml|<Error>|\n\nDebug", text, maxsplit=1)[0]
        reason = re.sub(r"\?\S*", "", " ".join(reason.split()))
        if code and code[1]:
            reason = f"{reason} ({code[1]})"
        for secret in self._options.secrets():
            reason = reason.replace(secret, "***")
        msg = f"{self._place(name)}: {reason[:500]}"
        if "NoSuchBucket" in text:
            return self._no_bucket()
        return _kind(error, text)(msg)


def _kind(error: Exception, text: str) -> Callable[[str], StreamError]:
    found = re.search(r"status code: (\d{3})|status: (\d{3})", text)
    status = int(found[1] or found[2]) if found else None
    refused = type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError")
    if refused or status in _NOT_ALLOWED or "AccessDenied" in text:
        return not_authorized
    if status is not None and (status >= 500 or status in _PASSING):
        # 501 means that the store lacks a feature.
        return TransientError if status != 501 else StorageFailed
    if status is None and re.search(r"HttpError|error sending request", text):
        if re.search(r"kind: Timeout|TimedOut|timed out", text):
            return StreamTimeout
        return ConnectionFailed
    return StorageFailed


def not_authorized(msg: str) -> NotAuthorized:
    """Return the error for a store that refuses the credentials of a request."""
    remedy = (
        "check storage.access.key, storage.secret.key and storage.token, or the "
        "environment of this process, and the permissions of that identity"
    )
    return NotAuthorized(msg, remedy=remedy)


def client() -> ModuleType:
    """Return the client's module for this process.

    Its threads do not exist in a forked child, where each request would hang: the child
    loads a second copy of the client.

    Raises:
        NotInstalled: plugin; the message is the command to run.
    """
    if not _loaded or _loaded[-1][0] != os.getpid():
        with _lock:
            if not _loaded or _loaded[-1][0] != os.getpid():
                module = _load_again() if _loaded else _load()
                _loaded.append((os.getpid(), module))
    return _loaded[-1][1]


def _load() -> ModuleType:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        msg = "object stores require the package 'obstore', which is not installed"
        remedy = "run: pip install 'streamfactory[objects]'"
        raise NotInstalled(msg, remedy=remedy) from error
    assert obstore.__file__ is not None
    _home[:] = [Path(obstore.__file__).parent]
    module: ModuleType = obstore
    return module


def _load_again() -> ModuleType:
    """Load the client from a copy of its files, independent of earlier loads."""
    name = _home[0].name
    before = {key: sys.modules.pop(key) for key in _modules(name)}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(_home[0], Path(folder) / name)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        try:
            module = importlib.import_module(name)
            importlib.import_module(f"{name}.exceptions")
            importlib.import_module(f"{name}.store")
        finally:
            sys.path.remove(folder)
            for key in _modules(name):
                del sys.modules[key]
            sys.modules.update(before)
    return module


def _modules(name: str) -> list[str]:
    return [key for key in sys.modules if key == name or key.startswith(f"{name}.")]
