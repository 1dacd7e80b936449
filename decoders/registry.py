"""A Schema Registry, through confluent-kafka's own client, and its options.

Needs the extra ``registry``.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import (
    BOOLEAN,
    INTEGER,
    PATH,
    PERIOD,
    ConfigError,
    ConnectionFailed,
    NotAuthorized,
    NotInstalled,
    Option,
    PermanentError,
    StreamError,
    StreamTimeout,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FORGET: Final = 10.0
"""Seconds for which an unknown id is taken for unknown: it may be registered later."""
_MOST_UNKNOWN: Final = 1000
_JAVA_STORE: Final = (
    "Java's key stores are not read here: give PEM files with "
    "schema.registry.ssl.ca.location, .certificate.location and .key.location"
)


def _is_url(text: str) -> str | None:
    for url in text.split(","):
        match = re.fullmatch(r"https?://([^/@\s]+@)?[^/@\s]+(/\S*)?", url.strip())
        if match is None:
            return "is not a list of URLs: write http://host:8081,http://other:8081"
        if match[1]:
            return (
                "has a name and a password in it: give them with "
                "schema.registry.basic.auth.user.info"
            )
    return None


def _is_user_info(text: str) -> str | None:
    # It may be a reference still, which is resolved where it is used.
    return None if ":" in text else "is not of the form NAME:PASSWORD"


REGISTRY_OPTIONS: Final = (
    Option(
        "schema.registry.rest.url",
        "URLs of the Schema Registry; messages are framed then.",
        validator=_is_url,
        aliases=("schema.registry.url",),
        example="http://localhost:8081",
    ),
    Option(
        "schema.registry.subject",
        "The subject whose latest schema rows have; TOPIC-value by default.",
    ),
    Option(
        "schema.registry.auto.register",
        "Register the schema of what is written, rather than look it up.",
        BOOLEAN,
        default="true",
        aliases=("auto.register.schemas",),
        applies=frozenset({"write"}),
    ),
    Option(
        "schema.registry.timeout.millis",
        "Time for a request to the registry.",
        PERIOD,
        default="10s",
        minimum=1,
    ),
    Option(
        "schema.registry.max.retries",
        "How often a request is made again.",
        INTEGER,
        default="3",
        minimum=0,
        maximum=100,
    ),
    Option(
        "schema.registry.basic.auth.user.info",
        "NAME:PASSWORD for the registry.",
        secret=True,
        validator=_is_user_info,
        aliases=("basic.auth.user.info",),
    ),
    Option(
        "schema.registry.basic.auth.credentials.source",
        "Where Java's client takes its credentials from.",
        aliases=("basic.auth.credentials.source",),
        no_effect="schema.registry.basic.auth.user.info is used where it is given",
    ),
    Option(
        "schema.registry.ssl.ca.location",
        "PEM file with the authorities that the registry's certificate is of.",
        PATH,
    ),
    Option(
        "schema.registry.ssl.certificate.location",
        "PEM file with a certificate of our own.",
        PATH,
    ),
    Option("schema.registry.ssl.key.location", "PEM file with the key to it.", PATH),
    Option("schema.registry.ssl.key.password", "Password of that key.", secret=True),
    *(
        Option(f"schema.registry.ssl.{key}", "Of Java's client.", no_effect=_JAVA_STORE)
        for key in (
            "truststore.location",
            "truststore.type",
            "keystore.location",
            "keystore.type",
            "protocol",
        )
    ),
    *(
        Option(
            f"schema.registry.ssl.{key}.password",
            "Of Java's client.",
            secret=True,
            no_effect=_JAVA_STORE,
        )
        for key in ("truststore", "keystore")
    ),
    Option(
        "schema.registry.schema.name",
        "Of Pinot's first Avro decoder.",
        no_effect="a message names its schema by id",
    ),
    Option(
        "cached.schema.map.capacity",
        "Of Java's client.",
        no_effect="schemas that were seen are kept",
    ),
)
"""What decoders that know a registry declare beside their own."""


class UnknownId(LookupError):
    """The registry has no schema of that id."""


class Registry:
    """What decoders and encoders ask a Schema Registry. One per thread.

    Args:
        options: The parsed options of a decoder.
        topic: Names the subject where no option does.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            msg = "schema.registry.rest.url needs the client of the Schema Registry"
            remedy = "run: pip install 'streamfactory[registry]'"
            raise NotInstalled(msg, remedy=remedy) from error
        self.subject = options.get("schema.registry.subject") or f"{topic}-value"
        self.url = options["schema.registry.rest.url"]
        self._unknown: OrderedDict[int, float] = OrderedDict()
        with self._translated("be set up"):
            self._client = SchemaRegistryClient(_settings(options))

    def by_id(self, number: int, kind: str, form: str | None = None) -> Any:
        """The schema with this id: text, and references, as confluent-kafka has them.

        Args:
            number: The id.
            kind: ``AVRO`` or ``PROTOBUF``.
            form: ``serialized`` for a descriptor rather than a text.

        Raises:
            UnknownId: The registry answers that it has none of that id and kind.
            ConnectionFailed: transient; and its other errors of the tree.
        """
        seen = self._unknown.get(number)
        if seen is not None and time.monotonic() - seen < _FORGET:
            raise UnknownId(number)
        try:
            with self._translated(f"give the schema {number}"):
                schema = _checked(self._client.get_schema(number, fmt=form))
        except UnknownId:
            self._unknown[number] = time.monotonic()
            self._unknown.move_to_end(number)
            if len(self._unknown) > _MOST_UNKNOWN:
                self._unknown.popitem(last=False)
            raise
        if (schema.schema_type or "AVRO") != kind or not schema.schema_str:
            raise UnknownId(number)
        return schema

    def latest(self, kind: str, form: str | None = None) -> Any:
        """The latest schema of the subject, and its id.

        Raises:
            UnknownId: There is none.
            ConnectionFailed: transient; and its other errors of the tree.
        """
        with self._translated(f"give the latest schema of {self.subject!r}"):
            found = self._client.get_latest_version(self.subject, fmt=form)
            _checked(found.schema)
            _want(found.schema_id, int)
        if (found.schema.schema_type or "AVRO") != kind or not found.schema.schema_str:
            raise UnknownId(self.subject)
        return found

    def version(self, subject: str, version: int, form: str | None = None) -> Any:
        """A schema that another one refers to. Raises as `latest`."""
        with self._translated(f"give version {version} of {subject!r}"):
            found = self._client.get_version(subject, version, fmt=form)
            return _checked(found.schema)

    def register(self, text: str, kind: str, *, new: bool) -> int:
        """The id of a schema under the subject.

        Args:
            text: The schema.
            kind: ``AVRO`` or ``PROTOBUF``.
            new: Register it where it is not there.

        Raises:
            UnknownId: It is not there, and ``new`` is False.
            PermanentError: It is refused, as not compatible.
            ConnectionFailed: transient; and its other errors of the tree.
        """
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, kind)
        with self._translated(f"find the schema of {self.subject!r}"):
            if new:
                return int(self._client.register_schema(self.subject, schema))
            found = self._client.lookup_schema(self.subject, schema)
            return int(found.schema_id or 0)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Errors of the client as ours, without their texts: they may hold secrets."""
        what = f"the Schema Registry at {self.url} could not {doing}"
        try:
            yield
        except (UnknownId, StreamError):
            raise
        except Exception as error:  # noqa: BLE001 - its HTTP client has its own tree
            raise _translation(error, what) from None


def _checked(schema: Any) -> Any:
    """A schema whose members have their types: the client takes any JSON.

    Raises:
        TypeError: One has another type.
    """
    _want(schema.schema_str, str, type(None))
    _want(schema.schema_type, str, type(None))
    for reference in schema.references or ():
        _want(reference.name, str)
        _want(reference.subject, str)
        _want(reference.version, int)
    return schema


def _want(value: object, *kinds: type) -> None:
    if type(value) not in kinds:
        msg = f"a member of the answer is a {type(value).__name__}"
        raise TypeError(msg)


def _translation(error: Exception, what: str) -> Exception:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "SchemaRegistryError" in kinds:
        return _refusal(error, what)
    if "TimeoutException" in kinds:
        remedy = "raise schema.registry.timeout.millis if it is slow"
        return StreamTimeout(f"{what}: no answer in time", remedy=remedy)
    if "TransportError" in kinds:
        remedy = "see whether it runs, and whether the URL is its own"
        return ConnectionFailed(f"{what}: {type(error).__name__}", remedy=remedy)
    if isinstance(error, OSError):
        remedy = "look at the files named by schema.registry.ssl.*"
        return ConfigError(f"{what}: {error.strerror or 'no TLS'}", remedy=remedy)
    msg = f"{what}: its answer is none of a Schema Registry"
    return ConnectionFailed(msg, remedy="look at schema.registry.rest.url")


def _refusal(error: Any, what: str) -> Exception:
    status = error.http_status_code
    if status == 404:
        return UnknownId(what)
    if status in (401, 403):
        remedy = "look at schema.registry.basic.auth.user.info"
        return NotAuthorized(f"{what}: HTTP {status}", remedy=remedy)
    if status in (408, 429) or status >= 500:
        return TransientError(f"{what}: HTTP {status}", remedy="try again later")
    code = f", code {error.error_code}" if error.error_code else ""
    remedy = "the schema is not compatible with what is registered, or is none"
    return PermanentError(f"{what}: HTTP {status}{code}", remedy=remedy)


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    timeout = options.get("schema.registry.timeout.millis", 10_000)
    found = {
        "url": options["schema.registry.rest.url"],
        "timeout": timeout / 1000,
        "max.retries": options.get("schema.registry.max.retries", 3),
        "retries.wait.ms": 100,
        "retries.max.wait.ms": 2000,
    }
    for key in (
        "basic.auth.user.info",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
    ):
        value = options.get(f"schema.registry.{key}")
        if value is not None:
            found[key] = value
    return found
