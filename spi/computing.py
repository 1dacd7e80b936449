"""Arrow's compute functions, imported at the first use of one: for our own modules.

``pyarrow.compute`` generates its functions when it is imported. That takes 30 ms, which
a reader of plain rows does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, final


@final
class _Compute:
    """Stands for ``pyarrow.compute``; keeps each function that was used."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module("pyarrow.compute"), name)
        setattr(self, name, value)  # found without this method from now on
        return value


pc: Final = _Compute()
