"""H: what the harness itself owes the kit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.conformance.case import case
from streamfactory.conformance.expectations import Excluded, HarnessFailed

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench


@case(
    "H1",
    abilities=("visible",),
    hint="visible() reads another stream than write() fills, or too early",
    first=True,
)
def the_harness_sees_what_it_writes(bench: Bench) -> None:
    """What ``write`` puts into the medium is what ``visible`` finds there."""
    if hasattr(bench.harness, "sink_properties"):
        msg = "write() and visible() use the two ends of a wire"
        raise Excluded(msg)
    bench.create(partitions=2, messages=5)
    found = {lane: list(rows) for lane, rows in bench.harness.visible().items()}
    if found != bench.written:
        msg = f"after write() visible() answers {found}, wanted {bench.written}"
        raise HarnessFailed(msg)
