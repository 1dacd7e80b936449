"""R2, R3 and all that they rest on: walks of any length, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.grounds import READING
from streamfactory.conformance.expectations import Excluded

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench


@case(
    "R2",
    claims=("replayable",),
    slow=True,
    hint="state is kept between calls that the calls before have made wrong",
    needs=READING,
)
def random_walks_agree_with_the_model(bench: Bench) -> None:
    """Writing, reading, splitting, retention, reopening: in any order, all agrees."""
    try:
        from streamfactory.conformance.model import walk
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        msg = (
            "Hypothesis is not installed: run: pip install 'streamfactory[conformance]'"
        )
        raise Excluded(msg) from error
    walk(bench)
