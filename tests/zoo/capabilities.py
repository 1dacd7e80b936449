"""Backends whose abilities are wrong, each in one way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from tests.zoo.registry import caught_by, register

from streamfactory.arrowlog import LogConsumer, LogMetadata
from streamfactory.arrowlog.values import Epoch
from streamfactory.backends.memory import streamfactory_backend
from streamfactory.backends.memory.writing import MemoryTopicAdmin
from streamfactory.conformance.specimens import forgetful, redelivering
from streamfactory.conformance.specimens.envelope_writing import (
    EnvelopesProducerFactory,
    EnvelopesWriter,
)
from streamfactory.conformance.specimens.envelopes import (
    EnvelopesConsumer,
    EnvelopesConsumerFactory,
    EnvelopesMetadata,
)
from streamfactory.conformance.specimens.forgetful import (
    ForgetfulConsumer,
    ForgetfulConsumerFactory,
    ForgetfulMetadata,
)
from streamfactory.spi import (
    BatchState,
    ConnectionFailed,
    ErrorTable,
    Fetched,
    FetchLimits,
    Loss,
    NotAuthorized,
    OffsetOutOfRange,
    PermanentError,
    Summary,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from streamfactory.spi import (
        Outgoing,
        Partition,
        PartitionInfo,
        Position,
        StreamConfig,
        WriteContext,
    )

# --- what is held ---------------------------------------------------------------


@caught_by("held_from_claims_no_more_than_is_held")
class OverstatesHeldFrom(LogConsumer):
    """`held_from` is 0, although retention has deleted messages."""

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        held = self._log.bounds()[self._partition.id].earliest
        fetched = super().fetch_messages(max(start, held), end, limits)
        if fetched.rows is None or held <= start:
            return replace(fetched, held_from=0)
        offsets = pa.arange(held, held + fetched.rows.num_rows)
        return replace(fetched, offsets=offsets, held_from=0)


@caught_by("retention_under_an_open_reader_is_reported")
class RenumbersAfterRetention(LogConsumer):
    """After its first read it numbers the remaining messages as if none was deleted."""

    _shift: int | None = None

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        if self._shift is None or limits.max_rows == 1:
            fetched = super().fetch_messages(start, end, limits)
            self._shift = 0
            return fetched
        held = self._log.bounds()[self._partition.id].earliest
        try:
            fetched = super().fetch_messages(start, end, limits)
        except OffsetOutOfRange:
            fetched = super().fetch_messages(held, None, limits)
            count = 0 if fetched.rows is None else fetched.rows.num_rows
            return replace(
                fetched,
                next_offset=start + count,
                offsets=pa.arange(start, start + count),
                held_from=None,
                latest=None,
            )
        return fetched


# --- envelopes ------------------------------------------------------------------


class Enveloping(EnvelopesConsumerFactory):
    """Makes the consumer and the provider of a test."""

    CONSUMER: type[EnvelopesConsumer] = EnvelopesConsumer
    METADATA: type[EnvelopesMetadata] = EnvelopesMetadata

    def create_partition_level_consumer(
        self, client_id: str, partition: Partition, fields_to_read: Any = None
    ) -> EnvelopesConsumer:
        made = super().create_partition_level_consumer(client_id, partition)
        assert isinstance(made, EnvelopesConsumer)
        return self.CONSUMER(made._path, partition)

    def create_metadata_provider(self, client_id: str) -> EnvelopesMetadata:
        return self.METADATA(self._folder())

    def _folder(self) -> Path:
        made = super().create_metadata_provider("")
        assert isinstance(made, EnvelopesMetadata)
        return made._folder


class _Column(EnvelopesConsumer):
    """Changes a column of what is answered."""

    NAME = ""

    def changed(self, values: list[Any]) -> list[Any]:
        return values

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        rows = fetched.rows
        if rows is None:
            return fetched
        at = rows.schema.get_field_index(self.NAME)
        values = self.changed(rows.column(at).to_pylist())
        column = pa.array(values, rows.schema.field(at).type)
        columns = [*rows.columns[:at], column, *rows.columns[at + 1 :]]
        made = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        return replace(fetched, rows=made)


class _Partition(_Column):
    NAME = "partition"

    def changed(self, values: list[Any]) -> list[Any]:
        return [0] * len(values)


class _Key(_Column):
    NAME = "key"

    def changed(self, values: list[Any]) -> list[Any]:
        return [value or None for value in values]


class _NoHeaders(_Column):
    NAME = "headers"

    def changed(self, values: list[Any]) -> list[Any]:
        return [None] * len(values)


class _Timestamp(_Column):
    NAME = "timestamp"

    def changed(self, values: list[Any]) -> list[Any]:
        micros = pa.array(values, pa.timestamp("us", "UTC")).cast(pa.int64())
        return [us and us // 1000 for us in micros.to_pylist()]


class _Buffer(_Column):
    NAME = "value"

    def changed(self, values: list[Any]) -> list[Any]:
        return [value and value[:65_536] for value in values]


class _Losing(EnvelopesConsumer):
    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None:
            return fetched
        first = fetched.rows.column("offset")[0].as_py()
        if first - start < 5:
            return fetched
        loss = Loss(self._partition, start, first, "a gap")
        return replace(fetched, losses=(loss,))


class _Stuck(EnvelopesConsumer):
    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.rows is None:
            return replace(fetched, next_offset=start, state=None)
        last = fetched.rows.column("offset")[-1].as_py()
        return replace(fetched, next_offset=last + 1)


class _ByTime(EnvelopesMetadata):
    def fetch_offsets_at(self, timestamp_ms: int, partitions: Any) -> Any:
        return super().fetch_offsets_at(timestamp_ms + 1, partitions)


@caught_by("envelopes_say_where_they_come_from")
class SetsPartitionToZero(Enveloping):
    """Column `partition` is 0 for every message."""

    CONSUMER = _Partition


@caught_by("keys_and_headers_arrive_as_they_were_sent")
class TurnsEmptyKeysIntoNull(Enveloping):
    """An empty key is returned as null."""

    CONSUMER = _Key


@caught_by("keys_and_headers_arrive_as_they_were_sent")
class DropsHeaders(Enveloping):
    """Column `headers` is null for every message."""

    CONSUMER = _NoHeaders


@caught_by("timestamps_are_those_of_the_messages")
class ReturnsMillisecondTimestamps(Enveloping):
    """Column `timestamp` is in milliseconds."""

    CONSUMER = _Timestamp


@caught_by("values_of_any_length_are_read_whole")
class CutsWhatABufferDoesNotHold(Enveloping):
    """Of a value above 64 KiB the first 64 KiB are returned."""

    CONSUMER = _Buffer


@caught_by("gaps_are_not_losses")
class ReportsGapsAsLosses(Enveloping):
    """Offsets without a message are reported as losses."""

    CONSUMER = _Losing


@caught_by("an_empty_result_moves_over_a_gap")
class StopsBeforeGaps(Enveloping):
    """The next offset is the one after the last message, before a gap."""

    CONSUMER = _Stuck


@caught_by("offsets_by_time_are_the_first_at_or_after_it")
class SearchesTimesExclusively(Enveloping):
    """An offset by time is the first one after the time."""

    METADATA = _ByTime


class _Headless(EnvelopesWriter):
    def write(self, outgoing: Outgoing) -> None:
        super().write(replace(outgoing, headers=None))


@caught_by("carried_columns_come_back")
class DropsCarriedHeaders(EnvelopesProducerFactory):
    """`CARRIES` contains the headers, and the writer does not store them."""

    def create_writer(self, context: WriteContext) -> EnvelopesWriter:
        return _Headless(self.config["value.max.bytes"])


@caught_by("the_largest_value_comes_back_whole")
class RefusesTheLargestValue(EnvelopesProducerFactory):
    """A value of exactly the greatest size is refused."""

    def create_writer(self, context: WriteContext) -> EnvelopesWriter:
        return EnvelopesWriter(self.config["value.max.bytes"] - 1)


class _Cutting(EnvelopesWriter):
    def write(self, outgoing: Outgoing) -> None:
        values = pc.binary_slice(outgoing.rows.column(0), 0, self._largest)
        rows = pa.record_batch([values], schema=outgoing.rows.schema)
        super().write(replace(outgoing, rows=rows))


@caught_by("a_value_above_the_largest_is_refused_with_its_row")
class CutsLongerValues(EnvelopesProducerFactory):
    """Of a value above the greatest size the beginning is written."""

    def create_writer(self, context: WriteContext) -> EnvelopesWriter:
        return _Cutting(self.config["value.max.bytes"])


# --- metadata and topics ----------------------------------------------------------


@caught_by("offsets_by_time_follow_the_clock")
class ReturnsEarliestForAnyTime(LogMetadata):
    """The offset for any time is the earliest."""

    def fetch_offsets_at(self, timestamp_ms: int, partitions: Any) -> Any:
        return super().fetch_offsets_at(0, partitions)


@caught_by("topics_are_listed")
class ListsNoTopics(LogMetadata):
    """The list of topics is empty."""

    def fetch_topics(self) -> Sequence[str]:
        return []


@caught_by("topics_are_listed")
class ListsPartitionsAsTopics(LogMetadata):
    """The list of topics has what stores their partitions, too."""

    def fetch_topics(self) -> Sequence[str]:
        return [n for topic in super().fetch_topics() for n in (topic, f"{topic}.0")]


class _ListsNoGroups(EnvelopesMetadata):
    def fetch_groups(self) -> Sequence[str]:
        return []


@caught_by("groups_with_positions_are_listed")
class ListsNoGroups(Enveloping):
    """The list of groups is empty."""

    METADATA = _ListsNoGroups


class _MixesGroups(EnvelopesMetadata):
    def fetch_positions(self, groups: Collection[str]) -> Mapping[str, Position]:
        found = super().fetch_positions(groups)
        return dict.fromkeys(found, found[min(found)]) if found else {}


@caught_by("positions_of_groups_are_those_that_were_published")
class MixesGroups(Enveloping):
    """All groups have the position of the first one."""

    METADATA = _MixesGroups


@caught_by("topics_are_created_grown_and_deleted")
class KeepsDeletedTopics(MemoryTopicAdmin):
    """Deleting a topic does nothing."""

    def delete(self, topic: str) -> None:
        pass


@caught_by("closing_an_administration_leaves_its_topics")
class UndoesOnClose(MemoryTopicAdmin):
    """Topics that an administration created, and nobody wrote to, go with it."""

    _created: str | None = None

    def create(self, topic: str, schema: Any, partitions: int | None) -> None:
        super().create(topic, schema, partitions)
        self._created = topic

    def delete(self, topic: str) -> None:
        super().delete(topic)
        self._created = None

    def close(self) -> None:
        if self._created is not None:
            super().delete(self._created)
        super().close()


@caught_by("deleting_a_topic_leaves_the_others")
class DeletesByPrefix(MemoryTopicAdmin):
    """Deleting a topic deletes all topics whose names begin with its name."""

    def delete(self, topic: str) -> None:
        super().delete(topic)
        for name in self.store().names():
            if name.startswith(topic):
                super().delete(name)


@caught_by("a_topic_that_is_created_again_is_empty")
class LeavesMessagesBehind(MemoryTopicAdmin):
    """A topic that is created again has the messages of the one that was deleted."""

    _deleted: ClassVar[set[str]] = set()

    def create(self, topic: str, schema: Any, partitions: int | None) -> None:
        super().create(topic, schema, partitions)
        if topic in self._deleted:
            log = self.store().open(topic)
            row = dict.fromkeys(schema.names, 1)
            stage = log.stage("left")
            stage.append(0, pa.RecordBatch.from_pylist([row], schema))
            log.commit(Epoch(None, 0, [stage.seal()], Summary(1)))

    def delete(self, topic: str) -> None:
        super().delete(topic)
        self._deleted.add(topic)


@caught_by("truncation_deletes_what_lies_before")
class TruncatesOneTooMany(MemoryTopicAdmin):
    """Truncation deletes the message at the offset, too."""

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        super().truncate(topic, {number: at + 1 for number, at in before.items()})


@caught_by("operations_on_an_unknown_topic_are_refused")
class DeletesUnknownTopics(MemoryTopicAdmin):
    """The deletion of a topic that is not there does nothing."""

    def delete(self, topic: str) -> None:
        if topic in self.store().names():
            super().delete(topic)


@caught_by("topics_do_not_shrink")
class IgnoresShrinking(MemoryTopicAdmin):
    """Growth to fewer partitions does nothing."""

    def grow(self, topic: str, partitions: int) -> None:
        log = self.store().open(topic)
        log.grow(max(partitions, len(log.bounds())))


@caught_by("facts_and_settings_can_be_shown")
class HasUnknownFacts(MemoryTopicAdmin):
    """A fact has no value."""

    def facts(self, topic: str) -> Any:
        return {**super().facts(topic), "bytes": None}


# --- ends, servers and logins ---------------------------------------------------


class _EndsOnce(ForgetfulConsumer):
    _ended = False

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        fetched = super().fetch_messages(start, end, limits)
        if fetched.state is not BatchState.END_OF_PARTITION:
            return fetched
        again, self._ended = self._ended, True
        return Fetched(None, fetched.next_offset) if again else fetched


@caught_by("an_ended_partition_ends_after_its_rows")
class ReportsTheEndOnce(ForgetfulConsumerFactory):
    """A second fetch after the end of a partition waits for messages."""

    def create_partition_level_consumer(
        self, client_id: str, partition: Partition, fields_to_read: Any = None
    ) -> ForgetfulConsumer:
        return _EndsOnce(self.config, partition)


class _Shortened(ForgetfulMetadata):
    def check(self, answer: Any) -> None:
        pass


@caught_by("a_partition_that_does_not_answer_is_an_error")
class OmitsUnavailablePartitions(ForgetfulConsumerFactory):
    """A partition that is not available is missing from the list."""

    def create_metadata_provider(self, client_id: str) -> ForgetfulMetadata:
        return _Shortened(self.config)


class _Misjudging(ForgetfulMetadata):
    def fetch_partitions(self, topics: Any, known: Any) -> Sequence[PartitionInfo]:
        try:
            return super().fetch_partitions(topics, known)
        except NotAuthorized as error:
            raise ConnectionFailed(str(error)) from error


@caught_by("a_refused_login_is_not_authorized")
class ReportsRefusedLoginsAsOutages(ForgetfulConsumerFactory):
    """A refused login is a failed connection."""

    def create_metadata_provider(self, client_id: str) -> ForgetfulMetadata:
        return _Misjudging(self.config)


register(
    "ReportsOutagesAsPermanent",
    "A server that refuses connections is a permanent error.",
    "an_unreachable_server_is_a_connection_error",
    replace(
        redelivering.streamfactory_backend(),
        translate=ErrorTable({ConnectionRefusedError: PermanentError}),
    ),
    redelivering.RedeliveringHarness,
)
register(
    "IgnoresWrappedCauses",
    "Every error that the client has wrapped is permanent.",
    "wrapped_connection_errors_are_translated_alike",
    replace(
        streamfactory_backend(), translate=ErrorTable({RuntimeError: PermanentError})
    ),
)


class _Abandoning(redelivering.RedeliveringConsumer):
    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        try:
            return super().fetch_messages(start, end, limits)
        except ConnectionError:
            return Fetched(None, start, state=BatchState.END_OF_PARTITION)


@caught_by("reading_continues_after_a_server_outage")
class ReportsOutagesAsTheEnd(redelivering.RedeliveringConsumerFactory):
    """A broken connection is the end of the partition."""

    def create_partition_level_consumer(
        self, client_id: str, partition: Partition, fields_to_read: Any = None
    ) -> redelivering.RedeliveringConsumer:
        return _Abandoning(self.config, partition)


class _Overtaking(redelivering.RedeliveringConsumer):
    outages = 0
    """That any of them met."""

    def __init__(self, config: StreamConfig, partition: Partition) -> None:
        super().__init__(config, partition)
        self._config, self._known = config, _Overtaking.outages

    def fetch_messages(self, start: int, end: Any, limits: FetchLimits) -> Fetched:
        if self._known != _Overtaking.outages:
            self._known = _Overtaking.outages
            self._connection.close()
            self._connection = forgetful.Connection(self._config)
            start += 1
        try:
            return super().fetch_messages(start, end, limits)
        except ConnectionError:
            _Overtaking.outages += 1
            raise


@caught_by("reading_continues_after_a_server_outage")
class SkipsAMessageOfIdleReaders(redelivering.RedeliveringConsumerFactory):
    """After an outage that another reader met, a reader begins behind the next."""

    def create_partition_level_consumer(
        self, client_id: str, partition: Partition, fields_to_read: Any = None
    ) -> redelivering.RedeliveringConsumer:
        return _Overtaking(self.config, partition)


# --- configurations -------------------------------------------------------------


class _Careless(forgetful.ForgetfulHarness):
    mistakes: ClassVar = ({"stream.forgetful.port": "65536"},)


register(
    "AcceptsAnyPort",
    "An option for a port has no upper bound.",
    "mistaken_options_are_refused",
    forgetful.streamfactory_backend(),
    _Careless,
)


register(
    "WarnsOfEverything",
    "The rules over several options report an option that is right.",
    "mistaken_options_are_refused",
    replace(
        streamfactory_backend(),
        check_options=lambda config, _: [
            config.problem("topic.name", "has no effect", level="warning")
        ],
    ),
)


# --- what went through pickle ---------------------------------------------------


def _mute(config: StreamConfig) -> AcknowledgesUntilPickled:
    made = AcknowledgesUntilPickled(config)
    made.pickled = True
    return made


@caught_by("a_pickled_factory_acknowledges")
class AcknowledgesUntilPickled(redelivering.RedeliveringConsumerFactory):
    """A factory that went through pickle ignores acknowledgements."""

    pickled = False

    def __reduce__(self) -> Any:
        return _mute, (self.config,)

    def acknowledge(self, position: Position) -> None:
        if not self.pickled:
            super().acknowledge(position)


class _Timeless(EnvelopesMetadata):
    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        return dict.fromkeys(partitions)


def _timeless(config: StreamConfig) -> FindsTimesUntilPickled:
    made = FindsTimesUntilPickled(config)
    made.pickled = True
    return made


@caught_by("another_process_gets_the_same_metadata")
class FindsTimesUntilPickled(EnvelopesConsumerFactory):
    """A factory that went through pickle finds no offset by time."""

    pickled = False

    def __reduce__(self) -> Any:
        return _timeless, (self.config,)

    def create_metadata_provider(self, client_id: str) -> EnvelopesMetadata:
        kind = _Timeless if self.pickled else EnvelopesMetadata
        return kind(Path(self.config["folder"]))


# --- values -----------------------------------------------------------------------


class _EmptyIsNull(EnvelopesConsumer):
    def _rows(self, messages: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        return super()._rows([{**m, "value": m["value"] or None} for m in messages])


@caught_by("any_bytes_come_back_as_they_were_written")
class ReturnsEmptyValuesAsNull(EnvelopesConsumerFactory):
    """An empty value is returned as null."""

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> EnvelopesConsumer:
        path = Path(self.config["folder"]) / f"{partition.id}.jsonl"
        return _EmptyIsNull(path, partition)
