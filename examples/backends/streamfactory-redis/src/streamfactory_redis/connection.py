"""The client of a factory, and how it is made of a configuration."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from streamfactory import spi


class Connection:
    """A pool of connections to the server of a configuration. Thread-safe.

    Nothing is opened before the first call. The pool notices a fork, and gives the
    child connections of its own.

    Args:
        config: The stream's configuration.
    """

    def __init__(self, config: spi.StreamConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._client: redis.Redis | None = None

    @property
    def client(self) -> redis.Redis:
        """The client; made by the first call."""
        # A lock that a fork inherited may be held for ever: only a first call takes it.
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._client = _connect(self._config)
        return self._client

    def run(self, script: str, keys: Sequence[str], *arguments: str | int) -> Any:
        """Run a script in the server; its answer.

        Raises:
            spi.NotAuthorized: permanent; the user may not do what the script does.
        """
        try:
            return self._run(script, keys, *arguments)
        except redis.exceptions.ResponseError as error:
            # Within a script the refusal has no code of its own.
            if str(error).startswith("The user executing the script can't"):
                raise spi.NotAuthorized(str(error)) from error
            raise

    def _run(self, script: str, keys: Sequence[str], *arguments: str | int) -> Any:
        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        values: Any = [*keys, *arguments]
        try:
            return self.client.evalsha(digest, len(keys), *values)
        except redis.exceptions.NoScriptError:
            return self.client.eval(script, len(keys), *values)

    def close(self) -> None:
        """Close all connections; twice is allowed."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _connect(config: spi.StreamConfig) -> redis.Redis:
    host, _, port = config["address"].rpartition(":")
    timeout = config["connection.timeout.millis"] / 1000
    options: dict[str, Any] = {}
    if config["tls"]:
        options = {"ssl": True, "ssl_ca_certs": config.get("tls.ca.file")}
    return redis.Redis(
        host=host.strip("[]"),
        port=int(port),
        db=config["database"],
        username=config.get("user"),
        password=config["password"] if config.given("password") else None,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        # Repeating is the framework's: it knows what may be repeated, and for how long.
        retry=Retry(NoBackoff(), 0),
        **options,
    )
