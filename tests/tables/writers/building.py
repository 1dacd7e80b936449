"""Makes the fixtures again, each by its program in an environment of its own.

    python -m tests.tables.writers.building FOLDER [hudi|delta|iceberg ...]

Needs Java 17, and the package registries: PySpark comes by pip, the jars by Spark.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
NEEDS: Final = {
    # Hudi 1.0.2 is built for Spark 3.5, Delta 4.2.0 for 4.1.0, Iceberg 1.10.0 for 4.0.
    "hudi": ("pyspark==3.5.9",),
    "delta": ("pyspark==4.1.0",),
    "iceberg": ("pyspark==4.0.5", "fastavro"),
    # The newest release whose extensions are packages.
    "duckdb": (
        "duckdb==1.5.5",
        *(
            f"duckdb-extension-{name}==1.5.5"
            for name in ("avro", "delta", "httpfs", "iceberg")
        ),
    ),
    # Delta 4.2.0 and Iceberg 1.12.0 share it; pipelines run there.
    "connectors": ("pyspark==4.1.0", "--editable", f"{ROOT}[pandas]"),
}


class Unavailable(Exception):
    """Why an environment cannot be made here."""


def build(kind: str, folder: Path, *names: str) -> None:
    """Writes the fixtures of a format into a folder.

    Args:
        kind: ``hudi``, ``delta`` or ``iceberg``.
        folder: Where ``NAME.zip`` and ``NAME.json`` are written.
        names: Of the fixtures wanted; none means all.

    Raises:
        Unavailable: There is no Java, or the packages cannot be installed.
    """
    python = environment(kind)
    program = f"tests.tables.writers.{kind}_spark"
    subprocess.run(
        [python, "-m", program, str(folder.absolute()), *names],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)},
        timeout=1200,
    )


def environment(kind: str) -> Path:
    """Make an environment, unless it is in the cache; returns its Python.

    Raises:
        Unavailable: There is no Java, or the packages cannot be installed.
    """
    needs = NEEDS[kind]
    if needs[0].startswith("pyspark") and shutil.which("java") is None:
        what = "Spark needs Java 17, and there is none"
        raise Unavailable(what)
    text = "\n".join(needs)
    if "--editable" in needs:
        text += (ROOT / "pyproject.toml").read_text()
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = Path(base, "streamfactory", f"tables-{kind}-{digest}")
    python, ready = home / "bin" / "python", home / "ready"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        done = subprocess.run(
            [python, "-m", "pip", "install", "-q", *needs],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            what = f"pip cannot install {needs}: {done.stderr[-500:]}"
            raise Unavailable(what)
        ready.touch()
    return python


def main() -> None:
    """Writes the fixtures that the command line names, or all."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for kind in sys.argv[2:] or ("hudi", "delta", "iceberg"):
        build(kind, folder)


if __name__ == "__main__":
    main()
