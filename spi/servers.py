"""The server of a backend that clients connect to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.spi.config import StreamConfig
    from streamfactory.spi.errors import Problem
    from streamfactory.spi.metrics import Metric, Sample
    from streamfactory.spi.options import Option


class StreamServer(ABC):
    """Serves streams to other processes. Named by ``Backend.server``.

    It listens when its constructor returns. ``streamfactory serve`` runs it in the main
    thread of a process of its own and calls ``drain`` and ``close`` on SIGTERM;
    ``streamfactory.serve()`` starts such a process.

    Args:
        config: Validated settings by the keys of ``OPTIONS``; secrets are resolved
            when they are read.

    Raises:
        ConfigError: config; the address is in use, or a file cannot be read.
    """

    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    """Settings of the server; independent of those of the streams."""
    METRICS: ClassVar[tuple[Metric, ...]] = ()
    """The metrics of `statistics`."""

    @classmethod
    def check_options(
        cls,
        config: StreamConfig,  # noqa: ARG003 - for subclasses
    ) -> Iterable[Problem]:
        """Check rules over several options, like `Backend.check_options` for streams.

        Called before a server is created, also by a process that only starts one: it
        connects to nothing, opens no file and resolves no secret.
        """
        return ()

    def __init__(self, config: StreamConfig) -> None:
        self.config = config

    @property
    @abstractmethod
    def location(self) -> str:
        """Where clients connect, with the port that was chosen.

        ``grpc://host:port``.
        """

    @abstractmethod
    def drain(self, timeout: float) -> bool:
        """Refuse new calls and wait for running commits.

        Args:
            timeout: Seconds.

        Returns:
            True if no commit is running any more.
        """

    def statistics(self) -> Sequence[Sample]:
        """Return a sample for each metric of ``METRICS`` and each set of its labels.

        Called from any thread, at each scrape; may block on the store.

        Raises:
            StreamError: The store cannot be read.
        """
        return ()

    def problems(self) -> Sequence[str]:
        """Return why the server cannot serve, one line per cause; empty if it can.

        Called from any thread, at each health check; may block on the store.
        """
        return ()

    @abstractmethod
    def close(self) -> None:
        """Release the store. The process ends afterwards; open calls fail."""
