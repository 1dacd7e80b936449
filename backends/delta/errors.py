"""Translation of the exceptions of ``deltalake`` and Arrow's file systems."""

from __future__ import annotations

from typing import Final

from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

from streamfactory.spi import FormatRefused, TopicNotFound
from streamfactory.tables import error_table

TRANSLATION: Final = error_table(
    {
        TableNotFoundError: TopicNotFound,
        DeltaProtocolError: FormatRefused,
        DeltaError: FormatRefused,
    }
)
