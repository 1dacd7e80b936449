"""Whether what an entry point did with an input is allowed."""

from __future__ import annotations

import os
import re
import time
import traceback
from collections import Counter
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.spi import StreamError
from streamfactory.spi.errors import ContractBroken, UntranslatedError

if TYPE_CHECKING:
    from tests.fuzz.entries.base import Entry

MEMORY: Final = 200 << 20
"""Bytes that a small input may cost."""
_LOOKED_AT: Final = 100
"""Rows at each end of a batch whose values are made Python's."""
_VALUES: Final = 100_000
"""Values of a column, above which they are not made Python's."""
_PIECES: Final = 20
"""Batches of one input that are looked at."""
_JUDGING: Final = 3.0
"""Seconds of a processor that looking at the batches of one input may take: it counts
as time of the input, which would seem to hang."""
_NO_VALUE: Final = (ValueError, ArithmeticError, OverflowError)
"""What pyarrow raises for a value that Python has no object for: a year, a scale."""
_STATUS: Final = Path("/proc/self/status")
_REFERENCES: Final = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that no input may cause."""

    entry: str
    number: int
    """Of the input; -1 where it was given as a file."""
    kind: str
    """``crash``, ``hang``, ``untyped``, ``unsound``, ``memory``, ``stderr``, ..."""
    what: str
    """The same for inputs that do the same."""
    detail: str = ""
    """The stack, or what was printed."""

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


class Judge:
    """Feeds inputs to one entry point and says what was wrong.

    Args:
        entry: The entry point.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self.outcomes: Counter[str] = Counter()
        """How often each came of an input: ``accepted``, or the code of an error."""
        self.accepted = 0
        """Messages of all inputs that were accepted."""

    def feed(self, number: int, data: bytes) -> Finding | None:
        """Feed one input."""
        _reset_peak()
        before, arrow = _resident("VmRSS"), pa.default_memory_pool().max_memory()
        printed = os.fstat(2).st_size
        found = self._feed(data)
        more = _resident("VmHWM") - before
        asked = pa.default_memory_pool().max_memory()
        if found is None and asked > arrow:
            more = max(more, asked - pa.total_allocated_bytes())
        if found is None and os.fstat(2).st_size > printed:
            text = os.pread(2, 4000, printed).decode(errors="replace")
            found = "stderr", text.strip().splitlines()[0], text
        if found is None and more > MEMORY + 8 * len(data):
            found = "memory", "more than 200 MB", f"{more >> 20} MB"
        if found is None:
            wrong = self._entry.check()
            found = None if wrong is None else ("escape", wrong, "")
        if found is None:
            return None
        self.outcomes[found[0]] += 1
        return Finding(self._entry.NAME, number, *found)

    def _feed(self, data: bytes) -> tuple[str, str, str] | None:
        try:
            judging = 0.0
            with closing(self._entry.feed(data)) as handed:
                for count, rows in enumerate(handed):
                    began = time.process_time()
                    wrong = unsound(rows)
                    if wrong is not None:
                        return wrong
                    judging += time.process_time() - began
                    # What unpacks to gigabytes may come in pieces without end.
                    if count > _PIECES or judging > _JUDGING:
                        break
        except (UntranslatedError, ContractBroken) as error:
            return "untyped", _signature(error), _stack(error)
        except StreamError as error:
            self.outcomes[error.code] += 1
            return None
        except AssertionError as error:
            return "contract", str(error), _stack(error)
        except TimeoutError as error:
            return "hang", str(error), _stack(error)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            return "untyped", _signature(error), _stack(error)
        self.outcomes["accepted"] += 1
        self.accepted += self._entry.accepted()
        return None


def unsound(rows: pa.RecordBatch) -> tuple[str, str, str] | None:
    """What is wrong with a batch that was handed out."""
    try:
        rows.validate(full=True)
        for column in rows.columns:
            _look(column)
        # Whoever has a batch writes it, joins it and reads it again.
        if rows.num_rows <= _LOOKED_AT:
            _written(rows)
    except MemoryError as error:
        return "memory", "values that memory does not hold", _stack(error)
    except Exception as error:
        kinds = ", ".join(sorted({str(kind) for kind in rows.schema.types}))
        return "unsound", _signature(error), f"{kinds[:500]}\n{_stack(error)}"
    return None


def _written(rows: pa.RecordBatch) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    for read in pa.ipc.open_stream(sink.getvalue()):
        read.validate(full=True)


def _look(column: pa.Array) -> None:
    """Make values Python's; those that Python has no object for are passed over."""
    # Nulls take no bytes in Arrow; as Python's values they take all the time there is.
    if _longest(column) > _VALUES:
        return
    for part in (column[:_LOOKED_AT], column[-_LOOKED_AT:]):
        if part.nbytes > MEMORY:
            continue
        try:
            part.to_pylist()
        except UnicodeDecodeError:
            raise
        except _NO_VALUE:
            continue
        except pa.ArrowNotImplementedError:
            continue


def _longest(column: pa.Array) -> int:
    """The length of the longest array that a column consists of."""
    if isinstance(column, pa.ExtensionArray):
        return _longest(column.storage)
    kind, inner = column.type, []
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        inner = [column.field(at) for at in range(kind.num_fields)]
    elif pa.types.is_dictionary(kind):
        inner = [column.dictionary]
    elif kind.num_fields:  # lists, maps, run-end encoded values
        inner = [column.values]
    return max([len(column), *map(_longest, inner)])


def _signature(error: BaseException) -> str:
    """The same for errors of one cause: numbers in texts are left out."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "tests/fuzz" not in f.filename] or frames
    near = [f for f in ours if f.filename.endswith(".py")] or ours
    place = f"{Path(near[-1].filename).name}:{near[-1].name}" if near else ""
    cause = error.__cause__ or error
    lines = re.sub(r"-?\d+", "#", str(cause)).splitlines() or [""]
    return f"{type(cause).__name__} in {place}: {lines[0][:100]}"


def _stack(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-6000:]


def _resident(key: str) -> int:
    """Bytes of memory, now (VmRSS) or at most (VmHWM)."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) << 10
    return 0


def _reset_peak() -> None:
    """Begin to count the most memory anew."""
    with suppress(OSError):
        _REFERENCES.write_text("5")
