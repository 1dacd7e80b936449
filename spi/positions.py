"""Positions over several partitions.

An offset is a signed 64-bit number: the position of the **next** message to read.
Starts are inclusive, ends exclusive, gaps are normal.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from streamfactory.spi.errors import PositionRefused
from streamfactory.spi.partitions import MAX_PARTITION_ID, Partition

POSITION_VERSION: Final = 2
"""The newest version. A position that skipped nothing is written as version 1."""
MAX_OFFSET: Final = 2**63 - 1
_MOST_TABLES: Final = 200_000
"""Maximum objects and lists in a text: of 7 bytes each, they take 500 in memory."""

_ID: Final = re.compile("0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A range of offsets that a reader left out to be on time, and a backfill reads.

    Args:
        partition: Where the messages are.
        start: First offset that was skipped, inclusive.
        end: First offset that was read again, exclusive.
        incarnation: What the offsets count; None if the source has none.

    Raises:
        ValueError: The range is empty, or an offset is below 0 or beyond 64 bits.
    """

    partition: Partition
    start: int
    end: int
    incarnation: str | None = None

    def __post_init__(self) -> None:
        start, end = (_whole(self.partition, at) for at in (self.start, self.end))
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "end", end)
        if start >= end:
            msg = f"the skipped range {start} to {end} of {self.partition} is empty"
            raise ValueError(msg)

    @property
    def size(self) -> int:
        """Number of offsets, not rows."""
        return self.end - self.start

    def to_dict(self) -> dict[str, str | int | None]:
        """Return plain values, for ``--json``."""
        return {
            "partition": str(self.partition),
            "from": self.start,
            "to": self.end,
            "incarnation": self.incarnation,
        }


class Position(Mapping[Partition, int]):
    """A vector of offsets: the next offset to read of each partition.

    A position may have `skipped` ranges that lie before its offsets. Whatever stores
    the position stores them with it, so that no end of a process separates the two.

    Immutable, comparable by value, hashable, picklable. The text form is canonical
    (rule P1): equal positions are equal text.

    Args:
        offsets: Next offset to read, by partition.
        incarnations: Incarnation of each partition, if the source has one. Entries of
            partitions without an offset are dropped.

    Raises:
        ValueError: An offset is below 0 or beyond 64 bits.
    """

    __slots__ = ("_incarnations", "_offsets", "_skipped", "_text")

    def __init__(
        self,
        offsets: Mapping[Partition, int] | None = None,
        incarnations: Mapping[Partition, str] | None = None,
    ) -> None:
        maps: tuple[object, ...] = (offsets, incarnations)
        for given_map in maps:
            if given_map is not None and not isinstance(given_map, Mapping):
                msg = f"a {type(given_map).__name__!r}: pass a dictionary by Partition"
                raise TypeError(msg)
        self._offsets = {p: _whole(p, o) for p, o in sorted((offsets or {}).items())}
        given = incarnations or {}
        self._incarnations = {p: given[p] for p in self._offsets if p in given}
        self._skipped: tuple[Skipped, ...] = ()
        self._text: str | None = None

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Ranges before the offsets that were not read, of each partition in order."""
        return self._skipped

    def skipping(self, skipped: Iterable[Skipped]) -> Position:
        """Return this position with these skipped ranges instead of its own.

        Args:
            skipped: In the order in which they were skipped. They are sorted by
                partition, which may be one without an offset.
        """
        other = Position(self._offsets, self._incarnations)
        other._skipped = tuple(sorted(skipped, key=lambda one: one.partition))
        return other

    @property
    def incarnations(self) -> Mapping[Partition, str]:
        """The incarnations by partition, if known."""
        return MappingProxyType(self._incarnations)

    def with_offset(
        self, partition: Partition, offset: int, incarnation: str | None = None
    ) -> Position:
        """Return this position with another offset of one partition."""
        incarnations = dict(self._incarnations)
        if incarnation is not None:
            incarnations[partition] = incarnation
        moved = Position({**self._offsets, partition: offset}, incarnations)
        return moved.skipping(self._skipped)

    def merge(self, other: Position) -> Position:
        """Return both positions merged; ``other`` wins for common partitions.

        The skipped ranges are those of both, of a common partition those of ``other``.
        """
        if not (other or other._skipped):
            return self
        if not (self or self._skipped):
            return other
        incarnations = {
            p: i for p, i in self._incarnations.items() if p not in other._offsets
        }
        merged = Position(
            {**self._offsets, **other._offsets},
            {**incarnations, **other._incarnations},
        )
        kept = [one for one in self._skipped if one.partition not in other._offsets]
        return merged.skipping([*kept, *other._skipped])

    def only(self, partitions: frozenset[Partition] | set[Partition]) -> Position:
        """Return the position of these partitions only."""
        kept = {p: o for p, o in self._offsets.items() if p in partitions}
        skipped = [one for one in self._skipped if one.partition in partitions]
        return Position(kept, self._incarnations).skipping(skipped)

    def to_json(self) -> str:
        """Return the canonical text: one line, sorted keys.

        ``{"incarnations":{"clicks":"a1"},"offsets":{"clicks":{"0":23}},"version":1}``.
        ``offsets`` is Spark-Kafka's form. An incarnation that all partitions of a topic
        share is written once per topic: a Kafka topic of ten thousand partitions has
        one id. With skipped ranges, the version is 2:
        ``"skipped":{"clicks":{"0":[[7,23,"a1"]]}}`` has start, end and incarnation of
        each.
        """
        if self._text is None:
            body: dict[str, Any] = {"version": 1, "offsets": _nest(self._offsets)}
            if self._skipped:
                body |= {"version": 2, "skipped": _nest_skipped(self._skipped)}
            if self._incarnations:
                body["incarnations"] = _fold(_nest(self._incarnations), body["offsets"])
            self._text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        return self._text

    @classmethod
    def from_json(cls, text: str) -> Position:
        """Parse a position.

        Raises:
            PositionRefused: permanent; the text is corrupt, foreign, or of a newer
                version. Nothing is ever replaced by a default (rule P2).
        """
        if text.count("{") + text.count("[") > _MOST_TABLES:
            msg = f"not a position: {_clip(text)} has more than {_MOST_TABLES} tables"
            raise PositionRefused(msg)
        try:
            body = json.loads(text, object_pairs_hook=_once)
        except PositionRefused:
            raise
        except (ValueError, RecursionError) as error:
            msg = f"not a position: {_clip(text)} is not JSON"
            raise PositionRefused(msg) from error
        if not isinstance(body, dict) or "version" not in body:
            msg = f"not a position: {_clip(text)} has no version"
            raise PositionRefused(msg)
        version = body["version"]
        if type(version) is not int or version < 1:
            msg = f"not a position: version is {version!r}, expected an integer"
            raise PositionRefused(msg)
        if version > POSITION_VERSION:
            msg = (
                f"position has version {version}, but only versions up to "
                f"{POSITION_VERSION} are supported"
            )
            raise PositionRefused(msg, remedy="upgrade streamfactory")
        allowed = {"version", "offsets", "incarnations"}
        unknown = sorted(set(body) - allowed - ({"skipped"} if version > 1 else set()))
        if unknown:
            msg = f"not a position: unknown key {unknown[0]!r}"
            raise PositionRefused(msg)
        offsets = _flatten(body.get("offsets"), _offset)
        incarnations = _unfold(body.get("incarnations", {}), offsets)
        skipped = _skipped(body.get("skipped", {}))
        return cls(offsets, incarnations).skipping(skipped)

    def __getitem__(self, partition: Partition) -> int:
        return self._offsets[partition]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    # Positions have thousands of partitions: those of `Mapping` call Python for each.

    def __contains__(self, partition: object) -> bool:
        return partition in self._offsets

    def items(self) -> ItemsView[Partition, int]:
        """The offsets by partition, in order."""
        return self._offsets.items()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Position):
            return NotImplemented
        return (
            self._offsets == other._offsets
            and self._incarnations == other._incarnations
            and self._skipped == other._skipped
        )

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"Position({self.to_json()})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._skipped:
            return Position.from_json, (self.to_json(),)
        return Position, (self._offsets, self._incarnations)


def _whole(partition: Partition, offset: int) -> int:
    if not issubclass(type(partition), Partition):
        msg = f"{partition!r} is a key: pass a dictionary by streamfactory.Partition"
        raise TypeError(msg)
    value = offset if type(offset) is int else int(operator.index(offset))
    if not 0 <= value <= MAX_OFFSET:
        msg = f"offset {value} of {partition} is outside 0..{MAX_OFFSET}"
        raise ValueError(msg)
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        msg = f"not a position: the key {_clip(twice)} is repeated"
        raise PositionRefused(msg)
    return found


def _nest(flat: Mapping[Partition, Any]) -> dict[str, dict[str, Any]]:
    nested: dict[str, dict[str, Any]] = {}
    for partition, value in flat.items():
        nested.setdefault(partition.topic, {})[str(partition.id)] = value
    return nested


def _nest_skipped(skipped: Iterable[Skipped]) -> dict[str, dict[str, list[Any]]]:
    by_partition: dict[Partition, list[Any]] = {}
    for one in skipped:
        values = [one.start, one.end, one.incarnation]
        by_partition.setdefault(one.partition, []).append(values)
    return _nest(by_partition)


def _fold(
    nested: dict[str, dict[str, Any]], offsets: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    folded: dict[str, Any] = {}
    for topic, by_id in nested.items():
        values = set(by_id.values())
        shared = len(values) == 1 and len(by_id) == len(offsets[topic])
        folded[topic] = values.pop() if shared else by_id
    return folded


def _unfold(nested: Any, offsets: Mapping[Partition, int]) -> dict[Partition, str]:
    if not isinstance(nested, dict):
        msg = f"not a position: incarnations is {_clip(nested)}, expected an object"
        raise PositionRefused(msg)
    unfolded: dict[Partition, str] = {}
    by_topic: dict[str, list[Partition]] = {}
    for partition in offsets:
        by_topic.setdefault(partition.topic, []).append(partition)
    stray: list[str] = []
    for topic, value in nested.items():
        if isinstance(value, str):
            unfolded.update(dict.fromkeys(by_topic.get(topic, ()), value))
        else:
            unfolded.update(_flatten({topic: value}, _text))
        if topic not in by_topic:
            stray.append(topic)
    stray += [str(p) for p in sorted(set(unfolded) - set(offsets))]
    if stray:
        msg = f"not a position: incarnation of {stray[0]}, which has no offset"
        raise PositionRefused(msg)
    return unfolded


def _flatten(nested: Any, read: Any) -> dict[Partition, Any]:
    if not isinstance(nested, dict):
        msg = f"not a position: {_clip(nested)}, expected an object by topic"
        raise PositionRefused(msg)
    flat: dict[Partition, Any] = {}
    for topic, by_id in nested.items():
        if not isinstance(by_id, dict):
            msg = f"not a position: {topic!r} has {_clip(by_id)}, expected an object"
            raise PositionRefused(msg)
        for key, value in by_id.items():
            if not topic or _ID.fullmatch(key) is None or int(key) > MAX_PARTITION_ID:
                msg = f"not a position: {topic!r} has a partition {_clip(key)}"
                raise PositionRefused(msg)
            flat[Partition(topic, int(key))] = read(value)
    return flat


def _skipped(nested: Any) -> list[Skipped]:
    found = _flatten(nested, _ranges)
    return [Skipped(p, *values) for p, ranges in found.items() for values in ranges]


def _ranges(values: Any) -> list[tuple[int, int, str | None]]:
    if not isinstance(values, list):
        msg = f"not a position: {_clip(values)} is not a list of skipped ranges"
        raise PositionRefused(msg)
    return [_range(value) for value in values]


def _range(value: Any) -> tuple[int, int, str | None]:
    if not isinstance(value, list) or len(value) != 3:
        msg = f"not a position: {_clip(value)} is not a skipped range"
        raise PositionRefused(msg)
    start, end = _offset(value[0]), _offset(value[1])
    if start >= end:
        msg = f"not a position: the skipped range {_clip(value)} is empty"
        raise PositionRefused(msg)
    return start, end, None if value[2] is None else _text(value[2])


def _offset(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_OFFSET:
        msg = f"not a position: {_clip(value)} is not an offset"
        raise PositionRefused(msg)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        msg = f"not a position: {_clip(value)} is not an incarnation"
        raise PositionRefused(msg)
    return value


def _clip(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
