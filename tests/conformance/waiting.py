"""How long cases wait in tests of the kit, whose backends answer at once or never."""

from __future__ import annotations

from typing import Final

from streamfactory.conformance.patience import Waits

IMPATIENT: Final = Waits(progress=1.0)
"""For backends with a defect: their cases wait for what never comes."""
HASTY: Final = Waits(settle=0.0, looks=8)
"""For cases with a leak."""
