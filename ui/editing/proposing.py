"""What a page shows of a place: topics to choose from, or a definition and its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import Unsupported
from streamfactory.transfer.discovering import Place, discover
from streamfactory.ui.cells import MOST_COLUMNS, cell_rows
from streamfactory.ui.editing.checking import try_out
from streamfactory.ui.editing.drafts import draft_of, folder_of
from streamfactory.wiring.config.written import toml_of
from streamfactory.wiring.core.anchoring import project_of

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.ui.shown import ShownPlace
    from streamfactory.wiring.config.definition import StreamDefinition

Document = dict[str, Any]

_MOST_TOPICS: Final = 1000


def proposed(shown: ShownPlace, like: StreamDefinition | None) -> Document:
    """Look at a place.

    Args:
        shown: What a client asks for.
        like: The stream whose connection is used, if one is named.

    Returns:
        ``topics`` to choose from, with their ``count``; or, if there are none, the
        ``text`` of a definition and what `try_out` finds. ``notes`` in both cases.

    Raises:
        MisuseError: misuse; the definition would have literal secrets.
        StreamError: As `discover`.
    """
    folder = folder_of("stream").path
    place = Place(
        shown.name, shown.text, shown.kind, shown.topic, project_of(folder), like
    )
    found = discover(place)
    document: Document = {
        "topics": found.topics[:_MOST_TOPICS],
        "count": len(found.topics),
        "notes": [*found.notes],
        "text": "",
        "found": None,
    }
    if found.topics:
        return document
    text = toml_of(found.definition)
    draft_of("stream", folder / "new.toml", text)  # refuses literal secrets
    document["text"] = text
    if found.rows is not None:
        document["found"] = _file(found.rows)
        return document
    try:
        document["found"] = try_out(found.definition)
    except Unsupported as error:
        document["notes"].append(str(error))
    return document


def _file(rows: pa.RecordBatch) -> Document:
    """The columns and the rows of a file, as `try_out` has those of a stream."""
    columns = rows.schema.names[:MOST_COLUMNS]
    return {
        "ok": True,
        "steps": [],
        "schema": [{"name": one.name, "type": str(one.type)} for one in rows.schema],
        "rows": {
            "columns": columns,
            "rows": [{"cells": cells} for cells in cell_rows(rows, columns)],
        },
    }
