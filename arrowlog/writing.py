"""The writing half of every backend that keeps its streams in a log."""

from __future__ import annotations

import logging
import uuid
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streamfactory.arrowlog.carried import CarriedRows, StoredAttempt
from streamfactory.arrowlog.decoding import (
    InvalidValue,
    list_of,
    mapping_of,
    members_of,
    optional,
    payload_of,
    text,
)
from streamfactory.arrowlog.messages import message_schema, stored_messages
from streamfactory.arrowlog.values import Epoch, Retention, Staged
from streamfactory.spi import (
    CommitMessage,
    IncarnationChanged,
    LastCommit,
    MisuseError,
    Outgoing,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamError,
    StreamWriter,
    Summary,
    TopicNotFound,
    WriteContext,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.log import WritableLog, WritableLogStore

_logger = logging.getLogger("streamfactory")


class LogWriter(StreamWriter):
    """Stages the rows of one attempt."""

    def __init__(self, log: WritableLog, context: WriteContext) -> None:
        self._messages = log.schema.equals(message_schema())
        self._log = log
        self._stage = log.stage(context.attempt)
        self._sealed: Staged | None = None

    def write(self, outgoing: Outgoing) -> None:
        rows = stored_messages(outgoing) if self._messages else outgoing.rows
        self._stage.append(outgoing.partition, rows)

    def commit(self) -> Any:
        self._sealed = self._stage.seal(carried=True)
        return {
            "attempt": self._sealed.attempt,
            "files": [dict(file) for file in self._sealed.files],
            "rows": self._sealed.rows,
        }

    def abort(self) -> None:
        self._stage.discard()
        if self._sealed is not None:
            self._log.discard(self._sealed)


class LogCommitter(StreamCommitter):
    """Appends whole epochs. The topic may come later: with the first writer."""

    def __init__(self, factory: LogProducerFactory, writer_id: str | None) -> None:
        self._factory = factory
        self._writer_id = writer_id
        self._instance = uuid.uuid4().hex
        self._claimed = False

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        return self._commit(epoch, messages, source_position, replace_all=False)

    def replace(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        return self._commit(epoch, messages, source_position, replace_all=True)

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        try:
            log = self._factory.log()
        except TopicNotFound:
            return  # and what was staged in it went with it
        for message in messages:
            log.discard(_staged(message))

    def last(self) -> LastCommit | None:
        if self._writer_id is None:
            return None
        try:
            log = self._factory.log()
        except TopicNotFound:
            return None
        self._refuse_another(log)
        if self._claimed:  # once: an instance that was fenced stays fenced
            return log.last(self._writer_id)
        held = log.claim(self._writer_id, self._instance)
        self._claimed = True
        return held

    def _refuse_another(self, log: WritableLog) -> None:
        """Refuse a topic that was deleted, or made again, while it was written to."""
        expected = self._factory.incarnation
        if expected is None:
            self._factory.incarnation = log.incarnation
        elif log.incarnation != expected:
            msg = f"topic {log.name!r} was deleted, or made again, while it was written"
            raise IncarnationChanged(
                msg,
                expected=expected,
                found=log.incarnation,
                stream=self._factory.config.name,
                remedy="look at its folder; to go on in the new one, open the sink "
                "again and name the epoch once with `epoch.adopt`",
            )

    def _commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None,
        *,
        replace_all: bool,
    ) -> LastCommit | None:
        log = self._factory.log()
        if self._writer_id is not None:
            self._refuse_another(log)
        if not self._claimed:
            self.last()
        committed = log.commit(
            Epoch(
                self._writer_id,
                epoch,
                [_staged(message) for message in messages],
                sum((m.summary for m in messages), Summary()),
                self._instance,
                source_position,
                replace_all,
            )
        )
        self._factory.tidy(log, self._writer_id)
        return committed.held


class LogProducerFactory(ProducerFactory):
    """Writes one topic, which its first writer creates.

    Options that it reads: ``messages``, ``partitions``, ``writer.memory.millis`` and
    ``retention.*``.
    """

    CARRIES: ClassVar = frozenset({"_key", "_headers", "_timestamp"})
    KEEPS_DICTIONARIES: ClassVar = True

    incarnation: str | None = None
    """Of the topic that a writer with an id met here first."""

    @abstractmethod
    def store(self) -> WritableLogStore:
        """The store of this configuration, in this process."""

    def create_writer(self, context: WriteContext) -> StreamWriter:
        return LogWriter(self.log(context.schema), context)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return LogCommitter(self, writer_id)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        try:
            return self.log().last(writer_id)
        except TopicNotFound:
            return None

    def fetch_partition_count(self, topic: str) -> int:
        try:
            return len(self.store().open(topic).bounds())
        except TopicNotFound:
            return int(self.config["partitions"])

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        try:
            schema = self.store().open(topic).schema
        except TopicNotFound:
            schema = message_schema() if self._takes_messages else None
        if schema is not None and schema.equals(message_schema()):
            return envelope_schema()
        return schema

    def log(self, schema: pa.Schema | None = None) -> WritableLog:
        """The topic; created where there is none and a schema is known."""
        topics, topic = self.store(), self.config.topic
        try:
            return topics.open(topic)
        except TopicNotFound:
            if schema is None:
                raise
        if self._takes_messages:
            schema = message_schema()
        try:
            return topics.create(topic, schema, self.config["partitions"])
        except MisuseError:  # another writer was first
            return topics.open(topic)

    def tidy(self, log: WritableLog, writer_id: str | None) -> None:
        """After a commit: forget idle writers, let go of what retention does not keep.

        The epoch is committed whatever becomes of this.
        """
        try:
            log.forget(self.config["writer.memory.millis"] / 1000, keep=writer_id)
            retention = retention_of(self.config)
            if retention != Retention():
                log.retain(retention, {})
        except StreamError as error:
            _logger.warning("%s: retention: %s", log.name, error)

    @property
    def _takes_messages(self) -> bool:
        """Of a topic that is created: who names a decoder means messages."""
        return self.config["messages"] or self.config.decoder is not None


def retention_of(config: Any) -> Retention:
    """What a configuration says of ``retention.*``."""
    age: int | None = config.get("retention.age.millis")
    return Retention(
        None if age is None else age / 1000,
        config.get("retention.rows"),
        config.get("retention.bytes"),
    )


def _staged(message: CommitMessage) -> Staged:
    """What a commit message carries; the log checks the files that it names.

    Raises:
        CorruptData: data_loss; the payload is not that of a writer of a log.
    """
    found = payload_of(message, _PAYLOAD)
    files, rows = tuple(found["files"]), found.get("rows")
    if isinstance(rows, StoredAttempt):  # of another process
        return Staged(found["attempt"], (*files, rows.file))
    return Staged(found["attempt"], files, rows)


def _as_it_is(value: Any) -> Any:
    return value


def _rows(value: Any) -> CarriedRows | StoredAttempt:
    if not isinstance(value, CarriedRows | StoredAttempt):
        msg = "are not rows that a stage has sealed"
        raise InvalidValue(msg)
    return value


_PAYLOAD: Final = members_of(
    {"attempt": text, "files": list_of(mapping_of(text, _as_it_is))},
    {"rows": optional(_rows)},
)
