"""What a predicate of Polars implies for the metadata columns, as an Arrow filter.

Only Polars' public introspection is used: an expression is taken apart with
``meta.pop`` and recognized by building the candidates from its parts and comparing.
"""

from __future__ import annotations

import operator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_COMPARISONS: Final = (
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
)
"""Polars' optimizer puts literals on the right."""


def implied_filter(
    predicate: pl.Expr, columns: Collection[str]
) -> ds.Expression | None:
    """A filter that every row of a predicate passes; None where nothing is implied.

    Args:
        predicate: Of Polars.
        columns: The columns that the filter may refer to.
    """
    parts = predicate.meta.pop()
    if len(parts) == 2:
        return _of_two(predicate, parts[1], parts[0], columns)
    if len(parts) == 3:
        column, low, high = parts[2], parts[1], parts[0]
        if predicate.meta.eq(column.is_between(low, high)):
            return _both(
                _compared(column, low, operator.ge, columns),
                _compared(column, high, operator.le, columns),
            )
    return None


def _of_two(
    predicate: pl.Expr, left: pl.Expr, right: pl.Expr, columns: Collection[str]
) -> ds.Expression | None:
    same = predicate.meta.eq
    if same(left & right):
        return _both(implied_filter(left, columns), implied_filter(right, columns))
    if same(left | right):
        one, other = implied_filter(left, columns), implied_filter(right, columns)
        return None if one is None or other is None else one | other
    for compare in _COMPARISONS:
        if same(compare(left, right)):
            return _compared(left, right, compare, columns)
    if left.meta.is_literal() or not same(left.is_in(right)):
        return None
    name, values = _column(left, columns), _value(right)
    if name is None or not isinstance(values, pl.Series):
        return None
    wanted = [value for value in values.to_list() if value is not None]
    return ds.field(name).isin(wanted) if wanted else None


def _both(
    one: ds.Expression | None, other: ds.Expression | None
) -> ds.Expression | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _compared(
    column: pl.Expr,
    value: pl.Expr,
    compare: Callable[..., Any],
    columns: Collection[str],
) -> ds.Expression | None:
    name, scalar = _column(column, columns), _value(value)
    if name is None or not isinstance(scalar, str | int | float | datetime):
        return None
    return compare(ds.field(name), pa.scalar(scalar))


def _column(expression: pl.Expr, columns: Collection[str]) -> str | None:
    if not expression.meta.is_column():
        return None
    name = expression.meta.output_name()
    return name if name in columns else None


def _value(expression: pl.Expr) -> Any:
    """The value of a literal; None where there is none."""
    if not expression.meta.is_literal():
        return None
    return pl.select(expression).item()
