"""Ways around the validator of rows, each of which mypy refuses; never imported.

``make check`` reports an ignored error that is none any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog import SoundStage
from streamfactory.spi import BatchValidator, SoundRows

if TYPE_CHECKING:
    from streamfactory.backends.flight.server.batches import Incoming, UncheckedRows


def f(
    stage: SoundStage, received: UncheckedRows, validator: BatchValidator, rows: object
) -> None:
    stage.append_sound(0, received)  # type: ignore[arg-type]
    stage.append_sound(0, rows)  # type: ignore[arg-type]
    SoundRows(rows)  # type: ignore[call-arg]
    _ = received.nbytes  # type: ignore[attr-defined]
    _ = received.batch  # type: ignore[attr-defined]
    sound = received.validated(validator)
    sound.batch = rows  # type: ignore[misc]
    stage.append_sound(0, sound)
    stage.append_sound(0, sound.slice(0, 1))


def g(incoming: Incoming, stage: SoundStage) -> None:
    for rows, _ in incoming.received():
        if rows is not None:
            stage.append_sound(0, rows)  # type: ignore[arg-type]
            len(rows)  # type: ignore[arg-type]
    for sound, _ in incoming.sound():
        if sound is not None:
            stage.append_sound(0, sound)


class Forged(SoundRows):  # type: ignore[misc]
    pass


class Bypass(SoundStage):
    def append(self, partition: int, rows: object) -> None:  # type: ignore[misc]
        pass
