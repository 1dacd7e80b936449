"""P3: a group resumes at its last checkpoint, and saves one only on request."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import STARTS
from streamfactory.conformance.expectations import expect
from streamfactory.conformance.members import open_member, read_member
from streamfactory.spi import MetadataProvider, Position, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.conformance.bench import Bench

T = TypeVar("T")
"""The result of a call."""


@case(
    "P3",
    claims=("replayable",),
    hint="offsets differ from one reader to the next",
    needs=STARTS,
)
def a_group_resumes_at_its_last_checkpoint(bench: Bench) -> None:
    """After a restart a group reads exactly the messages after its last commit."""
    bench.create(partitions=2, messages=20)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        first = open_member(bench, Path(folder))
        early = sorted(n for partition in bench.written.values() for n in partition)
        expect(read_member(bench, first, len(early)), early, "messages of a new group")
        bench.note("commit")
        first.commit()
        late = sorted(
            n for partition in bench.written for n in bench.write(partition, 5)
        )
        expect(read_member(bench, first, len(late)), late, "messages after the commit")
        first.close()
        bench.note("restart without a commit")
        again = open_member(bench, Path(folder))
        expect(read_member(bench, again, len(late)), late, "messages after a restart")
        again.close()


_POLL: Final = 0.05
_PUBLISHING: Final = (
    MetadataProvider.publish_position,
    MetadataProvider.fetch_groups,
    MetadataProvider.fetch_positions,
)


def _retried(bench: Bench, call: Callable[[], T]) -> T:
    """The result of a call, which the framework would retry after transient errors."""
    patience = bench.patience()
    while True:
        try:
            return call()
        except TransientError:
            if patience.over(_POLL):
                raise
            time.sleep(_POLL)


def _published(bench: Bench) -> dict[str, Position]:
    """Positions of two groups that were published: the first and the last offsets."""
    bench.create(partitions=2, messages=5)
    infos = bench.infos(bench.provider())
    places = {bench.partition(number): info for number, info in infos.items()}
    latest = {partition: info.latest or 0 for partition, info in places.items()}
    found = {
        f"{bench.topic}-first": Position({p: i.earliest for p, i in places.items()}),
        f"{bench.topic}-last": Position(latest),
    }
    for group, position in found.items():
        bench.note(f"publish_position({group!r})")
        publish = bench.provider().publish_position
        _retried(bench, partial(publish, group, position))
    return found


@case(
    "P3",
    overrides=_PUBLISHING,
    hint="groups without members are missing from the list",
)
def groups_with_positions_are_listed(bench: Bench) -> None:
    """fetch_groups lists each group that has a position, once and in order."""
    published = _published(bench)
    listed = list(_retried(bench, bench.provider().fetch_groups))
    expect(listed, sorted(listed), "the order of the groups")
    ours = [group for group in listed if group in published]
    expect(ours, sorted(published), "groups whose positions were published")


@case(
    "P3",
    overrides=_PUBLISHING,
    hint="positions of one group are returned for another, or partitions are missing",
)
def positions_of_groups_are_those_that_were_published(bench: Bench) -> None:
    """fetch_positions returns the next offset of each partition, by group."""
    published = _published(bench)
    for groups in ([*published], [max(published)]):
        found = _retried(bench, partial(bench.provider().fetch_positions, groups))
        offsets = {group: dict(found[group]) for group in groups if group in found}
        wanted = {group: dict(published[group]) for group in groups}
        expect(offsets, wanted, f"positions of {', '.join(groups)}")
    unknown = f"{bench.topic}-unknown"
    found = _retried(bench, partial(bench.provider().fetch_positions, [unknown]))
    expect(dict(found.get(unknown, {})), {}, "positions of a group that has none")
