"""Writing: a request for each batch, with a key by which an endpoint knows it again."""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from streamfactory import spi

from streamfactory_http.client import LATER, Circuit, make_client, retry_after
from streamfactory_http.formats import CONTENT_TYPES, SCHEMA, body

_FIRST: Final = 0.2
_LONGEST: Final = 30.0
"""Seconds between two attempts."""
_SHOWN: Final = 300
"""Characters of a refusal that an error shows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an endpoint answered."""

    status: int
    headers: Mapping[str, str]
    text: str
    """The beginning of its body."""


class HttpWriter(spi.StreamWriter):
    """Posts the rows of one attempt.

    Requests are cut by the number and the sizes of messages alone: an attempt that
    repeats the same rows sends the same requests, under the same keys.
    """

    def __init__(
        self,
        config: spi.StreamConfig,
        client: httpx.Client,
        circuit: Circuit,
        context: spi.WriteContext,
    ) -> None:
        self._config = config
        self._client, self._circuit = client, circuit
        writer = context.writer_id
        self._name = f"{writer or uuid.uuid4().hex}-{context.epoch}-{context.task}"
        self._most: int = config["batch.messages"]
        self._most_bytes: int = config["request.bytes"]
        self._waiting: list[pa.RecordBatch] = []
        self._count = self._bytes = 0
        self._parts = 0
        self._woken = threading.Event()

    def write(self, outgoing: spi.Outgoing) -> None:
        values = outgoing.rows.column("value").cast(pa.binary())
        keys = pa.nulls(len(values), pa.binary())
        if outgoing.key is not None:
            keys = outgoing.key.cast(pa.binary())
        messages = pa.RecordBatch.from_arrays([keys, values], schema=SCHEMA)
        lengths = [pc.fill_null(pc.binary_length(column), 0) for column in messages]
        ends = np.cumsum(np.add(*lengths, dtype=np.int64))
        start = 0
        while start < len(messages):
            stop = self._fitting(ends, start)
            self._waiting.append(messages.slice(start, stop - start))
            self._count += stop - start
            self._bytes += int(ends[stop - 1] - (ends[start - 1] if start else 0))
            start = stop

    def wake(self) -> None:
        self._woken.set()

    def commit(self) -> Any:
        if self._waiting:
            self._post()
        return {"parts": self._parts}

    def _fitting(self, ends: np.ndarray[Any, np.dtype[np.int64]], start: int) -> int:
        """The end of the messages that the next request takes, of one at least.

        Args:
            ends: The sums of the sizes of messages up to each of them.
            start: The first message.
        """
        while True:
            before = int(ends[start - 1]) if start else 0
            room = before + self._most_bytes - self._bytes
            stop = min(
                start + self._most - self._count,
                int(np.searchsorted(ends, room, side="right")),
            )
            if stop > start:
                return stop
            if not self._count:
                return start + 1  # longer than a request may be: alone
            self._post()

    def _post(self) -> None:
        messages = pa.concat_batches(self._waiting)
        self._waiting, self._count, self._bytes = [], 0, 0
        name = f"{self._name}-{self._parts}"
        form = self._config["format"]
        try:
            content = body(form, messages, name, self._config["event.type"])
        except ValueError as error:
            raise spi.SchemaMismatch(str(error)) from error
        headers = {
            "content-type": CONTENT_TYPES[form],
            # A quoted string, as the draft of the IETF has it.
            "idempotency-key": json.dumps(name),
        }
        answer = self._send(content, headers)
        if not 200 <= answer.status < 300:
            self._reject(name, content, answer)
        self._parts += 1

    def _send(self, content: bytes, headers: dict[str, str]) -> Answer:
        """Repeat a request until an answer that does not change.

        Raises:
            spi.StreamError: ConnectionFailed; none came in time.
        """
        seconds = self._config["retry.timeout.millis"] / 1000
        deadline, attempt = time.monotonic() + seconds, 0
        while True:
            pause, cause = self._circuit.wait(), "the endpoint failed repeatedly"
            if not pause:
                try:
                    answer = self._request(content, headers)
                except httpx.TransportError as error:
                    cause, asked = f"{type(error).__name__}: {error}", None
                else:
                    if answer.status not in LATER:
                        self._circuit.succeeded()
                        return answer
                    cause = f"the endpoint answers {answer.status}"
                    asked = retry_after(answer.headers)
                self._circuit.failed()
                longest = min(_LONGEST, _FIRST * 2**attempt)
                pause = random.uniform(0, longest) if asked is None else asked
                attempt = min(attempt + 1, 20)
            if time.monotonic() + pause > deadline:
                remedy = "raise retry.timeout.millis, or repeat the epoch later"
                raise spi.ConnectionFailed(cause, remedy=remedy)
            if self._woken.wait(pause):
                msg = "closed while a request was repeated"
                raise spi.ClosedError(msg)

    def _request(self, content: bytes, headers: dict[str, str]) -> Answer:
        """Send a request once; reads the beginning of the answer alone.

        Raises:
            httpx.TransportError: No answer came.
        """
        end = time.monotonic() + self._config["connection.timeout.millis"] / 1000
        url, text = self._config["url"], b""
        with self._client.stream("POST", url, content=content, headers=headers) as got:
            # To its end where it is short: the connection can be used again.
            for chunk in got.iter_raw(_SHOWN):
                text += chunk
                if len(text) > 4 * _SHOWN or time.monotonic() > end:
                    break
            return Answer(got.status_code, got.headers, text.decode(errors="replace"))

    def _reject(self, name: str, content: bytes, answer: Answer) -> None:
        """Keep a batch that the endpoint refuses, or fail.

        Raises:
            spi.StreamError: NotAuthorized or PermanentError; the batch is not kept.
        """
        status, text = answer.status, answer.text[:_SHOWN]
        if status in (401, 403, 407):
            msg = f"the endpoint refuses the credentials with {status}: {text!r}"
            raise spi.NotAuthorized(msg, remedy="set token")
        folder = self._config.get("rejected.path")
        if folder is None or status < 400 or status >= 500:
            msg = f"the endpoint refuses the batch {name} with {status}: {text!r}"
            remedy = "set rejected.path to keep such batches, or correct the url"
            raise spi.PermanentError(msg, remedy=remedy)
        facts = {"batch": name, "status": status, "answer": text}
        facts["content-type"] = CONTENT_TYPES[self._config["format"]]
        # A repeated epoch writes the same files.
        stem = hashlib.sha256(name.encode()).hexdigest()[:32]
        write_file(Path(folder), f"{stem}.body", content)
        write_file(Path(folder), f"{stem}.json", json.dumps(facts).encode())


def write_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file durably, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}.{uuid.uuid4().hex}"
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / name)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class HttpCommitter(spi.StreamCommitter):
    """Has nothing to decide: an endpoint has each batch once it has answered."""

    def commit(
        self,
        epoch: int,
        messages: Sequence[spi.CommitMessage],
        source_position: spi.Position | None = None,
    ) -> spi.LastCommit | None:
        return None


class HttpProducerFactory(spi.ProducerFactory):
    """Makes the two above; holds the client that they share."""

    CLAIMS: ClassVar = spi.Claims(durable=True)
    CARRIES: ClassVar = frozenset({"_key"})

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        if config.get("format") == "ndjson":
            # Lines have no place for keys: a class variable that this narrows.
            self.CARRIES = frozenset()  # type: ignore[misc]
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._circuit: Circuit | None = None

    def create_writer(self, context: spi.WriteContext) -> HttpWriter:
        with self._lock:
            if self._client is None or self._circuit is None:
                seconds = self.config["circuit.open.millis"] / 1000
                self._circuit = Circuit(self.config["circuit.failures"], seconds)
                self._client = make_client(self.config)
            return HttpWriter(self.config, self._client, self._circuit, context)

    def create_committer(self, writer_id: str | None) -> HttpCommitter:
        return HttpCommitter()

    def fetch_partition_count(self, topic: str) -> int:
        return 1

    def fetch_schema(self, topic: str) -> pa.Schema:
        return spi.envelope_schema()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
