"""The C compiler of the machine, for tests of programs in C."""

from __future__ import annotations

import os
import shutil

from native.compiling import NoCompiler


def compiler() -> str:
    """The C compiler: ``CC``, else cc, gcc or clang.

    Raises:
        NoCompiler: There is none.
    """
    names = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
    found = next(filter(None, map(shutil.which, filter(None, names))), None)
    if found is None:
        msg = "a test needs a C compiler: install gcc or clang, or set CC"
        raise NoCompiler(msg)
    return found
