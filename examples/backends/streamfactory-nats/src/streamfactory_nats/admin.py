"""Topics: created, grown, truncated and deleted as streams of JetStream."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from nats.aio.client import Client
from streamfactory import spi

from streamfactory_nats import layout
from streamfactory_nats.connection import (
    NAME_IN_USE,
    STREAM_NOT_FOUND,
    ApiError,
    Connection,
    request,
)


class NatsTopicAdmin(spi.TopicAdmin):
    """Operates the streams of topics."""

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connection = Connection(config)
        self._timeout = self._connection.timeout

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        if schema is not None and schema != spi.envelope_schema():
            msg = "a JetStream stream holds undecoded messages and takes no schema"
            raise spi.Unsupported(msg)
        count = self.config["partitions"] if partitions is None else partitions

        async def create(client: Client) -> None:
            with contextlib.suppress(spi.TopicNotFound):
                await layout.fetch_partitions(client, topic, self._timeout)
                msg = f"topic {topic!r} exists"
                raise spi.MisuseError(msg)
            left = await layout.fetch_streams(client, topic, self._timeout)
            # Before the topic is there nothing is written.
            for info in left:
                if info.partition.id == 0 or info.last > 0:
                    msg = f"stream {info.stream!r} of topic {topic!r} exists"
                    remedy = "delete the stream, if its messages are not needed"
                    raise spi.MisuseError(msg, remedy=remedy)
            for info in left:  # of a creation that was interrupted
                await self._delete(client, info.stream)
            await self._create(
                client,
                layout.staged_stream(topic),
                layout.staged_subject(topic, "*"),
                max_age=self.config["staged.retention.millis"] * 1_000_000,
            )
            await self._create(
                client,
                layout.commits_stream(topic),
                layout.commits_subject(topic, ">"),
                max_msgs_per_subject=1,
            )
            # Partition 0 last: from then on the topic is there.
            for partition in reversed(range(count)):
                await self._create_partition(client, topic, partition)

        self._connection.run(create)

    def grow(self, topic: str, partitions: int) -> None:
        async def grow(client: Client) -> None:
            infos = await layout.fetch_partitions(client, topic, self._timeout)
            if not infos[0].managed:
                msg = f"JetStream stream {topic!r} has one partition"
                raise spi.Unsupported(msg)
            if partitions < len(infos):
                msg = f"topic {topic!r} has {len(infos)} partitions, more than asked"
                raise spi.MisuseError(msg)
            for partition in range(len(infos), partitions):
                await self._create_partition(client, topic, partition)

        self._connection.run(grow)

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        async def truncate(client: Client) -> None:
            infos = await layout.fetch_partitions(client, topic, self._timeout)
            for info in infos:
                offset = min(before.get(info.partition.id, 0), info.last + 1)
                if offset > info.first:
                    verb = f"STREAM.PURGE.{info.stream}"
                    await request(client, verb, {"seq": offset}, timeout=self._timeout)

        self._connection.run(truncate)

    def delete(self, topic: str) -> None:
        async def delete(client: Client) -> None:
            infos = await layout.fetch_partitions(client, topic, self._timeout)
            first, *others = [info.stream for info in infos]
            if infos[0].managed:
                others += [layout.staged_stream(topic), layout.commits_stream(topic)]
            # Partition 0 last: until then a repeat finds the rest.
            for stream in (*others, first):
                await self._delete(client, stream)

        self._connection.run(delete)

    def facts(self, topic: str) -> Mapping[str, str | int]:
        config, state = self._first(topic)
        return {
            "storage": config["storage"],
            "replicas": config["num_replicas"],
            "bytes of partition 0": state["bytes"],
        }

    def settings(self, topic: str) -> Mapping[str, str]:
        config, _ = self._first(topic)
        names = ("retention", "discard", "max_age", "max_bytes", "max_msgs")
        return {name: str(config[name]) for name in names}

    def close(self) -> None:
        self._connection.close()

    def _first(self, topic: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Configuration and state of the first partition's stream."""

        async def ask(client: Client) -> tuple[dict[str, Any], dict[str, Any]]:
            [info, *_] = await layout.fetch_partitions(client, topic, self._timeout)
            verb = f"STREAM.INFO.{info.stream}"
            answer = await request(client, verb, timeout=self._timeout)
            return answer["config"], answer["state"]

        return self._connection.run(ask)

    async def _delete(self, client: Client, stream: str) -> None:
        try:
            await request(client, f"STREAM.DELETE.{stream}", timeout=self._timeout)
        except ApiError as error:
            if error.code != STREAM_NOT_FOUND:
                raise

    async def _create_partition(
        self, client: Client, topic: str, partition: int
    ) -> None:
        stream = layout.stream_name(topic, partition)
        await self._create(client, stream, layout.subject_name(topic, partition))

    async def _create(
        self, client: Client, stream: str, subject: str, **settings: object
    ) -> None:
        body = {
            "name": stream,
            "subjects": [subject],
            "storage": "file",
            "num_replicas": self.config["replicas"],
            **settings,
        }
        verb = f"STREAM.CREATE.{stream}"
        try:
            await request(client, verb, body, timeout=self._timeout)
        except ApiError as error:
            if error.code != NAME_IN_USE:
                raise
            msg = f"JetStream has a stream {stream!r} with other settings"
            raise spi.MisuseError(msg) from error
