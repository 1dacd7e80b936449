"""Calls a stream's producer factory with translation of errors and retries."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, final

from streamfactory.spi import ClosedError, ContractBroken, ProducerFactory, Unsupported
from streamfactory.wiring.core.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import WriteContext
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.core.clock import Clock

    Wrap = Callable[[ProducerFactory], ProducerFactory]

Ts = TypeVarTuple("Ts")
T = TypeVar("T")
"""What a guarded call answers."""


@final
class Producer:
    """Calls the backend's producer factory for a sink, its writers and committers.

    Thread-safe. Created and closed by `Sink`.

    Args:
        configured: The configuration and its plug-ins.
        clock: The clock.
        wrap: Wraps the backend's factory, to inject faults in simulations.

    Raises:
        Unsupported: misuse; the type cannot be written.
    """

    def __init__(
        self, configured: Configured, clock: Clock, wrap: Wrap | None = None
    ) -> None:
        self.config = configured.config
        backend = configured.backend
        if backend.producer_factory is None:
            msg = f"stream type {backend.name!r} cannot be written"
            raise Unsupported(msg, stream=self.config.name)
        factory = backend.producer_factory(self.config)
        self.keeps_dictionaries = factory.KEEPS_DICTIONARIES
        self.factory = factory if wrap is None else wrap(factory)
        self.guard = Guard(self.config, backend, clock)
        self.claims = self.factory.claims()
        self._closed = threading.Event()
        self._counts: dict[str, int] = {}

    def partition_count(self, topic: str | None = None) -> int:
        """Return the number of partitions of a topic.

        Args:
            topic: The topic, if a sink accepts several; None is the sink's own.
        """
        name = self.config.get("topic.name", "") if topic is None else topic
        if name not in self._counts:
            count = self.ask(
                "fetch partitions", lambda: self.factory.fetch_partition_count(name)
            )
            if count < 1:
                msg = f"the topic {name!r} has {count} partitions"
                raise ContractBroken(msg, stream=self.config.name)
            self._counts[name] = count
        return self._counts[name]

    def has_epoch(self, context: WriteContext) -> bool:
        """Whether an epoch is committed already (rule W3)."""
        writer_id = context.writer_id
        if writer_id is None or not self.claims.idempotent:
            return False
        last = self.ask(
            "fetch the last epoch", lambda: self.factory.fetch_last_commit(writer_id)
        )
        return last is not None and last.epoch >= context.epoch

    def compares(self, context: WriteContext) -> bool:
        """Whether the content of an epoch is compared if it is repeated.

        Only epochs that their writer can repeat are.
        """
        named = context.writer_id is not None and self.claims.idempotent
        return named and self.config["epoch.mismatch"] == "fail"

    def ask(self, operation: str, function: Callable[[], T]) -> T:
        """Call the backend; retry after transient errors.

        Raises:
            ClosedError: misuse; the sink is closed.
        """
        if self._closed.is_set():
            msg = "the sink is closed"
            raise ClosedError(msg, stream=self.config.name)
        timeout = self.config["connection.timeout.millis"] / 1000
        return self.guard.call(
            operation, function, closed=self._closed, timeout=timeout
        )

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call the backend once, for operations that are not idempotent."""
        try:
            return function(*args)
        except BaseException:
            # Not around the call: a generator costs as much as a small write.
            with self.guard.border():
                raise

    @cached_property
    def config_digest(self) -> str:
        """Digest of the configuration, part of commit messages."""
        return self.config.digest()

    def close(self, *others: Callable[[], object]) -> None:
        """Close the factory, after ``others``; may be called twice."""
        if not self._closed.is_set():
            self._closed.set()
            last = ExitStack()
            last.callback(self.call, self.factory.close)
            for close in others:
                last.callback(close)
            self.guard.end(last.close)
