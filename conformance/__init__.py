"""The conformance kit: proves a backend with one command, without a JVM.

``streamfactory conformance TYPE`` runs every case that the backend's claims and the
harness's abilities allow. The author supplies a harness: access to the medium that does
not use the code under test; ``harness`` has its methods. ``suite`` has the same as a
pytest class, ``--decoder NAME`` proves a decoder, and ``--scheme NAME`` a scheme of
references. `LocalServer` starts the server that a harness needs.
"""

from streamfactory.conformance.case import CASES, Case
from streamfactory.conformance.expectations import Mismatch
from streamfactory.conformance.harness import (
    DecoderHarness,
    Harness,
    Message,
    SchemeHarness,
)
from streamfactory.conformance.runner import Outcome, Result, run
from streamfactory.conformance.servers import LocalServer, find_program
from streamfactory.conformance.subject import DecoderSubject, SchemeSubject, Subject

__all__ = [
    "CASES",
    "Case",
    "DecoderHarness",
    "DecoderSubject",
    "Harness",
    "LocalServer",
    "Message",
    "Mismatch",
    "Outcome",
    "Result",
    "SchemeHarness",
    "SchemeSubject",
    "Subject",
    "find_program",
    "run",
]
