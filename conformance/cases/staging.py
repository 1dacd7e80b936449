"""W1, W4: what the medium holds for epochs that are aborted, or never decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.writing import WRITER, seen, stage, write
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import ShowsStaged, WritesRows

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench


@case(
    "W4",
    claims=("epoch_visibility=whole",),
    abilities=(WritesRows, ShowsStaged),
    writing=True,
    hint="abort, or the commit, removes nothing of what was staged",
    needs=("the_harness_sees_what_it_writes",),
)
def decided_epochs_leave_nothing_staged(bench: Bench) -> None:
    """Of attempts and epochs that were aborted or committed nothing is staged."""
    bench.create(partitions=2)
    sink, staged = bench.sink(), bench.use(ShowsStaged).staged
    rows = bench.use(WritesRows).rows([1, 2])
    writer = bench.closing(sink.writer(rows.schema, writer_id=WRITER, epoch=0))
    writer.write(rows)
    writer.abort()
    expect({*staged()}, set(), "what is staged after an attempt was aborted")
    messages = stage(bench, sink, 0, [[1, 2], [3]])
    require(staged(), "nothing is staged before the decision")
    committer = bench.closing(sink.committer(writer_id=WRITER))
    committer.abort(0, messages)
    expect({*staged()}, set(), "what is staged after an epoch was aborted")
    write(bench, bench.sink(), 0, [[1, 2], [3]])
    expect({*staged()}, set(), "what is staged after an epoch was committed")
    # Another attempt of the same epoch, which has no effect.
    write(bench, bench.sink(), 0, [[1, 2], [3]])
    expect({*staged()}, set(), "what is staged after an epoch was repeated")
    expect(seen(bench), [1, 2, 3], "what is visible")


@case(
    "W1",
    claims=("epoch_visibility=whole",),
    abilities=(WritesRows, ShowsStaged),
    writing=True,
    hint="what a writer that was killed has staged stays for ever",
    needs=("decided_epochs_leave_nothing_staged",),
)
def abandoned_attempts_are_removed(bench: Bench) -> None:
    """What is never decided is removed in time, or by the next commit of its writer."""
    bench.create(partitions=2)
    stage(bench, bench.sink(), 0, [[1, 2], [3]])
    staged = bench.use(ShowsStaged).staged
    require(staged(), "nothing is staged before the decision")
    if all(staged().values()):
        return
    write(bench, bench.sink(), 0, [[1, 2, 3]])
    kept = sorted(name for name, removed in staged().items() if not removed)
    expect(kept, [], "what is staged for ever after the next commit of its writer")
