"""A driver that saves epochs: ``python -m tests.spark.saving_driver FOLDER EPOCHS``.

It is killed at a step if that was ordered, with its JVM. It saves every epoch from the
first on: those that are committed have no effect. ``place.json`` in the folder may
have other options of the topic, and of the session.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.spark.killing import Faults
from tests.spark.scenario import options, session

from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.arrowlog.disk.objects import ObjectStorage
from streamfactory.spark import parquet_files, prepare_environment, save, saving
from streamfactory.spi import EpochInThePast
from streamfactory.wiring.writing.files import FileWriter

if TYPE_CHECKING:
    from streamfactory.arrowlog.stages import FileStage

STEPS: Final = ("before-files", "after-files", "within-seal", "after-seal", "published")
"""Of an epoch: around Spark's job, while its files are moved, before the record, and
between the record and the answer."""
ROWS: Final = 100
TASKS: Final = 3


def topic_of(folder: Path) -> dict[str, str]:
    """With partitions by task in even epochs, and by column in odd ones."""
    more = {"stream.file.segment.format": "parquet", "stream.file.fsync": "always"}
    return {**options(folder, "out"), **more, **_place(folder)["topic"]}


def _place(folder: Path) -> dict[str, dict[str, str]]:
    given = folder / "place.json"
    found: dict[str, dict[str, str]] = {"topic": {}, "session": {}}
    return found | json.loads(given.read_text()) if given.exists() else found


def stepped(faults: Faults) -> None:
    """Have the steps of a save ask whether this process is killed."""
    write, commit = parquet_files.write_files, FileWriter.commit
    adopt, link = LocalStorage.adopt, LocalStorage._settle_link
    copy, publish = ObjectStorage.adopt, ObjectStorage.publish

    def written(rows: Any, stage: FileStage, partitions: int) -> int:
        faults.at("before-files")
        count = write(rows, stage, partitions)
        faults.at("after-files")
        return count

    def adopted(storage: LocalStorage, name: str, new: str) -> int:
        size = adopt(storage, name, new)
        faults.at("within-seal")
        return size

    def copied(storage: ObjectStorage, name: str, new: str) -> int:
        size = copy(storage, name, new)
        faults.at("within-seal")
        return size

    def put(storage: ObjectStorage, name: str, data: bytes) -> bool:
        done = publish(storage, name, data)
        if b'"segments"' in data:
            faults.at("published")
        return done

    def committed(writer: FileWriter, *arguments: Any) -> Any:
        message = commit(writer, *arguments)
        faults.at("after-seal")
        return message

    def settled(storage: LocalStorage, final: Path) -> None:
        link(storage, final)
        if b'"segments"' in final.read_bytes():
            faults.at("published")

    planted: Any = saving
    planted.write_files = written
    writers: Any = FileWriter
    writers.commit = committed
    changed: Any = LocalStorage
    changed.adopt, changed._settle_link = adopted, settled
    stored: Any = ObjectStorage
    stored.adopt, stored.publish = copied, put


def main(folder: Path, epochs: int) -> None:
    prepare_environment(local=True)
    spark = session("local[2]", attempts=4, more=_place(folder)["session"])
    stepped(Faults(folder / "faults"))
    for epoch in range(epochs):
        frame = spark.range(epoch * ROWS, (epoch + 1) * ROWS, 1, TASKS)
        if epoch % 2:
            frame = frame.selectExpr("id", "id % 3 as _partition")
        # The last epoch has no effect; those before it are refused.
        with suppress(EpochInThePast):
            save(frame, topic_of(folder), writer_id="w", epoch=epoch)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
