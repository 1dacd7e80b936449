"""The topics and partitions that the configuration of a stream selects."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, final

from streamfactory.spi import Partition, TopicNotFound
from streamfactory.wiring.options.patterns import matching_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from streamfactory.spi import StreamConfig

T = TypeVar("T")
"""What is known of a partition."""


@final
class Selection:
    """Selects by ``topic.name``, ``assign``, ``subscribe`` or ``subscribePattern``.

    Immutable.

    Args:
        config: The stream's configuration.
    """

    def __init__(self, config: StreamConfig) -> None:
        self._config = config

    def covers(self, topic: str) -> bool:
        """Whether a topic is selected, or would be if it existed."""
        config = self._config
        if "topic.name" in config:
            return topic == config.topic
        for word in ("assign", "subscribe"):
            if word in config:
                return topic in config[word]
        return bool(matching_topics(config["subscribePattern"], [topic]))

    def topics(
        self, list_topics: Callable[[], Sequence[str]], known: Collection[str]
    ) -> list[str]:
        """Return the selected topics: the named one, or those that exist.

        Args:
            list_topics: Lists those that exist; not called for a named one.
            known: Topics that existed before: one that was removed has vanished, which
                does not affect the others.

        Raises:
            TopicNotFound: permanent; one that is selected by name does not exist, and
                did not before.
        """
        config = self._config
        if "topic.name" in config:
            return [config.topic]
        there = list_topics()
        if "subscribePattern" in config:
            return matching_topics(config["subscribePattern"], there)
        wanted = config["assign"] if "assign" in config else config["subscribe"]
        missing = sorted(set(wanted) - set(there) - set(known))
        if missing:
            msg = f"topic {missing[0]!r} does not exist"
            raise TopicNotFound(msg, stream=config.name)
        return sorted(set(wanted) & set(there))

    def partitions(
        self, found: Mapping[Partition, T], known: Collection[Partition]
    ) -> Mapping[Partition, T]:
        """Return what was found of the selected partitions of the selected topics.

        Args:
            found: What exists.
            known: Partitions that existed before.

        Raises:
            TopicNotFound: permanent; an assigned one does not exist, and did not
                before.
        """
        if "assign" not in self._config:
            return found
        assigned = {
            Partition(topic, int(number))
            for topic, numbers in self._config["assign"].items()
            for number in numbers
        }
        missing = sorted(assigned - set(found) - set(known))
        if missing:
            msg = f"assigned partition {missing[0]} does not exist"
            raise TopicNotFound(msg, stream=self._config.name)
        return {p: info for p, info in found.items() if p in assigned}
