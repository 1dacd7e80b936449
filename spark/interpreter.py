"""The Python that Spark's processes on this machine are started with.

Spark puts an archive of PySpark before the package that is installed, and Python keeps
nothing of what it has compiled out of an archive: each of the ten processes that a
query needs would compile PySpark anew.
"""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_SCRIPT: Final = """\
#!/bin/sh
set -f
kept=
IFS=:
for place in $PYTHONPATH; do
  case $place in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) kept=$kept${{kept:+:}}$place ;;
  esac
done
unset IFS
PYTHONPATH=$kept
export PYTHONPATH
exec {python} "$@"
"""


@functools.cache
def python_of_workers() -> str:
    """An executable that is this interpreter, without Spark's archives.

    It lies in a folder that is removed when this process ends. Where PySpark is not
    installed, or nothing there may be executed, this interpreter as it is.
    """
    if os.name != "posix" or not all(map(_is_installed, ("pyspark", "py4j"))):
        return sys.executable
    folder = tempfile.mkdtemp(prefix="streamfactory-python-")
    atexit.register(_remove, folder, os.getpid())
    script = Path(folder, "python")
    script.write_text(_SCRIPT.format(python=shlex.quote(sys.executable)), "utf-8")
    script.chmod(0o700)
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _remove(folder: str, process: int) -> None:
    """A forked child that ends takes nothing from its parent."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _is_installed(package: str) -> bool:
    """Whether it is imported from files, and not out of an archive."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None and Path(spec.origin).is_file()
