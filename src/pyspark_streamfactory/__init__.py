"""What PySpark looks for at start, by its name: ``format("streamfactory")``.

PySpark imports every module whose name begins like this one's, without a guard: it has
to be small, and a failure here must not stop sessions that want nothing of us.
"""

from contextlib import suppress

with suppress(Exception):  # `streamfactory.spark.register` tells what it is
    from streamfactory.spark.source import StreamFactorySource as DefaultSource

__all__ = ["DefaultSource"]
