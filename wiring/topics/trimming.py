"""Planned truncation of topics: what would be deleted, known before it is done."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, MisuseError, PositionRefused
from streamfactory.wiring.reading.losses import was_recreated
from streamfactory.wiring.reading.position_arguments import offsets_of
from streamfactory.wiring.reading.starts import starting_offsets
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore, merged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import Checkpoint, Partition, PartitionInfo, Position
    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.topics.admin import Admin

_RETENTION: Final = "retention."
_AGE: Final = "retention.age.millis"
_ROWS: Final = "retention.rows"


@dataclass(frozen=True, slots=True)
class Hold:
    """A group that still needs a partition, and from which offset on."""

    offset: int
    group: str


@dataclass(frozen=True, slots=True)
class Cut:
    """One partition of a plan."""

    partition: Partition
    earliest: int
    latest: int | None
    before: int
    """Messages before this offset are deleted; equal to ``earliest`` if none is."""
    incarnation: str | None = None
    """Incarnation of the offsets."""
    held_by: str | None = None
    """The group that prevents the deletion of more."""
    rows: int = 0
    """Number of offsets to delete; where most of them hold no row, of rows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The messages to delete."""

    cuts: tuple[Cut, ...]
    unforeseen: tuple[str, ...] = ()
    """Retention options whose effect only the backend can compute."""

    @property
    def rows(self) -> int:
        """The same, of all partitions."""
        return sum(cut.rows for cut in self.cuts)

    @property
    def before(self) -> dict[int, int]:
        """The new earliest offset of each partition with deletions."""
        return {
            cut.partition.id: cut.before
            for cut in self.cuts
            if cut.before > cut.earliest
        }


def plan_truncation(
    admin: Admin, before: Marks, hold: Mapping[Partition, Hold] | None = None
) -> Plan:
    """Plan the deletion of messages before some marks.

    Args:
        admin: Administration of the topic.
        before: The marks, exclusive.
        hold: Offsets that readers still need.

    Raises:
        StreamError: See `offsets_of`.
    """
    infos = admin.partitions()
    offsets = offsets_of(admin.config, admin.metadata, infos, before)
    return Plan(_cuts(admin, infos, offsets, hold or {}))


def plan_retention(admin: Admin, hold: Mapping[Partition, Hold] | None = None) -> Plan:
    """Plan the configured retention, as far as it can be computed here.

    Args:
        admin: Administration of the topic.
        hold: Offsets that readers still need.

    Raises:
        ConfigError: config; no retention is configured.
    """
    config, infos = admin.config, admin.partitions()
    retention = retention_of(admin)
    if not retention:
        msg = "no retention is configured"
        key = f"stream.{config.type}.{_AGE}"
        raise ConfigError(
            msg, stream=config.name, remedy=f"set {key} or another retention option"
        )
    offsets = {info.partition: info.earliest for info in infos}
    if _ROWS in retention:
        for info in infos:
            if info.latest is not None:
                kept = info.latest - config[_ROWS]
                offsets[info.partition] = max(offsets[info.partition], kept)
    if _AGE in retention:
        oldest = datetime.now(UTC) - timedelta(milliseconds=config[_AGE])
        young = starting_offsets(
            config, admin.metadata, infos, start=oldest, default="earliest"
        )
        offsets = {p: max(offset, young[p]) for p, offset in offsets.items()}
    others = tuple(f"{k}={v}" for k, v in retention.items() if k not in (_AGE, _ROWS))
    return Plan(_cuts(admin, infos, offsets, hold or {}), others)


def apply_plan(
    admin: Admin, plan: Plan, hold: Mapping[Partition, Hold] | None = None
) -> Plan:
    """Truncate a topic as planned.

    Args:
        admin: The topic's.
        plan: Of this topic.
        hold: As the plan was made with.

    Returns:
        What was deleted: ``before`` of each cut is the new earliest.

    Raises:
        IncarnationChanged: data_loss; the topic was recreated since. Nothing is done.
        StreamError: As `Admin.truncate` and `Admin.retain`.
    """
    admin.refuse_recreated({cut.partition: cut.incarnation for cut in plan.cuts})
    if plan.unforeseen:
        held = (hold or {}).items()
        admin.retain({partition.id: one.offset for partition, one in held})
    else:
        admin.truncate(plan.before)  # as planned, however long the confirmation took
    after = {info.partition: info for info in admin.partitions()}
    return Plan(
        tuple(
            _done(cut, after[cut.partition], sparse=admin.metadata.sparse)
            for cut in plan.cuts
            if cut.partition in after
        )
    )


def _done(cut: Cut, after: PartitionInfo, *, sparse: bool) -> Cut:
    """What was deleted; rows among sparse offsets cannot be counted any more."""
    rows = cut.rows if sparse else after.earliest - cut.earliest
    return replace(cut, before=after.earliest, latest=after.latest, rows=rows)


def retention_of(admin: Admin) -> dict[str, str]:
    """Return the retention options that are set, as written."""
    settings = admin.config.settings
    return {k: s.text for k, s in settings.items() if k.startswith(_RETENTION)}


def held_by_checkpoints(admin: Admin, folder: Path) -> dict[Partition, Hold]:
    """Return the offsets that groups with checkpoints in a folder still need.

    A group that reads the topic without a checkpoint of a partition starts at its
    earliest offset, and so needs all of it.

    Args:
        admin: Administration of the topic.
        folder: The folder of ``checkpoint.location``, with a folder per group.

    Raises:
        MisuseError: misuse; the folder has no checkpoints. A wrong folder would delete
            messages that are still needed.
        PositionRefused: permanent; a checkpoint is corrupt, newer, or of an earlier
            incarnation of the topic.
    """
    store = FileCheckpointStore(folder)
    groups = {name: store.load(name) for name in _groups(folder)}
    if not any(groups.values()):
        msg = f"the folder {folder} has no checkpoints"
        remedy = "give the folder that checkpoint.location names, or omit it"
        raise MisuseError(msg, stream=admin.config.name, remedy=remedy)
    return _held(admin, groups)


def held_by_groups(admin: Admin) -> dict[Partition, Hold]:
    """Return the offsets that groups with checkpoints on the topic's server still need.

    Raises:
        MisuseError: misuse; there are no checkpoints that this user may read.
        PositionRefused: permanent; see `held_by_checkpoints`.
        Unsupported: misuse; the type stores no checkpoints.
    """
    store = admin.checkpoints()
    groups = {name: store.load(name) for name in store.groups()}
    if not any(groups.values()):
        msg = "no group has a checkpoint on the server, or none that may be read"
        raise MisuseError(msg, stream=admin.config.name, remedy="omit the option")
    return _held(admin, groups)


def nearest(*holds: Mapping[Partition, Hold]) -> dict[Partition, Hold]:
    """Return the smallest offset that any of several groups still needs."""
    found: dict[Partition, Hold] = {}
    for held in holds:
        for partition, hold in held.items():
            known = found.get(partition)
            if known is None or hold.offset < known.offset:
                found[partition] = hold
    return found


def _held(
    admin: Admin, groups: Mapping[str, Mapping[str, Checkpoint]]
) -> dict[Partition, Hold]:
    """Return the offsets that groups of this topic still need."""
    infos = admin.partitions()
    found: dict[Partition, Hold] = {}
    for group, checkpoints in groups.items():
        position = merged(checkpoints)
        if not any(p.topic == admin.topic for p in position):
            continue  # a group of another topic
        wanted = {i.partition: _wanted(admin, group, i, position) for i in infos}
        found = nearest(found, {p: Hold(offset, group) for p, offset in wanted.items()})
    return found


def _groups(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                e.name for e in entries if e.is_dir() and not e.name.startswith(".")
            )
    except OSError as error:
        msg = f"the checkpoints in {folder} cannot be read: {error.strerror}"
        raise MisuseError(msg, remedy="check the path") from error


def _wanted(admin: Admin, group: str, info: PartitionInfo, position: Position) -> int:
    partition = info.partition
    counted = position.incarnations.get(partition)
    if was_recreated(counted, info.incarnation):
        msg = (
            f"the checkpoint of group {group!r} is of an earlier incarnation of "
            f"{partition}: "
            "the offsets that it still needs are unknown"
        )
        remedy = "delete it if no reader uses it any more"
        raise PositionRefused(msg, stream=admin.config.name, remedy=remedy)
    return position.get(partition, info.earliest)


def _cuts(
    admin: Admin,
    infos: Sequence[PartitionInfo],
    offsets: Mapping[Partition, int],
    hold: Mapping[Partition, Hold],
) -> tuple[Cut, ...]:
    cuts = []
    for info in infos:
        partition = info.partition
        before = max(info.earliest, offsets.get(partition, info.earliest))
        held = hold.get(partition)
        group = None
        if held is not None and held.offset < before:
            before, group = max(info.earliest, held.offset), held.group
        rows = admin.metadata.count(partition, info.earliest, before)
        cuts.append(
            Cut(
                partition,
                info.earliest,
                info.latest,
                before,
                info.incarnation,
                group,
                rows,
            )
        )
    return tuple(cuts)
