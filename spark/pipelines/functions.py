"""The rows of steps: of a query, or of a Python function."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from streamfactory.spi import ConfigError
from streamfactory.spi.causes import first_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from pyspark.sql import SparkSession

    from streamfactory.spark.pipelines.model import Step


def rows_of(session: SparkSession, step: Step) -> DataFrame:
    """The rows of a step, over the views of the ids that it reads.

    Raises:
        ConfigError: config; the function cannot be imported, fails, or returns
            something else than a DataFrame.
        Errors of Spark are raised as they are.
    """
    if step.python is None:
        return session.sql(step.sql)
    function = _function(step.python)
    try:
        found = function(*(session.table(name) for name in step.inputs))
    except (PySparkException, Py4JJavaError):
        raise
    # A foreign function must not end the process.
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{step.python} failed: {type(error).__name__}: {first_line(error)}"
        msg = f"{what}, in {frame.filename}:{frame.lineno}"
        raise ConfigError(msg) from error
    if not isinstance(found, DataFrame):
        msg = f"{step.python} returned a {type(found).__name__}, wanted a DataFrame"
        raise ConfigError(msg)
    return found


def _function(path: str) -> Callable[..., Any]:
    """The function of ``module:function``. What it runs on executors goes with it."""
    name, _, attribute = path.partition(":")
    try:
        found = getattr(import_module(name), attribute)
    # A foreign module must not end the process at import.
    except (Exception, SystemExit) as error:
        msg = f"{path} cannot be loaded: {type(error).__name__}: {first_line(error)}"
        remedy = "install the module, or name its folder in PYTHONPATH"
        raise ConfigError(msg, remedy=remedy) from error
    if not callable(found):
        msg = f"{path} is a {type(found).__name__}, wanted a function"
        raise ConfigError(msg)
    # Executors need not have the module: its functions are sent as they are here.
    by_value: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    by_value(sys.modules[name])
    function: Callable[..., Any] = found
    return function
