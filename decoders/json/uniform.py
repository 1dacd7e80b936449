"""Decodes the messages of a batch that share one layout; finds the layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.decoders.json.layouts import Messages, learned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.decoders.json.layouts import Layout

    Part = tuple[np.ndarray, Sequence[pa.Array]]
    """Indices of messages, ascending, and their columns."""

_CHUNK: Final = 16_384
"""Messages per step. The intermediate arrays of more do not fit the caches."""
_FEWEST: Final = 4_000
"""Messages below which parsing them is as fast."""
_PAUSE: Final = 64
"""Steps without an attempt after one that left more than an eighth of the messages."""


@final
class UniformMessages:
    """Decodes messages by layout. Remembers the layout; not thread-safe.

    Args:
        kinds: Types of the columns before their cast, by field; see `Structs.flat`.
        all_fields: Whether a missing field is an error.
    """

    def __init__(self, kinds: Mapping[str, pa.DataType], *, all_fields: bool) -> None:
        self._kinds = kinds
        self._all_fields = all_fields
        self._layout: Layout | None = None
        self._pause = 0

    def parts(
        self, texts: pa.StringArray, *, undeclared: bool
    ) -> tuple[list[Part], np.ndarray]:
        """Decode as many messages as possible.

        Args:
            texts: The messages.
            undeclared: Whether messages may have undeclared fields.

        Returns:
            The decoded messages, and the indices of the others, ascending.
        """
        parts: list[Part] = []
        others = [np.arange(0)]
        for first in range(0, len(texts), _CHUNK):
            some = texts.slice(first, _CHUNK)
            left = np.arange(first, first + len(some))
            part = self._part(some, undeclared=undeclared)
            if part is not None:
                parts.append((left[part[0]], part[1]))
                left = np.delete(left, part[0])
            others.append(left)
        return parts, np.concatenate(others)

    def _part(self, texts: pa.StringArray, *, undeclared: bool) -> Part | None:
        if len(texts) < _FEWEST:
            return None
        if self._pause:
            self._pause -= 1
            return None
        if self._layout is None:
            self._layout = learned(texts[0].as_py(), self._kinds)
        found = None
        if self._layout is not None and self._fits(self._layout, undeclared=undeclared):
            found = self._layout.columns(Messages(texts))
        if found is None or len(found[0]) < len(texts) * 7 // 8:
            self._layout, self._pause = None, _PAUSE
        if found is None:
            return None
        rows, columns = found
        return rows, [
            columns[name] if name in columns else pa.nulls(len(rows), kind)
            for name, kind in self._kinds.items()
        ]

    def _fits(self, layout: Layout, *, undeclared: bool) -> bool:
        """Whether messages of the layout are valid."""
        declared = self._kinds.keys()
        complete = not self._all_fields or declared <= layout.fields
        return complete and (undeclared or layout.fields <= declared)


def in_order(parts: Sequence[Part]) -> Sequence[pa.Array]:
    """The columns of all parts, in the order of the messages."""
    if len(parts) == 1:
        return parts[0][1]
    indices = np.concatenate([rows for rows, _ in parts])
    columns = [
        pa.concat_arrays(some) for some in zip(*(c for _, c in parts), strict=True)
    ]
    if (np.diff(indices) > 0).all():
        return columns
    order = pa.array(np.argsort(indices))
    return [column.take(order) for column in columns]
