"""Names of keys, and offsets of entries.

A topic ``orders`` that ``streamfactory topics create`` made has, all in one slot of a
cluster,

- the hash ``{orders}:topic``: number of partitions, and the topic's incarnation,
- the streams ``{orders}:0``, ``{orders}:1``, ...,
- the hash ``{orders}:writers``: what is remembered of writers,
- a list ``{orders}:staged:<attempt>:<partition>`` of rows of an undecided epoch.

Any other stream is a topic of its own name with the one partition 0. It can be read,
not written.

The id of an entry is ``<high>-<low>``, usually milliseconds and a counter. Its offset
is ``high * 2**22 + low``. Entries of a topic have the ids that make offsets
consecutive, from ``0-1`` on; ids that Redis makes have offsets with gaps. What does not
fit, more than four million entries of one millisecond, is refused.
"""

from __future__ import annotations

import re
from typing import Final

from streamfactory import spi

LOW_BITS: Final = 22
LOW: Final = 1 << LOW_BITS
_GREATEST: Final = 2**63 - 2
"""Offset of an entry: the one after it is an offset, too."""
_NAME: Final = re.compile(r"[^{}\x00-\x1f\x7f]+")


def topic_problem(name: str) -> str | None:
    """What is wrong with a topic's name; None if nothing."""
    if _NAME.fullmatch(name) is None:
        return "is not a name of a topic: braces and control characters are not allowed"
    return None


def topic_key(topic: str) -> str:
    """The hash that describes a topic."""
    return f"{{{topic}}}:topic"


def stream_key(topic: str, partition: int | str) -> str:
    """The stream of a partition; its beginning, where the partition is empty text."""
    return f"{{{topic}}}:{partition}"


def writers_key(topic: str) -> str:
    """The hash of what is remembered of writers."""
    return f"{{{topic}}}:writers"


def staged_key(topic: str, attempt: str, partition: int) -> str:
    """The list of an attempt's rows for one partition."""
    return f"{{{topic}}}:staged:{attempt}:{partition}"


def entry_id(offset: int) -> str:
    """The id of the entry with an offset."""
    return f"{offset >> LOW_BITS}-{offset & (LOW - 1)}"


def offset_of(entry: bytes) -> int:
    """The offset of the entry with an id.

    Raises:
        spi.CorruptData: data_loss; the id has no offset.
    """
    high, _, low = entry.partition(b"-")
    offset = (int(high) << LOW_BITS) + int(low)
    if offset > _GREATEST or int(low) >= LOW:
        msg = f"entry {entry.decode()} has no offset: its id exceeds 41 and 22 bits"
        raise spi.CorruptData(msg)
    return offset
