"""Two changes of one group's position at once, and what they led to."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from streamfactory.spi import StreamError
from streamfactory.wiring.streams.positions import GroupPositions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.reading.source import Source


def change_at_once(
    source: Callable[[ExitStack], Source], group: str, *changes: Marks
) -> list[StreamError | None]:
    """Plan changes one after the other, and make them at once; why each was refused."""
    with ExitStack() as stack:
        planned = []
        for change in changes:
            groups = stack.enter_context(GroupPositions(source(stack)))
            planned.append((groups, groups.plan(group, change)))

        def apply(groups: GroupPositions, number: int) -> None:
            ready.wait(30)
            try:
                groups.apply(planned[number][1])
            except StreamError as error:
                outcomes[number] = error

        ready = threading.Barrier(len(planned))
        outcomes: list[StreamError | None] = [None] * len(planned)
        in_threads(
            [
                lambda groups=groups, n=n: apply(groups, n)  # type: ignore[misc]
                for n, (groups, _) in enumerate(planned)
            ]
        )
        return outcomes


def in_threads(calls: Sequence[Callable[[], object]]) -> None:
    """Run calls at once, each in a thread of its own."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
