"""Events of objects that were created, from a queue of Amazon SQS's protocol.

A message is removed after its objects were listed. So events may be repeated, late or
out of order: an object that is listed is not listed again.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, unquote_plus, urlsplit

from streamfactory.backends.file.foreign.manifest import is_name
from streamfactory.spi import (
    ConnectionFailed,
    NotAuthorized,
    NotInstalled,
    StorageFailed,
    StreamTimeout,
    TopicNotFound,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.spi import StreamConfig, StreamError

log = logging.getLogger("streamfactory")

_KEYS: Final = {
    "storage.access.key": "aws_access_key_id",
    "storage.secret.key": "aws_secret_access_key",
    "storage.token": "aws_session_token",
}
_AT_ONCE: Final = 10
"""Messages of one request, at most."""
_RETRIES: Final = 3
_CONNECT_SECONDS: Final = 5.0
_CREATED: Final = ("ObjectCreated:", "s3:ObjectCreated:")
_NOT_ALLOWED: Final = (
    "AccessDenied",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    "ExpiredToken",
    "MissingAuthenticationToken",
)
_NO_QUEUE: Final = ("QueueDoesNotExist", "NonExistentQueue")
_PASSING: Final = ("Throttl", "RequestLimitExceeded", "ServiceUnavailable")


class Message(NamedTuple):
    """One message of the queue."""

    receipt: str
    """With which it is removed."""
    names: Sequence[str] | None
    """Objects directly below the prefix that were created; None if it is no event."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a queue is reached."""

    url: str
    region: str | None
    keys: Mapping[str, str] = field(repr=False)
    """Credentials, by the client's names; empty: those of the machine."""
    anonymous: bool
    certificate: str | None
    timeout: float
    """Seconds of one request."""


class Arrivals:
    """The queue of one prefix. Connects on first use. One thread at a time.

    Args:
        access: How it is reached.
        bucket: Bucket of the prefix.
        prefix: Its key, with a slash at the end unless it is empty.
    """

    def __init__(self, access: Access, bucket: str, prefix: str) -> None:
        self._access = access
        self._bucket = bucket
        self._prefix = prefix
        self._client: Any = None
        self._warned = False

    def receive(self) -> list[Message]:
        """Some messages; none if the queue returns none now.

        Raises:
            NotInstalled: plugin; the client is missing.
            NotAuthorized, TopicNotFound, StorageFailed: permanent.
            TransientError: transient; no answer, or the queue throttles.
        """
        with self._asking() as client:
            answer = client.receive_message(
                QueueUrl=self._access.url,
                MaxNumberOfMessages=_AT_ONCE,
                WaitTimeSeconds=0,
            )
        return [
            Message(message["ReceiptHandle"], self._names(message["Body"]))
            for message in answer.get("Messages", ())
        ]

    def remove(self, messages: Sequence[Message]) -> None:
        """Remove messages whose objects are listed. One that stays comes again.

        Raises:
            As `receive`.
        """
        entries = [
            {"Id": str(number), "ReceiptHandle": message.receipt}
            for number, message in enumerate(messages)
        ]
        if not entries:
            return
        with self._asking() as client:
            client.delete_message_batch(QueueUrl=self._access.url, Entries=entries)

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _names(self, body: str) -> list[str] | None:
        """Names below the prefix; other objects are left out. None: it is no event."""
        objects = created_objects(body)
        if objects is None:
            self._warn("has a message that is no event of S3: it stays there")
            return None
        found = []
        for bucket, key in objects:
            name = key.removeprefix(self._prefix)
            if bucket != self._bucket or not key.startswith(self._prefix):
                where = f"{bucket[:80]}/{key[:200]}"
                self._warn(f"has an event of {where!r}: it is removed")
            elif is_name(name):
                found.append(name)
        return found

    def _warn(self, what: str) -> None:
        """Warn once: a queue that has what is not this stream's has much of it."""
        if not self._warned:
            self._warned = True
            log.warning(
                "the queue %s of s3://%s/%s %s, and later ones without a warning",
                self._access.url,
                self._bucket,
                self._prefix,
                what,
            )

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        try:
            import botocore.exceptions
        except ImportError as error:
            msg = "queue.url requires the package 'boto3', which is not installed"
            remedy = "run: pip install 'streamfactory[sqs]'"
            raise NotInstalled(msg, remedy=remedy) from error
        try:
            if self._client is None:
                self._client = _connect(self._access)
            yield self._client
        except (
            botocore.exceptions.BotoCoreError,
            botocore.exceptions.ClientError,
        ) as error:
            raise _translated(self._access.url, error) from error


def arrivals_of(config: StreamConfig) -> Arrivals | None:
    """The queue of a configuration; None if it has none."""
    url = config.get("queue.url")
    if url is None:
        return None
    access = Access(
        url=url,
        region=config.get("storage.region"),
        keys={name: config[key] for key, name in _KEYS.items() if key in config},
        anonymous=config["storage.anonymous"],
        certificate=config.get("storage.certificate"),
        timeout=config["storage.timeout.millis"] / 1000,
    )
    parts = urlsplit(config["path"])
    prefix = unquote(parts.path).strip("/")  # as the client of the store reads it
    return Arrivals(access, parts.netloc, f"{prefix}/" if prefix else "")


def _connect(access: Access) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    parts = urlsplit(access.url)
    host = (parts.hostname or "").split(".")
    region = access.region
    if region is None and len(host) > 2 and host[0] == "sqs":
        region = host[1]
    config = Config(
        connect_timeout=min(access.timeout, _CONNECT_SECONDS),
        read_timeout=access.timeout,
        retries={"max_attempts": _RETRIES, "mode": "standard"},
        signature_version=UNSIGNED if access.anonymous else None,
    )
    return boto3.session.Session().client(
        "sqs",
        endpoint_url=f"{parts.scheme}://{parts.netloc}",
        region_name=region,
        verify=access.certificate,
        config=config,
        **access.keys,
    )


def _translated(url: str, error: Exception) -> StreamError:
    """Translate an error of the client, by its code or its class."""
    response: Mapping[str, Any] = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    kind = type(error).__name__
    msg = f"the queue {url!r} cannot be read: {' '.join(str(error).split())[:500]}"
    if any(word in code for word in _NOT_ALLOWED) or "Credentials" in kind:
        remedy = "check storage.access.key, storage.secret.key and storage.token, or "
        remedy += "the environment of this process, and the policy of the queue"
        return NotAuthorized(msg, remedy=remedy)
    if any(word in code for word in _NO_QUEUE):
        return TopicNotFound(msg, remedy="create the queue, or check queue.url")
    if status >= 500 or any(word in code for word in _PASSING):
        return TransientError(msg)
    if "Timeout" in kind:
        return StreamTimeout(msg)
    if "Connection" in kind or "HTTPClient" in kind:
        return ConnectionFailed(msg)
    return StorageFailed(msg, remedy="check queue.url and storage.region")


def created_objects(body: str) -> list[tuple[str, str]] | None:
    """The bucket and key of each created object in a message; None if it is no event.

    Accepts notifications of S3, also those that a topic of SNS or EventBridge forwards.
    """
    event = _object(body)
    if event is not None and isinstance(event.get("Message"), str):
        event = _object(event["Message"])  # SNS
    if event is None:
        return None
    try:
        if event.get("Event") == "s3:TestEvent":
            return []
        if event.get("source") == "aws.s3":  # EventBridge, which encodes no keys
            detail = event["detail"]
            if event["detail-type"] != "Object Created":
                return []
            return [(str(detail["bucket"]["name"]), str(detail["object"]["key"]))]
        return [
            (
                str(record["s3"]["bucket"]["name"]),
                unquote_plus(str(record["s3"]["object"]["key"])),
            )
            for record in event["Records"]
            if str(record["eventName"]).startswith(_CREATED)
        ]
    except (KeyError, TypeError, AttributeError):
        return None


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
