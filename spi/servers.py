"""A server of streams: what a backend that others connect to can bring along."""

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
    """What `statistics` has samples of."""

    @classmethod
    def check_options(
        cls,
        config: StreamConfig,  # noqa: ARG003 - for those that override it
    ) -> Iterable[Problem]:
        """Rules over several options, as `Backend.check_options` has them for streams.

        Called before a server is made, also by a process that only starts one: it
        connects to nothing, opens no file and resolves no secret.
        """
        return ()

    def __init__(self, config: StreamConfig) -> None:
        self.config = config

    @property
    @abstractmethod
    def location(self) -> str:
        """Where clients connect, with the port that was chosen: ``grpc://host:port``."""

    @abstractmethod
    def drain(self, timeout: float) -> bool:
        """Refuse new calls and wait for commits under way.

        Args:
            timeout: Seconds.

        Returns:
            True when nothing is under way any more.
        """

    def statistics(self) -> Sequence[Sample]:
        """One sample for each metric of ``METRICS`` and each set of its labels.

        Called from any thread, at each scrape; may block on the store.

        Raises:
            StreamError: The store cannot be read.
        """
        return ()

    def problems(self) -> Sequence[str]:
        """Why the server cannot serve, one line each; empty when it can.

        Called from any thread, at each health check; may block on the store.
        """
        return ()

    @abstractmethod
    def close(self) -> None:
        """Release the store. The process ends afterwards; calls still open break."""
