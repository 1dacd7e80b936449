"""Dead letters for pages: those that a replay has not written yet, and the others."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import StreamTimeout
from streamfactory.transfer.replaying import find_origin, find_outstanding
from streamfactory.ui.cells import cell_rows
from streamfactory.ui.looking import ROWS
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.core.plain import plain
from streamfactory.wiring.core.shown import masked
from streamfactory.wiring.reading.opened import opened_source

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.spi import Partition

    Document = dict[str, Any]

_SECONDS: Final = 20.0
"""For all letters of a stream."""


def outstanding(
    name: str, to: str, of: str = "", *, every: bool = False, last: bool = True
) -> Document:
    """What a replay would process, with some of the letters.

    Args:
        name: The stream of dead letters.
        to: The target; empty for the stream that the first letter comes from.
        of: The stream that the letters come from; empty for that of the first one.
        every: Whether letters are shown that were replayed, too.
        last: Whether the last letters are shown, instead of the first.

    Returns:
        ``to``, the counts, and ``letters``: fields by name, with ``row_place`` and
        ``resolved``. Without a letter only ``letters``, which is empty.

    Raises:
        StreamError: One of the streams cannot be read, or has too many letters.
    """
    catalogue, deadline = Catalogue(), time.monotonic() + _SECONDS
    definition = catalogue.get(name)
    with opened_source(definition) as source:
        to = to or find_origin(source) or ""
        mask = source.config.mask
    if not to:
        return {"letters": []}
    shown: deque[Document] = deque(maxlen=ROWS)

    def show(
        partition: Partition, letters: pa.RecordBatch, places: pa.Array, due: pa.Array
    ) -> None:
        unresolved = due.to_pylist()
        chosen = [at for at, one in enumerate(unresolved) if every or one]
        for at in chosen[-ROWS:] if last else chosen[: ROWS - len(shown)]:
            (cells,) = cell_rows(letters.slice(at, 1), letters.schema.names)
            fields = dict(zip(letters.schema.names, cells, strict=True))
            fields["row_place"] = f"{places[at].as_py()} of {partition}"
            shown.append({**fields, "resolved": not unresolved[at]})

    def check() -> None:
        if time.monotonic() > deadline:
            msg = f"the dead letters could not all be read within {_SECONDS:g} s"
            remedy = "replay them on the command line"
            raise StreamTimeout(msg, stream=name, remedy=remedy)

    found = find_outstanding(
        definition,
        catalogue.get(to),
        catalogue.get,
        of=catalogue.get(of) if of else None,
        on_letters=show,
        check=check,
    )
    counts = {} if found is None else plain(found)
    document = {**counts, "to": to, "letters": list(shown)}
    safe: Document = masked(document, mask)
    return safe
