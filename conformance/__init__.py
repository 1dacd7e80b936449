"""The conformance kit: a stranger proves a backend with one command and no JVM.

``streamfactory conformance TYPE`` runs every case that the backend's claims and the
harness's abilities allow. A harness is what the author supplies (`Harness`): a hand on
the medium that does not go through the code under test. ``suite`` has the same as a
pytest class, and ``--decoder NAME`` proves a decoder.
"""

from streamfactory.conformance.case import CASES, Case, Mismatch
from streamfactory.conformance.harness import Harness, Message
from streamfactory.conformance.runner import Outcome, Result, run

__all__ = [
    "CASES",
    "Case",
    "Harness",
    "Message",
    "Mismatch",
    "Outcome",
    "Result",
    "run",
]
