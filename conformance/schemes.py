"""The environment of one case of a scheme of references (C2).

The author's harness stores values where the scheme looks them up, and returns what
follows the colon in references to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.conformance.expectations import require
from streamfactory.conformance.harness import SchemeHarness
from streamfactory.conformance.workbench import Workbench
from streamfactory.spi import StreamError
from streamfactory.spi.references import forget, malformed, resolve

if TYPE_CHECKING:
    from streamfactory.spi import ReferenceScheme

PLANTED: Final = "planted-Q7x"
"""The beginning of every value; no error may contain it."""


@final
class SchemeBench(Workbench[SchemeHarness]):
    """The environment of a case.

    Args:
        scheme: Under test.
        harness: The author's.
        seed: Seed of the random choices.
    """

    def __init__(self, scheme: ReferenceScheme, harness: Any, seed: int = 0) -> None:
        super().__init__(harness, seed)
        self.scheme = scheme
        self.closing(self.harness)

    def reference(self, what: str) -> str:
        """The reference of what follows the colon."""
        return f"${{{self.scheme.name}:{what}}}"

    def stored(self, value: str) -> str:
        """The reference of a value that is stored first."""
        self.note(f"store({len(value)} characters)")
        return self.reference(self.harness.store(value))

    def resolved(self, text: str) -> str:
        """The value of a reference, looked up now."""
        require(malformed(text) is None, f"{text} is malformed: {malformed(text)}")
        forget(text)
        self.note(f"resolve({text!r})")
        return resolve(text)

    def error_of(self, text: str) -> StreamError:
        """The error of a reference that has no value; it shows no secret."""
        try:
            value = self.resolved(text)
        except StreamError as error:
            require(PLANTED not in f"{error} {error!r}", "an error shows a value")
            require(text[:40] in str(error), f"the error does not name {text}: {error}")
            return error
        msg = f"{text} has a value of {len(value)} characters, expected an error"
        require(False, msg)
        raise AssertionError
