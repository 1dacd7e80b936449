"""Positions over several partitions.

An offset is a signed 64-bit number: the position of the **next** message to read.
Starts are inclusive, ends exclusive, gaps are normal.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import ItemsView, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from streamfactory.spi.errors import PositionRefused
from streamfactory.spi.partitions import MAX_PARTITION_ID, Partition

POSITION_VERSION: Final = 1
MAX_OFFSET: Final = 2**63 - 1

_ID: Final = re.compile("0|[1-9][0-9]{0,9}")


class Position(Mapping[Partition, int]):
    """A vector of offsets: the next offset to read of each partition.

    Immutable, comparable by value, hashable, picklable. The text form is canonical
    (rule P1): equal positions are equal text.

    Args:
        offsets: Next offset to read, by partition.
        incarnations: Incarnation of each partition, if the source has one. Entries of
            partitions without an offset are dropped.

    Raises:
        ValueError: An offset is below 0 or beyond 64 bits.
    """

    __slots__ = ("_incarnations", "_offsets", "_text")

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
        self._text: str | None = None

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
        return Position({**self._offsets, partition: offset}, incarnations)

    def merge(self, other: Position) -> Position:
        """Return both positions merged; ``other`` wins for common partitions."""
        if not self or not other:
            return other or self
        incarnations = {
            p: i for p, i in self._incarnations.items() if p not in other._offsets
        }
        return Position(
            {**self._offsets, **other._offsets},
            {**incarnations, **other._incarnations},
        )

    def only(self, partitions: frozenset[Partition] | set[Partition]) -> Position:
        """Return the position of these partitions only."""
        kept = {p: o for p, o in self._offsets.items() if p in partitions}
        return Position(kept, self._incarnations)

    def to_json(self) -> str:
        """Return the canonical text: one line, sorted keys.

        ``{"incarnations":{"clicks":"a1"},"offsets":{"clicks":{"0":23}},"version":1}``.
        ``offsets`` is Spark-Kafka's form. An incarnation that all partitions of a topic
        share is written once per topic: a Kafka topic of ten thousand partitions has
        one id.
        """
        if self._text is None:
            body: dict[str, Any] = {
                "version": POSITION_VERSION,
                "offsets": _nest(self._offsets),
            }
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
                f"position has version {version}, but only version "
                f"{POSITION_VERSION} is supported"
            )
            raise PositionRefused(msg, remedy="upgrade streamfactory")
        unknown = sorted(set(body) - {"version", "offsets", "incarnations"})
        if unknown:
            msg = f"not a position: unknown key {unknown[0]!r}"
            raise PositionRefused(msg)
        offsets = _flatten(body.get("offsets"), _offset)
        incarnations = _unfold(body.get("incarnations", {}), offsets)
        return cls(offsets, incarnations)

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
        )

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"Position({self.to_json()})"

    def __reduce__(self) -> tuple[Any, ...]:
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
