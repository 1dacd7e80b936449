# ruff: noqa: INP001 - part of a script, in no package
"""The table of conversions in docs/types.md, from the rules that convert rows."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from streamfactory.conversion.leaves import FAMILIES, family, leaf_refusal

_KINDS: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "float": pa.float64(),
    "decimal": pa.decimal128(20, 2),
    "text": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp without zone": pa.timestamp("us"),
    "duration": pa.duration("us"),
    "interval": pa.month_day_nano_interval(),
}
"""A type of each family, by the name that the page gives it."""


def conversions() -> str:
    """Which types have values of others.

    Raises:
        SystemExit: A family of types has no row.
    """
    known = {family(kind) for kind in _KINDS.values()}
    lacking = {name for name, _ in FAMILIES} - known
    if lacking:
        msg = f"the table of conversions lacks {', '.join(sorted(lacking))}"
        raise SystemExit(msg)
    lines = ["| given | converted to, besides types of its own kind |", "|---|---|"]
    for name, have in _KINDS.items():
        kept = [
            other
            for other, want in _KINDS.items()
            if other != name and leaf_refusal(have, want) is None
        ]
        lines.append(f"| {name} | {', '.join(kept) or '-'} |")
    return "\n".join(lines)
