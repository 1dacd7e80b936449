"""Figures of triggers: ours and the ceiling, beside Spark's rate sources."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from benchmarks.measuring.figures import AGAIN, figure, ratios, shuffled
from benchmarks.measuring.trivial import SingleRows
from benchmarks.triggers.queries import IDLE, ROW, ROWS, milliseconds
from benchmarks.triggers.streams import check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import SparkSession

_CEILING: Final = "ceiling"
_PEERS: Final = {ROW: "rate-micro-batch", IDLE: "rate"}
_WARMING: Final = (*_PEERS.values(), _CEILING)
_GOAL: Final = "<= 1.1 of ceiling"

Taken = dict[str, list[dict[str, float]]]
"""Milliseconds of each kind of trigger, by side and round."""


def figures(
    spark: SparkSession,
    folder: Path,
    rounds: int,
    streams: Mapping[str, Mapping[str, str]],
) -> Iterator[Figure]:
    """Return two figures of each stream: a trigger of one row, and one without any.

    Args:
        spark: The session, with the settings of `queries`.
        folder: Gets checkpoints.
        rounds: One more of Spark's sources and of the ceiling warms up.
        streams: Options of ours, by name.
    """
    for options in streams.values():
        check(options)
    taken = _measured(spark, folder, rounds, streams)
    for name in streams:
        for kind, peer in _PEERS.items():
            ours, bare, again, theirs = (
                [one[kind] for one in taken[side]]
                for side in (name, _CEILING, AGAIN, peer)
            )
            yield figure(
                f"{kind}, {name}",
                ratios(ours, theirs),
                f"x {peer.partition('-')[0]}",
                _GOAL,
                {
                    "ms": statistics.median(ours),
                    "ms of the ceiling": statistics.median(bare),
                },
                ceiling=ratios(bare, theirs),
                again=ratios(bare, again),
            )


def _measured(
    spark: SparkSession,
    folder: Path,
    rounds: int,
    streams: Mapping[str, Mapping[str, str]],
) -> Taken:
    """All sides in turns; the ceiling twice, which shows the noise."""
    spark.dataSource.register(SingleRows)
    bare = (SingleRows.name(), {"rows": str(ROWS)}, [ROW, IDLE])
    sides: dict[str, tuple[str, Mapping[str, str], Sequence[str]]] = {
        _PEERS[ROW]: (_PEERS[ROW], {"rowsPerBatch": "1"}, [ROW]),
        _PEERS[IDLE]: (_PEERS[IDLE], {"rowsPerSecond": "1"}, [IDLE]),
        _CEILING: bare,
        AGAIN: bare,
    }
    for name, options in streams.items():
        sides[name] = ("streamfactory", options, [ROW, IDLE])
    taken: Taken = {side: [] for side in sides}
    for number in range(rounds + 1):
        # Java warms up in the first round: a few sides are enough for that.
        taking = sides if number else {side: sides[side] for side in _WARMING}
        for side, (form, given, kinds) in shuffled(taking):
            frame = spark.readStream.format(form).options(**given).load()
            one = milliseconds(frame, folder, kinds)
            if number:
                taken[side].append(one)
    return taken
