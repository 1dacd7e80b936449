"""Topic administration of backends that store their streams in a log."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from streamfactory.arrowlog.messages import message_schema
from streamfactory.arrowlog.writing import retention_of
from streamfactory.spi import TopicAdmin, Verification

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from streamfactory.arrowlog.log import WritableLogStore


class LogTopicAdmin(TopicAdmin):
    """Topics of one store."""

    @abstractmethod
    def store(self) -> WritableLogStore:
        """Return the store of this configuration, in this process."""

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        if partitions is None:
            partitions = self.config["partitions"]
        self.store().create(
            topic, message_schema() if schema is None else schema, partitions
        )

    def grow(self, topic: str, partitions: int) -> None:
        self.store().open(topic).grow(partitions)

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        self.store().open(topic).truncate(before)

    def retain(self, topic: str, hold: Mapping[int, int]) -> None:
        self.store().open(topic).retain(retention_of(self.config), hold)

    def delete(self, topic: str) -> None:
        self.store().delete(topic)

    def compact(self, topic: str) -> None:
        self.store().open(topic).compact()

    def verify(self, topic: str) -> Verification:
        return self.store().open(topic).verify()

    def facts(self, topic: str) -> Mapping[str, str | int]:
        log = self.store().open(topic)
        return {"incarnation": log.incarnation, **log.facts()}
