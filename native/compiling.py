"""Compiles the core with the machine's Rust.

``python native/compiling.py FOLDER`` puts it into a folder, which is made.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).with_name("streamfactory_native")
CORE: Final = "_core.abi3.so"
_OLDEST_GLIBC: Final = (2, 17)


class NoCompiler(Exception):
    """This machine has no compiler."""


def cargo() -> str:
    """Rust's build command: ``CARGO``, else on the path, else where rustup puts it.

    Raises:
        NoCompiler: There is none.
    """
    usual = str(Path.home() / ".cargo" / "bin" / "cargo")
    names = [os.environ.get("CARGO", ""), "cargo", usual]
    found = next(filter(None, map(shutil.which, filter(None, names))), None)
    if found is None:
        msg = "streamfactory-native needs Rust 1.88: install it by rustup, or set CARGO"
        raise NoCompiler(msg)
    return found


def compile_core(folder: Path) -> Path:
    """Compile the core into a folder. What was built before is used again.

    Args:
        folder: It exists.

    Raises:
        NoCompiler: There is no Rust.
        subprocess.CalledProcessError: It failed; its messages are on standard error.
    """
    command = cargo()
    # The other programs of its toolchain are beside it, and perhaps not on the path.
    path = os.pathsep.join([str(Path(command).parent), os.environ["PATH"]])
    made = PACKAGE.with_name("target")
    options = ["--release", "--locked", "--quiet", "--target-dir", str(made)]
    subprocess.run(  # noqa: S603 - the machine's own compiler
        [command, "build", *options],
        check=True,
        cwd=PACKAGE.parent,
        env={**os.environ, "PATH": path},
    )
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    built = made / "release" / f"libstreamfactory_core{suffix}"
    return Path(shutil.copy(built, folder / CORE))


def wheel_tag(library: Path) -> str:
    """The tag of a wheel with this library: any Python from 3.11, one platform."""
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if platform.libc_ver()[0] == "glibc":
        symbols = re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())
        if max((2, int(minor)) for minor in symbols) <= _OLDEST_GLIBC:
            name = f"manylinux_2_17_{platform.machine()}"
    return f"cp311-abi3-{name}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    try:
        compile_core(target)
    except NoCompiler as reason:
        sys.exit(str(reason))
