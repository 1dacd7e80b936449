"""What PySpark looks for at start, by its name: ``format("streamfactory")``.

PySpark imports every module whose name begins like this one's, without a guard: it has
to be small, and a failure here must not stop sessions that do not use streamfactory.
Those that do get the reason later.
"""

from contextlib import suppress
from importlib import import_module

with suppress(Exception):  # a PySpark without data sources has no use for this
    from pyspark.sql.datasource import DataSource

    try:
        DefaultSource = import_module("streamfactory.spark.source").StreamFactorySource
    except Exception as error:  # noqa: BLE001 - whatever is broken
        _reason = f"streamfactory cannot be used: {type(error).__name__}: {error}"

        class DefaultSource(DataSource):  # type: ignore[no-redef]
            """Stands for a source that could not be imported."""

            def __init__(self, options: object) -> None:  # noqa: ARG002
                msg = f"{_reason}; repair it with: pip install 'streamfactory[spark]'"
                raise ImportError(msg)

            @classmethod
            def name(cls) -> str:
                """What ``format`` takes."""
                return "streamfactory"
