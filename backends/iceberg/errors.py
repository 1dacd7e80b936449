"""Translation of the exceptions of ``pyiceberg`` and Arrow's file systems."""

from __future__ import annotations

from typing import Final

from pyiceberg.exceptions import ValidationError

from streamfactory.spi import FormatRefused
from streamfactory.tables import error_table

TRANSLATION: Final = error_table(
    {
        ValidationError: FormatRefused,
    }
)
