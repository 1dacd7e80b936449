"""Client of a Schema Registry, on confluent-kafka's client, and its options.

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
    choice,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FORGET: Final = 10.0
"""Seconds for which an unknown id is cached. It may be registered later."""
_MOST_UNKNOWN: Final = 1000
_JAVA_STORE: Final = (
    "Java key stores are not supported: use PEM files with "
    "schema.registry.ssl.ca.location, .certificate.location and .key.location"
)


def _is_url(text: str) -> str | None:
    for url in text.split(","):
        match = re.fullmatch(r"https?://([^/@\s]+@)?[^/@\s]+(/\S*)?", url.strip())
        if match is None:
            return "is not a list of URLs such as http://host:8081,http://other:8081"
        if match[1]:
            return (
                "contains a user name and a password: set "
                "schema.registry.basic.auth.user.info instead"
            )
    return None


def _is_user_info(text: str) -> str | None:
    # References to secrets are resolved before they are validated.
    return None if ":" in text else "is not of the form NAME:PASSWORD"


REGISTRY_OPTIONS: Final = (
    Option(
        "schema.registry.rest.url",
        "URLs of the Schema Registry. If set, messages have its frame.",
        validator=_is_url,
        aliases=("schema.registry.url",),
        example="http://localhost:8081",
    ),
    Option(
        "schema.registry.subject",
        "Subject whose latest schema the rows have; by default that of the strategy.",
    ),
    Option(
        "schema.registry.subject.strategy",
        "How subjects are named: TOPIC-value (TOPIC-key for keys), RECORD, or "
        "TOPIC-RECORD, with the full name of the record or message type.",
        choice("topic", "record", "topic-record"),
        default="topic",
    ),
    Option(
        "schema.registry.record",
        "Full name of the record, for reading the latest schema under the strategies "
        "record and topic-record; writers take that of the schema.",
    ),
    Option(
        "schema.registry.auto.register",
        "Register the schema of written rows, instead of only looking it up.",
        BOOLEAN,
        default="true",
        aliases=("auto.register.schemas",),
        applies=frozenset({"write"}),
    ),
    Option(
        "schema.registry.timeout.millis",
        "Timeout of a request to the registry.",
        PERIOD,
        default="10s",
        minimum=1,
    ),
    Option(
        "schema.registry.max.retries",
        "Maximum retries of a request.",
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
        "Credential source of Java's client.",
        aliases=("basic.auth.credentials.source",),
        no_effect="schema.registry.basic.auth.user.info is used if it is set",
    ),
    Option(
        "schema.registry.ssl.ca.location",
        "PEM file with the CA certificates that the registry is verified against.",
        PATH,
    ),
    Option(
        "schema.registry.ssl.certificate.location",
        "PEM file with the client certificate.",
        PATH,
    ),
    Option(
        "schema.registry.ssl.key.location",
        "PEM file with the key of the client certificate.",
        PATH,
    ),
    Option(
        "schema.registry.ssl.key.password", "Password of the client key.", secret=True
    ),
    *(
        Option(
            f"schema.registry.ssl.{key}",
            "Option of Java's client.",
            no_effect=_JAVA_STORE,
        )
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
            "Option of Java's client.",
            secret=True,
            no_effect=_JAVA_STORE,
        )
        for key in ("truststore", "keystore")
    ),
    Option(
        "schema.registry.schema.name",
        "Option of Pinot's simple Avro decoder.",
        no_effect="messages contain the id of their schema",
    ),
    Option(
        "cached.schema.map.capacity",
        "Option of Java's client.",
        no_effect="all schemas that were read are cached",
    ),
)
"""Options of decoders that support a registry."""


class UnknownId(LookupError):
    """The registry has no schema with this id or subject."""


class Registry:
    """Client of a Schema Registry. One per thread.

    Args:
        options: The parsed options of a decoder.
        topic: Source of the default subject.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            msg = "schema.registry.rest.url requires the Schema Registry client"
            remedy = "run: pip install 'streamfactory[registry]'"
            raise NotInstalled(msg, remedy=remedy) from error
        self.record: str | None = options.get("schema.registry.record")
        """Full name of the record, if it is known."""
        self._given = options.get("schema.registry.subject")
        self._strategy = options.get("schema.registry.subject.strategy", "topic")
        self._topic = topic
        self.url = options["schema.registry.rest.url"]
        self._unknown: OrderedDict[int, float] = OrderedDict()
        with self._translated("be set up"):
            self._client = SchemaRegistryClient(_settings(options))

    @property
    def subject(self) -> str:
        """The subject, given or by the strategy.

        Raises:
            ConfigError: The strategy needs the name of the record.
        """
        if self._given is not None:
            return str(self._given)
        if self._strategy == "topic":
            return f"{self._topic}-value"
        if not self.record:
            msg = f"the subject of strategy {self._strategy} needs the record's name"
            raise ConfigError(msg, remedy="set schema.registry.record")
        prefix = f"{self._topic}-" if self._strategy == "topic-record" else ""
        return prefix + self.record

    def by_id(self, number: int, kind: str, form: str | None = None) -> Any:
        """The schema with this id: text and references, as confluent-kafka has them.

        Args:
            number: The id.
            kind: ``AVRO`` or ``PROTOBUF``.
            form: ``serialized`` for a descriptor rather than text.

        Raises:
            UnknownId: The registry has no schema of this id and kind.
            ConnectionFailed: transient; other failures as their own leaves.
        """
        seen = self._unknown.get(number)
        if seen is not None and time.monotonic() - seen < _FORGET:
            raise UnknownId(number)
        try:
            with self._translated(f"return schema {number}"):
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
            ConnectionFailed: transient; other failures as their own leaves.
        """
        with self._translated(f"return the latest schema of subject {self.subject!r}"):
            found = self._client.get_latest_version(self.subject, fmt=form)
            _checked(found.schema)
            _require(found.schema_id, int)
        if (found.schema.schema_type or "AVRO") != kind or not found.schema.schema_str:
            raise UnknownId(self.subject)
        return found

    def version(self, subject: str, version: int, form: str | None = None) -> Any:
        """A schema that another one references. Raises as `latest`."""
        with self._translated(f"return version {version} of subject {subject!r}"):
            found = self._client.get_version(subject, version, fmt=form)
            return _checked(found.schema)

    def register(self, text: str, kind: str, *, new: bool) -> int:
        """The id of a schema under the subject.

        Args:
            text: The schema.
            kind: ``AVRO`` or ``PROTOBUF``.
            new: Register the schema if it is not registered.

        Raises:
            UnknownId: The schema is not registered, and ``new`` is False.
            PermanentError: The registry refuses it as incompatible.
            ConnectionFailed: transient; other failures as their own leaves.
        """
        from confluent_kafka.schema_registry import Schema

        schema = Schema(text, kind)
        with self._translated(
            f"register or find the schema of subject {self.subject!r}"
        ):
            if new:
                return int(self._client.register_schema(self.subject, schema))
            found = self._client.lookup_schema(self.subject, schema)
            return int(found.schema_id or 0)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Translate the client's errors without their texts: those may hold secrets."""
        what = f"the Schema Registry at {self.url} could not {doing}"
        try:
            yield
        except (UnknownId, StreamError):
            raise
        except Exception as error:  # noqa: BLE001 - its HTTP client has its own tree
            raise _translation(error, what) from None


def _checked(schema: Any) -> Any:
    """Check the types of a schema's members: the client accepts any JSON.

    Raises:
        TypeError: A member has another type.
    """
    _require(schema.schema_str, str, type(None))
    _require(schema.schema_type, str, type(None))
    for reference in schema.references or ():
        _require(reference.name, str)
        _require(reference.subject, str)
        _require(reference.version, int)
    return schema


def _require(value: object, *kinds: type) -> None:
    if type(value) not in kinds:
        msg = f"a member of the response is a {type(value).__name__}"
        raise TypeError(msg)


def _translation(error: Exception, what: str) -> Exception:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "SchemaRegistryError" in kinds:
        return _refusal(error, what)
    if "TimeoutException" in kinds:
        remedy = "increase schema.registry.timeout.millis if the registry is slow"
        return StreamTimeout(f"{what}: the request timed out", remedy=remedy)
    if "TransportError" in kinds:
        remedy = "check that the registry runs and that the URL is correct"
        return ConnectionFailed(f"{what}: {type(error).__name__}", remedy=remedy)
    if isinstance(error, OSError):
        remedy = "check the files of schema.registry.ssl.*"
        return ConfigError(f"{what}: {error.strerror or 'TLS failed'}", remedy=remedy)
    msg = f"{what}: the response is not that of a Schema Registry"
    return ConnectionFailed(msg, remedy="check schema.registry.rest.url")


def _refusal(error: Any, what: str) -> Exception:
    status = error.http_status_code
    if status == 404:
        return UnknownId(what)
    if status in (401, 403):
        remedy = "check schema.registry.basic.auth.user.info"
        return NotAuthorized(f"{what}: HTTP {status}", remedy=remedy)
    if status in (408, 429) or status >= 500:
        return TransientError(f"{what}: HTTP {status}", remedy="try again later")
    code = f", code {error.error_code}" if error.error_code else ""
    remedy = "use a valid schema that is compatible with the registered ones"
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
