"""Translation of the exceptions of Arrow's file systems."""

from __future__ import annotations

from typing import Final

from streamfactory.tables import error_table

TRANSLATION: Final = error_table({})
