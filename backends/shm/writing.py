"""Producer factory and topic administration of ``shm``."""

from __future__ import annotations

from typing import ClassVar

from streamfactory.arrowlog import LogProducerFactory, LogTopicAdmin
from streamfactory.arrowlog.handles import SharesStore
from streamfactory.backends.shm.reading import CLAIMS
from streamfactory.backends.shm.store import shm_handle


class ShmProducerFactory(SharesStore, LogProducerFactory):
    """Writes one topic, which the first writer creates."""

    CLAIMS: ClassVar = CLAIMS
    handle = staticmethod(shm_handle)


class ShmTopicAdmin(SharesStore, LogTopicAdmin):
    """Administration of the topics of one folder."""

    handle = staticmethod(shm_handle)
