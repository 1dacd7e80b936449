"""Pickling of objects for executors, with an error if the package is missing there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

from pyspark import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Callable


class Shipped:
    """Pickled so that an executor without the package raises a clear error."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        plain: Any = super().__reduce_ex__(protocol)
        packed = cloudpickle.dumps(plain[:3])  # type: ignore[no-untyped-call]
        return _opener(), (packed,)


def _opener() -> Callable[[bytes], Any]:
    # cloudpickle pickles nested functions by value, so this needs no import.
    def opened(packed: bytes) -> Any:
        import importlib
        import pickle
        import sys

        try:
            importlib.import_module("streamfactory.spark")
        except ImportError as error:
            msg = (
                f"this executor's Python, {sys.executable}, cannot import streamfactory"
                f" ({error}): install it there with pip install 'streamfactory[spark]',"
                " or ship an environment and name its Python in PYSPARK_PYTHON"
            )
            raise ImportError(msg) from None
        from streamfactory.spark.workers import prepare_worker

        prepare_worker()
        made, arguments, state = pickle.loads(packed)  # noqa: S301 - as all of PySpark
        found = made(*arguments)
        if hasattr(found, "__setstate__"):
            found.__setstate__(state)
        else:
            vars(found).update(state or {})
        return found

    return opened
