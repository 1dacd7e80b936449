"""Messages of JSON into columns by the compiled core."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.compiled.core import Core

    Part = tuple[np.ndarray, Sequence[pa.Array]]
    """Indices of messages, ascending, and their columns."""

_NOTHING = pa.py_buffer(b"")


@final
class CompiledMessages:
    """Parses the messages that are surely good, and leaves all others. Thread-safe.

    Args:
        core: The compiled core.
        kinds: Types of the columns, by field: bool, int64, double or string.
        all_fields: Whether a message without one of the fields is left.
    """

    def __init__(
        self, core: Core, kinds: Mapping[str, pa.DataType], *, all_fields: bool
    ) -> None:
        self._kinds = list(kinds.values())
        fields = [(name, str(kind)) for name, kind in kinds.items()]
        self._parser = core.FlatJson(fields, all_fields)

    def parts(
        self, texts: pa.StringArray, *, undeclared: bool
    ) -> tuple[list[Part], np.ndarray]:
        """Parse as many messages as possible.

        Args:
            texts: The messages.
            undeclared: Whether messages may have undeclared fields.

        Returns:
            The parsed messages, at most one part, and the indices of the others,
            ascending.
        """
        numbers = np.arange(len(texts))
        if texts.null_count or not len(texts):
            return [], numbers
        _, offsets, data = texts.buffers()
        left, columns = self._parser.parse(
            offsets, data or _NOTHING, texts.offset, len(texts), undeclared
        )
        others = np.frombuffer(memoryview(left), np.int64)
        rows = np.delete(numbers, others) if len(others) else numbers
        if not len(rows):
            return [], numbers
        arrays = [
            pa.Array.from_buffers(
                kind, len(rows), [valid and pa.py_buffer(valid), *map(pa.py_buffer, of)]
            )
            for kind, (valid, of) in zip(self._kinds, columns, strict=True)
        ]
        return [(rows, arrays)], others
