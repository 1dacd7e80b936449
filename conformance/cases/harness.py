"""H: what the harness itself owes the kit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.conformance.case import case
from streamfactory.conformance.expectations import Excluded, HarnessFailed
from streamfactory.conformance.harness import HasSinkProperties, WritesRows

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench


@case(
    "H1",
    abilities=(WritesRows,),
    hint="visible() reads another stream than write() fills, or too early",
    first=True,
)
def the_harness_sees_what_it_writes(bench: Bench) -> None:
    """What ``write`` puts into the medium is what ``visible`` finds there."""
    if bench.has(HasSinkProperties):
        msg = "write() and visible() use the two ends of a wire"
        raise Excluded(msg)
    bench.create(partitions=2, messages=5)
    visible = bench.use(WritesRows).visible()
    found = {partition: list(numbers) for partition, numbers in visible.items()}
    if found != bench.written:
        msg = f"after write() visible() answers {found}, wanted {bench.written}"
        raise HarnessFailed(msg)
