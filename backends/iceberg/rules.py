"""Rules over the options of ``iceberg``: a path, or a table of a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.rules import scheme_of
from streamfactory.spi import Role
from streamfactory.tables.options import WRITE_OPTIONS
from streamfactory.tables.stores import location_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Problem, StreamConfig

_EITHER: Final = "set table with warehouse or catalog.prop.uri, or path to read only"
_OF_CATALOGS: Final = (
    *("warehouse", "catalog", "partition.by", "sort.by", "producer.key.columns"),
    *(one.key for one in WRITE_OPTIONS),
)
"""Options without effect on a table that is only read."""
_CHOOSE: Final = frozenset(("type", "uri"))
"""Properties of pyiceberg that name a catalog."""
_CODE: Final = ("py-catalog-impl", "py-io-impl")
"""Properties of pyiceberg that name a class, which it imports."""


def check_options(config: StreamConfig, role: Role | None) -> Iterator[Problem]:
    """See `Backend.check_options`."""
    if "table" in config:
        yield from _catalog_problems(config)
    elif "path" not in config:
        yield config.problem("table", "is required, unless path is set", _EITHER)
    else:
        yield from location_problems(config, "path")
        if role is Role.WRITE:
            what = "is required: a table is written through a catalog"
            yield config.problem("table", what, _EITHER)
        for key in _OF_CATALOGS:
            if config.given(key):
                what = "has no effect without table: a path is read only"
                yield config.problem(key, what, level="warning")


def _catalog_problems(config: StreamConfig) -> Iterator[Problem]:
    for key in _CODE:
        if key in config.client.get("catalog", {}):
            what = "names code to be imported, which a configuration may not"
            yield config.problem(f"catalog.prop.{key}", what, "omit it")
    if "path" in config:
        yield config.problem("path", "excludes table", "keep one of them")
    embedded = is_embedded(config)
    if "warehouse" not in config:
        if embedded:
            what = "requires warehouse, catalog or catalog.prop.uri"
            yield config.problem("table", what, "set warehouse to a folder")
        return
    yield from location_problems(config, "warehouse")
    if embedded and scheme_of(config["warehouse"]):
        what = "is in an object store, which has no catalog of its own"
        remedy = "set catalog.prop.uri to a database (sqlite:///...) or a REST catalog"
        yield config.problem("warehouse", what, remedy)


def is_embedded(config: StreamConfig) -> bool:
    """Whether the catalog is the SQLite database in the warehouse."""
    given = config.client.get("catalog", {})
    return not config.given("catalog") and _CHOOSE.isdisjoint(given)
