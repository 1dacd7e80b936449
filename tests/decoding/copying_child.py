"""Copies `from` into `to`, or replays its dead letters into `second`: for `test_kills`.

With an argument it replays: messages whose number the argument divides fail again.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
from tests.specimens import Dictionary, Words

from streamfactory.transfer.copies import open_copy
from streamfactory.transfer.replaying import open_replay
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from streamfactory.spi import DecodeContext, Decoded
    from streamfactory.transfer.copying import Copy
    from streamfactory.transfer.replaying import Replay


class Fixed(Words):
    """Decodes what shouts, too, but for some numbers."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        fails = int(sys.argv[1])
        calm = [
            value if fails and int(value[1:-1]) % fails == 0 else value.strip(b"!")
            for value in values.to_pylist()
        ]
        return super().decode(pa.array(calm), context)


def main() -> None:
    replays = len(sys.argv) > 1
    default_manager().register(Dictionary(Fixed if replays else Words))
    find = Catalogue().get
    job: Copy | Replay
    if replays:
        job = open_replay(find("dead"), find("second"), find)
    else:
        job = open_copy("from", "to")
    with job:
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        job.run(threading.Event())


if __name__ == "__main__":
    main()
