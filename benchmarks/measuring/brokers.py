"""The broker of Kafka that a benchmark measures."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def broker() -> Iterator[str]:
    """The one that ``KAFKA_BOOTSTRAP`` names, or one that is started here."""
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    from tests.kafka.broker import Cluster

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Cluster(Path(folder)) as cluster,
    ):
        yield cluster.bootstrap
