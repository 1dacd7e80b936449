"""A process of its own that writes epochs into a topic, or keeps house there.

``python -m tests.objects.child ENDPOINT URL write WRITER EPOCHS`` goes on behind the
last epoch of the writer; ``... keep`` merges and sweeps until it is killed.
"""

from __future__ import annotations

import sys
import time
import uuid

from tests.objects.stage import append, storage_at

from streamfactory.arrowlog.disk import DiskLog, DiskLogStore, Settings
from streamfactory.spi import TransientError

ROWS = 10
TOPIC = "clicks"


def number_of(writer: int, epoch: int, row: int) -> int:
    return writer * 1_000_000 + epoch * ROWS + row


def write(log: DiskLog, writer: int, epochs: int) -> None:
    name = f"writer-{writer}"
    instance = uuid.uuid4().hex
    last = log.claim(name, instance)
    epoch = 0 if last is None else last.epoch + 1
    while epoch < epochs:
        numbers = [number_of(writer, epoch, row) for row in range(ROWS)]
        try:
            append(log, numbers, name, epoch, instance)
        except TransientError:
            continue  # the same epoch again: it may be there
        epoch += 1


def keep(log: DiskLog) -> None:
    while True:
        try:
            log.compact()
        except TransientError:
            time.sleep(0.01)


def main(endpoint: str, url: str, task: str, *rest: str) -> None:
    storage = storage_at(endpoint, url)
    store = DiskLogStore(storage, Settings(merge_files=8))
    log = store.open(TOPIC)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if task == "write":
        write(log, int(rest[0]), int(rest[1]))
    else:
        keep(log)
    store.close()
    storage.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
