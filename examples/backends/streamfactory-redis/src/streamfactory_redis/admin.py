"""Topics: created, grown, truncated and deleted as keys of Redis."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import redis
from streamfactory import spi

from streamfactory_redis import layout, scripts
from streamfactory_redis.connection import Connection
from streamfactory_redis.reading import find

_SETTINGS: Final = ("appendonly", "appendfsync", "maxmemory-policy")
"""Of the server: what decides which entries a reader finds after a failure."""

_CREATE: Final = """
-- KEYS: topic. ARGV: incarnation, partitions. Returns whether it was there already.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 1
end
redis.call('HSET', KEYS[1], 'incarnation', ARGV[1], 'partitions', ARGV[2])
return 0
"""

_DELETE: Final = """
-- KEYS: topic, writers. ARGV: the key of a stream up to its number.
local count = redis.call('HGET', KEYS[1], 'partitions')
for partition = 0, (tonumber(count) or 0) - 1 do
  redis.call('UNLINK', ARGV[1] .. partition)
end
redis.call('UNLINK', KEYS[1], KEYS[2])
"""

_GROW: Final = """
-- KEYS: topic. ARGV: partitions. Returns how many there were.
local before = tonumber(redis.call('HGET', KEYS[1], 'partitions') or '0')
if before > 0 and before < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'partitions', ARGV[1])
end
return before
"""


class RedisTopicAdmin(spi.TopicAdmin):
    """Operates the keys of topics."""

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connection = Connection(config)

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        if schema is not None and schema != spi.envelope_schema():
            msg = "a stream of Redis holds undecoded messages and takes no schema"
            raise spi.Unsupported(msg)
        count = self.config["partitions"] if partitions is None else partitions
        keys, incarnation = [layout.topic_key(topic)], uuid.uuid4().hex
        if self._connection.run(_CREATE, keys, incarnation, count):
            msg = f"topic {topic!r} exists"
            raise spi.MisuseError(msg)

    def grow(self, topic: str, partitions: int) -> None:
        before = self._connection.run(_GROW, [layout.topic_key(topic)], partitions)
        if not before:
            find(self._connection, spi.Partition(topic, 0))
            msg = f"the stream {topic!r} was not created as a topic"
            raise spi.Unsupported(msg)
        if before > partitions:
            msg = f"topic {topic!r} has {before} partitions, more than asked"
            raise spi.MisuseError(msg)

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        for partition, offset in before.items():
            place = find(self._connection, spi.Partition(topic, partition))
            keys = [layout.topic_key(topic), place.key]
            self._connection.run(scripts.TRIM, keys, "", layout.entry_id(offset))

    def delete(self, topic: str) -> None:
        place = find(self._connection, spi.Partition(topic, 0))
        client = self._connection.client
        if not place.managed:
            client.delete(place.key)
            return
        prefix = layout.stream_key(topic, "")
        # What is staged is no part of the topic yet: its epoch is refused from now on.
        for key in client.scan_iter(match=f"{_escaped(prefix)}staged:*"):
            client.unlink(key)
        # The rest at once: what is interrupted is repeated as a whole.
        keys = [layout.topic_key(topic), layout.writers_key(topic)]
        self._connection.run(_DELETE, keys, prefix)

    def facts(self, topic: str) -> Mapping[str, str | int]:
        place = find(self._connection, spi.Partition(topic, 0))
        size: Any = self._connection.client.memory_usage(place.key)
        return {"key of partition 0": place.key, "bytes of partition 0": size or 0}

    def settings(self, topic: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in _SETTINGS:
            try:
                answer: Any = self._connection.client.config_get(name)
            except redis.exceptions.NoPermissionError:
                raise
            except redis.exceptions.ResponseError:
                return {}  # hosted servers have no such command
            found |= {str(key): str(value) for key, value in answer.items()}
        return found

    def close(self) -> None:
        self._connection.close()


def _escaped(text: str) -> str:
    """As a pattern of Redis that matches the text alone."""
    return "".join(f"\\{c}" if c in "*?[]^\\" else c for c in text)
