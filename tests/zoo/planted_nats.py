"""Fifteen defects of ``streamfactory-nats``."""

from __future__ import annotations

from typing import Final

from tests.zoo.planted import Defect

_READING: Final = "streamfactory_nats/reading.py"
_WRITING: Final = "streamfactory_nats/writing.py"
_COMMITS: Final = "streamfactory_nats/commits.py"
_LAYOUT: Final = "streamfactory_nats/layout.py"
_MESSAGES: Final = "streamfactory_nats/messages.py"
_ADMIN: Final = "streamfactory_nats/admin.py"

NATS: Final = (
    Defect(
        "an empty value without a key is stored as a tombstone",
        "one value",
        _MESSAGES,
        "        if self.value is None:\n",
        "        if not self.value and self.key is None:\n",
    ),
    Defect(
        "keys are written in another base64 than they are read",
        "one value",
        _MESSAGES,
        "headers[KEY] = base64.b64encode(self.key).decode()",
        "headers[KEY] = base64.urlsafe_b64encode(self.key).decode()",
    ),
    Defect(
        "header names are compared without their case",
        "one value",
        _MESSAGES,
        "(str(name), value.encode())\n",
        "(str(name).lower(), value.encode())\n",
    ),
    Defect(
        "a message of exactly the greatest size is refused",
        "a limit",
        _WRITING,
        "        if size > most:\n",
        "        if size >= most:\n",
    ),
    Defect(
        "messages that a limit of bytes left over are dropped",
        "a limit",
        _READING,
        "            if len(taken) >= limits.max_rows or size >= limits.max_bytes:\n",
        "            if size >= limits.max_bytes:\n"
        "                self._buffer.clear()\n"
        "                break\n"
        "            if len(taken) >= limits.max_rows:\n",
        "the server counts subjects and headers, too, and sends less than the limit: "
        "nothing is left over",
    ),
    Defect(
        "rows beyond 1,024 of one run are placed without the condition on their last",
        "a limit",
        _COMMITS,
        "                    if index > done:\n",
        "                    if index > done and index < start + _WINDOW - 1:\n",
        "it shows where another program publishes to the same partition between two "
        "rows of one window",
    ),
    Defect(
        "from the fourth epoch on what is remembered of a writer is not published",
        "a later epoch",
        _COMMITS,
        "        if pending.writer is not None:\n            record = pending.record",
        "        if pending.writer is not None and pending.record.epoch < 3:\n"
        "            record = pending.record",
    ),
    Defect(
        "an instance that has committed twice is not fenced",
        "a later epoch",
        _WRITING,
        "        if self._has_claimed and claimed != self._instance:\n",
        "        held = None if state.record is None else state.record.epoch\n"
        "        if self._has_claimed and claimed != self._instance "
        "and (held or 0) < 1:\n",
    ),
    Defect(
        "an abort removes the staged rows of all attempts",
        "an abort",
        _COMMITS,
        '            body = {"filter": staged_subject(self._topic, attempt)}\n',
        '            body = {"filter": staged_subject(self._topic, "*")}\n',
    ),
    Defect(
        "writers share their record where 32 first characters are the same",
        "two writers",
        _COMMITS,
        "hashlib.sha256(writer.encode()).hexdigest()[:32]",
        "hashlib.sha256(writer[:32].encode()).hexdigest()[:32]",
    ),
    Defect(
        "a state that moved is not looked at again before the decision",
        "two writers",
        _WRITING,
        "                try:\n"
        "                    await commits.decide(state, pending)\n",
        "                state = replace(state, sequence=(await commits.load("
        "self._writer)).sequence)\n"
        "                try:\n"
        "                    await commits.decide(state, pending)\n",
    ),
    Defect(
        "a factory that went through pickle releases one message too many",
        "after pickle",
        _READING,
        "    def acknowledge(self, position: spi.Position) -> None:\n",
        "    @staticmethod\n"
        "    def _revive(config):\n"
        "        made = NatsConsumerFactory(config)\n"
        "        made.pickled = True\n"
        "        return made\n\n"
        "    def __reduce__(self):\n"
        "        return NatsConsumerFactory._revive, (self.config,)\n\n"
        "    def acknowledge(self, position: spi.Position) -> None:\n"
        '        if "pickled" in vars(self):\n'
        "            for partition, offset in [*position.items()]:\n"
        "                position = position.with_offset(partition, offset + 1, "
        "position.incarnations.get(partition))\n",
    ),
    Defect(
        "after a lost connection reading goes on behind the next message",
        "after reconnect",
        _READING,
        "            cursor = await self._seek(client, start)\n",
        "            late = cursor is not None and cursor.client is not client\n"
        "            cursor = await self._seek(client, start + late)\n",
    ),
    Defect(
        "partitions from the tenth on are not found",
        "several partitions",
        _LAYOUT,
        "(?P<id>0|[1-9][0-9]{0,9})",
        "(?P<id>0|[1-9])",
    ),
    Defect(
        "truncation uses the offset of one partition for all",
        "several partitions",
        _ADMIN,
        "offset = min(before.get(info.partition.id, 0), info.last + 1)",
        "offset = min(max(before.values()), info.last + 1)",
    ),
)
