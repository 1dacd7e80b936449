"""Fifteen defects of ``streamfactory-redis``."""

from __future__ import annotations

from typing import Final

from tests.zoo.planted import Defect

_READING: Final = "streamfactory_redis/reading.py"
_WRITING: Final = "streamfactory_redis/writing.py"
_SCRIPTS: Final = "streamfactory_redis/scripts.py"

REDIS: Final = (
    Defect(
        "a value of one byte is taken for the mark of a missing one",
        "one value",
        _WRITING,
        'yield _NOTHING if text is None else b"+" + text',
        'yield _NOTHING if text in (None, b"-") else b"+" + text',
    ),
    Defect(
        "an empty key is stored as none",
        "one value",
        _WRITING,
        "[None] * len(values) if keys is None else keys.to_pylist(),",
        "[None] * len(values) if keys is None "
        "else [k or None for k in keys.to_pylist()],",
    ),
    Defect(
        "a value of the greatest size is cut by a byte",
        "a limit",
        _SCRIPTS,
        "fields[#fields + 1] = string.sub(text, 2)",
        "fields[#fields + 1] = string.sub(text, 2, 1048575)",
    ),
    Defect(
        "answers of more than 8,192 rows lack their last but one",
        "a limit",
        _READING,
        "rows = envelopes(self._partition, entries)",
        "rows = envelopes(self._partition, entries if len(entries) <= 8192 "
        "else [*entries[:-2], entries[-1]])",
    ),
    Defect(
        "the counter of ids overflows one row late",
        "a limit",
        _SCRIPTS,
        "if low >= 4194304 then",
        "if low > 4194304 then",
        "it shows behind 4,194,304 rows of a partition; test_redis.py has the offsets "
        "at that boundary",
    ),
    Defect(
        "from the second epoch on the incarnations of a position are dropped",
        "a later epoch",
        _WRITING,
        '"position": None if position is None else position.to_json(),',
        '"position": None if position is None else (position if not epoch else '
        "spi.Position(dict(position.items()), {})).to_json(),",
    ),
    Defect(
        "from the third epoch on a fenced instance commits",
        "a later epoch",
        _SCRIPTS,
        "if ARGV[4] == '1' and claimed ~= instance then",
        "if ARGV[4] == '1' and claimed ~= instance and epoch < 2 then",
    ),
    Defect(
        "an abort removes what is remembered of the writer",
        "an abort",
        _WRITING,
        "        payloads = [message.payload for message in messages]\n"
        "        _discard(self._connection, self._topic, payloads)",
        "        payloads = [message.payload for message in messages]\n"
        "        key = layout.writers_key(self._topic)\n"
        '        self._connection.client.hdel(key, f"epoch {self._writer}", '
        'f"record {self._writer}")\n'
        "        _discard(self._connection, self._topic, payloads)",
    ),
    Defect(
        "writers whose ids have the same 64 first characters share their epochs",
        "two writers",
        _SCRIPTS,
        "local writer, epoch, instance = ARGV[1], tonumber(ARGV[2]), ARGV[3]",
        "local writer, epoch, instance = "
        "string.sub(ARGV[1], 1, 64), tonumber(ARGV[2]), ARGV[3]",
    ),
    Defect(
        "consumers of a factory share the stream that the first of them found",
        "two readers",
        _READING,
        "            self._place = find(self._connection, self._partition)\n",
        "            kept = vars(self._connection)\n"
        '            if "place" not in kept:\n'
        '                kept["place"] = find(self._connection, self._partition)\n'
        '            self._place = kept["place"]\n',
    ),
    Defect(
        "writers of a factory that went through pickle write no keys",
        "after pickle",
        _WRITING,
        "    def create_writer(self, context: spi.WriteContext) -> RedisWriter:\n"
        "        return RedisWriter(self._connection, self.config)\n",
        "    @staticmethod\n"
        "    def _revive(config):\n"
        "        made = RedisProducerFactory(config)\n"
        "        made.pickled = True\n"
        "        return made\n\n"
        "    def __reduce__(self):\n"
        "        return RedisProducerFactory._revive, (self.config,)\n\n"
        "    def create_writer(self, context: spi.WriteContext) -> RedisWriter:\n"
        "        made = RedisWriter(self._connection, self.config)\n"
        '        if "pickled" in vars(self):\n'
        "            write = made.write\n"
        "            made.write = lambda o: write("
        "spi.Outgoing(o.rows, o.partition))\n"
        "        return made\n",
    ),
    Defect(
        "after an outage a fetch begins behind the next row",
        "after reconnect",
        _READING,
        "        fetched = self._read(place, start, limits)\n"
        "        if fetched.rows is None and fetched.state",
        "        start += vars(self).pop('lost', 0)\n"
        "        try:\n"
        "            fetched = self._read(place, start, limits)\n"
        "        except Exception as error:\n"
        '            if "Connection" not in type(error).__name__:\n'
        "                raise\n"
        "            self.lost = 1\n"
        "            return spi.Fetched(None, start, "
        "state=spi.BatchState.IDLE)\n"
        "        if fetched.rows is None and fetched.state",
    ),
    Defect(
        "of a position only the first partition is acknowledged",
        "several partitions",
        _READING,
        "for partition, offset in position.items():\n"
        "            place = find(self._connection, partition)",
        "for partition, offset in [*position.items()][:1]:\n"
        "            place = find(self._connection, partition)",
    ),
    Defect(
        "bounds of more than ten partitions are ordered as text",
        "several partitions",
        _READING,
        "for number, found in enumerate(bounds)",
        "for number, found in zip("
        "sorted(range(len(bounds)), key=str), bounds, strict=True)",
    ),
    Defect(
        "a second close of a connection is an error",
        "a second close",
        "streamfactory_redis/connection.py",
        "        if client is not None:\n            client.close()\n",
        '        if vars(self).setdefault("closed", False):\n'
        '            raise RuntimeError("closed twice")\n'
        "        self.closed = True\n"
        "        if client is not None:\n"
        "            client.close()\n",
    ),
)
