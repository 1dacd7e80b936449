"""What a truncation lets go of: looked at before it is done.

Nothing here changes a topic. `Admin.truncate` and `Admin.retain` do what was planned.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, MisuseError, Position, PositionRefused
from streamfactory.wiring.reading.losses import was_recreated
from streamfactory.wiring.reading.position_arguments import offsets_of
from streamfactory.wiring.reading.starts import starting_offsets
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import Checkpoint, Partition, PartitionInfo
    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.topics.admin import Admin

_RETENTION: Final = "retention."
_AGE: Final = "retention.age.millis"
_ROWS: Final = "retention.rows"


@dataclass(frozen=True, slots=True)
class Hold:
    """Who still wants a partition, and from where on."""

    offset: int
    group: str


@dataclass(frozen=True, slots=True)
class Cut:
    """One partition of a plan."""

    partition: Partition
    earliest: int
    latest: int | None
    before: int
    """Everything before this offset goes; equal to ``earliest`` where nothing does."""
    incarnation: str | None = None
    """What the offsets count."""
    held_by: str | None = None
    """The group of readers that keeps more from going."""

    @property
    def rows(self) -> int:
        """Offsets that go."""
        return self.before - self.earliest


@dataclass(frozen=True, slots=True)
class Plan:
    """What would go."""

    cuts: tuple[Cut, ...]
    unforeseen: tuple[str, ...] = ()
    """Options that let go of more, which only the backend can count."""

    @property
    def rows(self) -> int:
        """Offsets that go, of all partitions."""
        return sum(cut.rows for cut in self.cuts)

    @property
    def before(self) -> dict[int, int]:
        """The new earliest of each partition that loses something."""
        return {cut.partition.id: cut.before for cut in self.cuts if cut.rows}


def plan_truncation(
    admin: Admin, before: Marks, hold: Mapping[Partition, Hold] | None = None
) -> Plan:
    """What letting go of everything before some marks would take.

    Args:
        admin: The topic's.
        before: Exclusive.
        hold: From where on readers still want partitions.

    Raises:
        StreamError: As `offsets_of`.
    """
    infos = admin.partitions()
    offsets = offsets_of(admin.config, admin.metadata, infos, before)
    return Plan(_cuts(infos, offsets, hold or {}))


def plan_retention(admin: Admin, hold: Mapping[Partition, Hold] | None = None) -> Plan:
    """What applying the configured retention would take, as far as it can be told.

    Args:
        admin: The topic's.
        hold: From where on readers still want partitions.

    Raises:
        ConfigError: config; no retention is configured.
    """
    config, infos = admin.config, admin.partitions()
    said = retention_of(admin)
    if not said:
        msg = "no retention is configured, so there is none to apply"
        key = f"stream.{config.type}.{_AGE}"
        raise ConfigError(msg, stream=config.name, remedy=f"set {key}, or its like")
    offsets = {info.partition: info.earliest for info in infos}
    if _ROWS in said:
        for info in infos:
            if info.latest is not None:
                kept = info.latest - config[_ROWS]
                offsets[info.partition] = max(offsets[info.partition], kept)
    if _AGE in said:
        oldest = datetime.now(UTC) - timedelta(milliseconds=config[_AGE])
        young = starting_offsets(
            config, admin.metadata, infos, start=oldest, default="earliest"
        )
        offsets = {p: max(offset, young[p]) for p, offset in offsets.items()}
    others = tuple(f"{k}={v}" for k, v in said.items() if k not in (_AGE, _ROWS))
    return Plan(_cuts(infos, offsets, hold or {}), others)


def retention_of(admin: Admin) -> dict[str, str]:
    """The options of retention that are set, as they were written."""
    settings = admin.config.settings
    return {k: s.text for k, s in settings.items() if k.startswith(_RETENTION)}


def held_by_checkpoints(admin: Admin, folder: Path) -> dict[Partition, Hold]:
    """What the groups of readers whose checkpoints a folder has still want.

    A group that reads the topic and has no checkpoint of a partition begins at its
    earliest, and so wants all of it.

    Args:
        admin: The topic's.
        folder: As ``checkpoint.location`` names it: a folder for each group.

    Raises:
        MisuseError: misuse; the folder has no checkpoints. Holding nothing by mistake
            would delete what is wanted.
        PositionRefused: permanent; a checkpoint is corrupt, newer, or of an earlier
            life of the topic.
    """
    store = FileCheckpointStore(folder)
    groups = {name: store.load(name) for name in _groups(folder)}
    if not any(groups.values()):
        msg = f"there are no checkpoints in {folder}"
        remedy = "give the folder that checkpoint.location names, or leave it out"
        raise MisuseError(msg, stream=admin.config.name, remedy=remedy)
    return _held(admin, groups)


def held_by_groups(admin: Admin) -> dict[Partition, Hold]:
    """The same, of groups whose checkpoints are where the topic is: on its server.

    Raises:
        MisuseError: misuse; there are none that this user may read.
        PositionRefused: permanent; as `held_by_checkpoints`.
        Unsupported: misuse; the type keeps no checkpoints.
    """
    store = admin.checkpoints()
    groups = {name: store.load(name) for name in store.groups()}
    if not any(groups.values()):
        msg = "no group has a checkpoint on the server, or none that may be read"
        raise MisuseError(msg, stream=admin.config.name, remedy="leave the option out")
    return _held(admin, groups)


def nearest(*holds: Mapping[Partition, Hold]) -> dict[Partition, Hold]:
    """What some readers, and others, still want."""
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
    """What some groups still want, those aside that read something else."""
    infos = admin.partitions()
    found: dict[Partition, Hold] = {}
    for group, checkpoints in groups.items():
        position = _merged(checkpoints)
        if not any(p.topic == admin.topic for p in position):
            continue  # a group that reads something else
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
        raise MisuseError(msg, remedy="look at the path") from error


def _merged(checkpoints: Mapping[str, Checkpoint]) -> Position:
    """Where a group stands: of each partition, its newest checkpoint holds."""
    position = Position()
    for one in sorted(checkpoints.values(), key=lambda c: c.generation):
        position = position.merge(one.position)
    return position


def _wanted(admin: Admin, group: str, info: PartitionInfo, position: Position) -> int:
    partition = info.partition
    counted = position.incarnations.get(partition)
    if was_recreated(counted, info.incarnation):
        msg = (
            f"the checkpoint of group {group!r} is of an earlier life of {partition}: "
            "what it still wants cannot be told"
        )
        remedy = "remove it if no reader uses it any more"
        raise PositionRefused(msg, stream=admin.config.name, remedy=remedy)
    return position.get(partition, info.earliest)


def _cuts(
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
        life = info.incarnation
        cuts.append(Cut(partition, info.earliest, info.latest, before, life, group))
    return tuple(cuts)
