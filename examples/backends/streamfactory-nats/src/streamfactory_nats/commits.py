"""Epochs in JetStream: each is placed once, and becomes visible as a whole.

JetStream has no transactions. It has conditional publication: a message is accepted
only where the last message of its stream is the expected one. That is enough:

1. Tasks stage rows in ``<topic>-staged``.
2. The committer publishes the record ``pending`` to ``<topic>-commits``: the writer,
   the epoch, which staged messages belong to it, and the last sequence number of each
   partition. **This is the decision.** It is accepted only if nothing was published to
   ``<topic>-commits`` since the committer read the state, so of two committers one
   succeeds.
3. The rows are placed in the partitions. Each carries the name of this run and its
   index in it, and is accepted only behind the row before it: a row is placed once,
   however many processes try.
4. The writer's record and an empty ``pending`` are published, and the staged rows
   deleted.

Readers end before the first row of a pending run, so an epoch is visible from step 4
on. Whoever looks for the state of a writer and finds a pending run finishes it first: a
process that is killed between 2 and 4 leaves no part of an epoch.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from streamfactory import spi

from streamfactory_nats.connection import (
    MESSAGE_NOT_FOUND,
    STREAM_NOT_FOUND,
    WRONG_LAST,
    ApiError,
    request,
)
from streamfactory_nats.layout import (
    StreamInfo,
    commits_stream,
    commits_subject,
    fetch_info,
    staged_stream,
    staged_subject,
    stream_name,
    subject_name,
)
from streamfactory_nats.messages import RUN, Message, parse_headers, unpack

_WINDOW: Final = 1024
"""Publications that wait for their answers at a time."""


@dataclass(frozen=True)
class Staged:
    """A staged message: rows of one partition."""

    sequence: int
    partition: int
    rows: int


@dataclass(frozen=True)
class Record:
    """What is remembered of a writer."""

    instance: str
    """The committer that claimed it."""
    epoch: int | None = None
    """The last one; None where it has claimed only."""
    position: str | None = None
    rows: int = 0
    sums: dict[str, int] | None = None
    run: str = ""

    def last(self) -> spi.LastCommit | None:
        """As the contract has it."""
        if self.epoch is None:
            return None
        position = None
        if self.position is not None:
            position = spi.Position.from_json(self.position)
        summary = spi.Summary(self.rows, self.sums or {})
        return spi.LastCommit(self.epoch, position, summary)


@dataclass(frozen=True)
class Pending:
    """An epoch that is decided, and perhaps not placed yet."""

    writer: str | None
    record: Record
    staged: tuple[Staged, ...]
    attempts: tuple[str, ...]
    """Whose staged rows are deleted afterwards."""
    bases: dict[int, int]
    """By partition, the sequence number behind which its rows begin."""

    @property
    def run(self) -> str:
        """Names this placement of this epoch."""
        return self.record.run


@dataclass(frozen=True)
class State:
    """What ``<topic>-commits`` holds of one writer."""

    sequence: int
    """Its last sequence number, read before the rest."""
    pending: Pending | None
    record: Record | None


class StateMoved(Exception):
    """Another process has published to the state since it was read."""


class Commits:
    """The state of a topic's writers, on one connection.

    Args:
        client: A connected client.
        topic: Name of the topic.
        timeout: Seconds for each request.
    """

    def __init__(self, client: Client, topic: str, timeout: float) -> None:
        self._client = client
        self._topic = topic
        self._timeout = timeout

    async def load(self, writer: str | None) -> State:
        """Read the state.

        Raises:
            spi.TopicNotFound: permanent; the topic has no stream of commits.
        """
        stream = commits_stream(self._topic)
        try:
            info = await self._request(f"STREAM.INFO.{stream}")
        except ApiError as error:
            if error.code != STREAM_NOT_FOUND:
                raise
            msg = f"JetStream has no stream {stream!r}, which writing needs"
            remedy = "create the topic with `streamfactory topics create`"
            raise spi.TopicNotFound(msg, remedy=remedy) from error
        pending = await self.load_pending()
        record = None
        if writer is not None:
            found = await self._get(_record_name(writer))
            record = None if found is None else Record(**found)
        return State(int(info["state"]["last_seq"]), pending, record)

    async def load_pending(self) -> Pending | None:
        """Read the run that is being placed; None where none is."""
        found = await self._get("pending")
        return None if not found else _parse_pending(found)

    async def publish_record(self, state: State, writer: str, record: Record) -> None:
        """Replace what is remembered of a writer.

        Raises:
            StateMoved: The state is not ``state`` any more.
        """
        await self._put(_record_name(writer), asdict(record), state.sequence)

    async def decide(self, state: State, pending: Pending) -> None:
        """Publish the decision; errors as of `publish_record`."""
        await self._put("pending", _as_json(pending), state.sequence)

    async def visible_ends(self, infos: Sequence[StreamInfo]) -> list[int]:
        """Of each partition, the first sequence number that readers do not see.

        ``infos`` were read before this call. A run that had begun by then is found
        pending, or is complete.
        """
        managed = any(info.managed for info in infos)
        pending = await self.load_pending() if managed else None
        return [await self._visible_end(info, pending) for info in infos]

    async def _visible_end(self, info: StreamInfo, pending: Pending | None) -> int:
        base = None if pending is None else pending.bases.get(info.partition.id)
        if pending is None or base is None or base >= info.last or not info.managed:
            return info.last + 1
        if await self._index(info.stream, base + 1, pending.run) is None:
            return info.last + 1  # messages of others, and no row of the run yet
        return base + 1

    async def finish(self, state: State) -> None:
        """Place the pending run of ``state`` and clear it.

        Raises:
            StateMoved: Another process did so, or the state changed: read it again.
            spi.CorruptData: data_loss; staged rows of it are not there any more.
        """
        pending = state.pending
        assert pending is not None
        for partition in sorted(pending.bases):
            state = await self._place(state, partition)
        if pending.writer is not None:
            record = pending.record
            await self.publish_record(state, pending.writer, record)
            state = replace(state, sequence=state.sequence + 1)
        await self._put("pending", None, state.sequence)
        await self.discard(pending.attempts)

    async def discard(self, attempts: Sequence[str]) -> None:
        """Delete staged rows; those that are not there any more are fine."""
        for attempt in attempts:
            body = {"filter": staged_subject(self._topic, attempt)}
            try:
                await self._request(f"STREAM.PURGE.{staged_stream(self._topic)}", body)
            except ApiError as error:
                if error.code != STREAM_NOT_FOUND:
                    raise

    async def _place(self, state: State, partition: int) -> State:
        """Place the rows of one partition, behind those that are placed already."""
        assert state.pending is not None
        run = state.pending.run
        stream = stream_name(self._topic, partition)
        where = spi.Partition(self._topic, partition)
        rows = await self._rows(state, partition)
        while True:
            info = await fetch_info(self._client, stream, where, self._timeout)
            base = state.pending.bases[partition]
            done = await self._placed(info, base, run)
            if done == len(rows):
                return state
            if not done and info.last != base:
                # Readers find the first row at base + 1, so it goes there or nowhere.
                bases = {**state.pending.bases, partition: info.last}
                moved = replace(state.pending, bases=bases)
                await self.decide(state, moved)
                state = State(state.sequence + 1, moved, state.record)
            if not await self._append(partition, run, rows, done, info.last):
                await self._check_pending(run)

    async def _rows(self, state: State, partition: int) -> list[Message]:
        assert state.pending is not None
        wanted = [s for s in state.pending.staged if s.partition == partition]
        found: list[Message] = []
        for start in range(0, len(wanted), 8):
            some = wanted[start : start + 8]
            chunks = await asyncio.gather(*(self._chunk(s) for s in some))
            if None in chunks:
                await self._check_pending(state.pending.run)
                what = f"staged rows of epoch {state.pending.record.epoch}"
                msg = f"{what} are not in {staged_stream(self._topic)!r} any more"
                raise spi.CorruptData(msg)
            found += [m for chunk in chunks if chunk is not None for m in chunk]
        return found

    async def _chunk(self, staged: Staged) -> list[Message] | None:
        message = await self._message(staged_stream(self._topic), staged.sequence)
        if message is None:
            return None
        return unpack(base64.b64decode(message["data"]))

    async def _placed(self, info: StreamInfo, base: int, run: str) -> int:
        """How many rows of a run a partition holds, as of ``info``."""
        if info.last <= base:
            return 0
        begin = max(base + 1, info.first)
        if begin == base + 1 and await self._index(info.stream, begin, run) is None:
            return 0
        for sequence in range(info.last, begin - 1, -1):
            index = await self._index(info.stream, sequence, run)
            if index is not None:
                return index + 1
        return 0

    async def _append(
        self, partition: int, run: str, rows: list[Message], done: int, last: int
    ) -> bool:
        """Publish rows behind ``last``; False where another message came between."""
        subject = subject_name(self._topic, partition)

        publisher = Publisher(self._client, self._timeout)
        await publisher.open()
        try:
            for start in range(done, len(rows), _WINDOW):
                for index in range(start, min(start + _WINDOW, len(rows))):
                    headers = {
                        **rows[index].headers(),
                        RUN: f"{run}/{index}",
                        "Nats-Msg-Id": f"{run}/{index}",
                        "Nats-Expected-Last-Sequence": str(last + index - done),
                    }
                    if index > done:
                        # Another program's message may have the number of a row before
                        # this one: the number alone would let this row in without it.
                        headers["Nats-Expected-Last-Msg-Id"] = f"{run}/{index - 1}"
                    await publisher.publish(subject, rows[index].payload, headers)
                if not await publisher.are_accepted():
                    return False
        finally:
            await publisher.close()
        return True

    async def _check_pending(self, run: str) -> None:
        pending = await self.load_pending()
        if pending is None or pending.run != run:
            raise StateMoved

    async def _index(self, stream: str, sequence: int, run: str) -> int | None:
        """Which row of a run a message is; None where it is none of it."""
        message = await self._message(stream, sequence)
        if message is None or "hdrs" not in message:
            return None
        headers = parse_headers(base64.b64decode(message["hdrs"]))
        name, _, index = headers.get(RUN, "").partition("/")
        return int(index) if name == run else None

    async def _message(self, stream: str, sequence: int) -> dict[str, Any] | None:
        return await self._get_message(stream, {"seq": sequence})

    async def _get(self, name: str) -> Any:
        body = {"last_by_subj": commits_subject(self._topic, name)}
        message = await self._get_message(commits_stream(self._topic), body)
        if message is None:
            return None
        return json.loads(base64.b64decode(message["data"]))

    async def _get_message(self, stream: str, body: object) -> dict[str, Any] | None:
        try:
            answer = await self._request(f"STREAM.MSG.GET.{stream}", body)
        except ApiError as error:
            if error.code in (MESSAGE_NOT_FOUND, STREAM_NOT_FOUND):
                return None
            raise
        message: dict[str, Any] = answer["message"]
        message.setdefault("data", "")
        return message

    async def _put(self, name: str, value: object, sequence: int) -> None:
        headers = {"Nats-Expected-Last-Sequence": str(sequence)}
        payload = json.dumps(value).encode()
        if len(payload) + 1024 > self._client.max_payload:
            msg = "the record of an epoch exceeds the server's max_payload"
            raise spi.MessageTooLarge(msg, remedy="write smaller epochs")
        subject = commits_subject(self._topic, name)
        if not await self._publish(subject, payload, headers):
            raise StateMoved

    async def _publish(
        self, subject: str, payload: bytes, headers: dict[str, str]
    ) -> bool:
        """Publish; False where the last message was not the expected one."""
        reply: Msg = await self._client.request(
            subject, payload, timeout=self._timeout, headers=headers
        )
        return _is_accepted(reply)

    async def _request(self, verb: str, body: object = None) -> dict[str, Any]:
        return await request(self._client, verb, body, timeout=self._timeout)


class Publisher:
    """Publishes many messages, and waits for the answers to all of them at once."""

    def __init__(self, client: Client, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._waiting = 0
        self._answers: list[Msg] = []
        self._complete = asyncio.Event()

    async def open(self) -> None:
        """Listen for answers."""
        self._subscription = await self._client.subscribe(self._inbox, cb=self._accept)

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str]
    ) -> None:
        """Send a message."""
        self._waiting += 1
        await self._client.publish(subject, payload, reply=self._inbox, headers=headers)

    async def are_accepted(self) -> bool:
        """Wait for all answers; False where one of them is a wrong last message.

        Raises:
            TimeoutError: Some have not come in time.
            ApiError: JetStream refused a message for another reason.
        """
        while len(self._answers) < self._waiting:
            self._complete.clear()
            await asyncio.wait_for(self._complete.wait(), self._timeout)
        answers, self._answers, self._waiting = self._answers, [], 0
        return all(_is_accepted(answer) for answer in answers)

    async def close(self) -> None:
        """Stop listening."""
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._subscription.unsubscribe()

    async def _accept(self, answer: Msg) -> None:
        self._answers.append(answer)
        if len(self._answers) >= self._waiting:
            self._complete.set()


def _is_accepted(reply: Msg) -> bool:
    """Whether JetStream stored a message; False where the last one was not expected."""
    if not reply.data:
        raise nats.errors.NoRespondersError
    answer = json.loads(reply.data)
    if "error" not in answer:
        return True
    error = ApiError("publish", answer["error"])
    if error.code in WRONG_LAST:
        return False
    raise error


def new_run() -> str:
    """A name for a run."""
    return uuid.uuid4().hex


def _record_name(writer: str) -> str:
    # A subject's tokens take no dots and spaces; a writer id may have any character.
    return f"writer.{hashlib.sha256(writer.encode()).hexdigest()[:32]}"


def _as_json(pending: Pending) -> dict[str, Any]:
    return {
        "writer": pending.writer,
        "record": asdict(pending.record),
        "staged": [[s.sequence, s.partition, s.rows] for s in pending.staged],
        "attempts": list(pending.attempts),
        "bases": {str(p): base for p, base in pending.bases.items()},
    }


def _parse_pending(found: dict[str, Any]) -> Pending:
    return Pending(
        found["writer"],
        Record(**found["record"]),
        tuple(Staged(*entry) for entry in found["staged"]),
        tuple(found["attempts"]),
        {int(p): base for p, base in found["bases"].items()},
    )
