"""Damages files in many ways and reads them: a program, so that a crash is seen.

Prints how often what came of it. Anything but rows or an error of ours that names the
file is printed as FOREIGN.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.foreign.stage import config_of, write_random, write_stream

from streamfactory.backends.file.foreign import create_consumer, create_metadata
from streamfactory.spi import FetchLimits, Partition, StreamConfig, StreamError

LIMITS = FetchLimits(1000, 1 << 20, 0.0)
WORDS = (0, 1, -1, 7, 8, 2**20, 2**30, 2**31 - 1, -(2**31))
LONGS = (0, 1, -1, 2**40, 2**62, 2**63 - 1, -(2**63))


def columns() -> pa.Table:
    runs = pa.RunEndEncodedArray.from_arrays([10, 20], ["a", "b"])
    parts = [pa.array(range(20)), pa.array(["z"] * 20)]
    kinds = pa.array([0, 1] * 10, pa.int8())
    money = [Decimal(n) / 100 for n in range(20)]
    return pa.table(
        {
            "i": pa.array([1, 2, None, 4] * 5),
            "s": pa.array(["a", "bäta", None, "dd"] * 5),
            "d": pa.array(["x", "y", "x", None] * 5).dictionary_encode(),
            "l": pa.array([[1, 2], None, [], [3]] * 5),
            "st": pa.array([{"u": "q", "v": [b"1"]}] * 20),
            "sv": pa.array(["a" * 20, "b", None, "c"] * 5, pa.string_view()),
            "m": pa.array([[("k", 1)]] * 20, pa.map_(pa.string(), pa.int64())),
            "dc": pa.array(money, pa.decimal64(10, 2)),
            "lv": pa.array([[1], [2, 3], None, []] * 5, pa.list_view(pa.int64())),
            "fl": pa.array([[1, 2]] * 20, pa.list_(pa.int32(), 2)),
            "un": pa.UnionArray.from_sparse(kinds, parts),
            "re": runs,
            "b": pa.array([True, None] * 10),
            "n": pa.nulls(20),
        }
    )


def damaged(data: bytes, chance: random.Random) -> bytes:
    found, how = bytearray(data), chance.randrange(4)
    if how == 0:
        for _ in range(chance.randint(1, 8)):
            found[chance.randrange(len(found))] = chance.randrange(256)
    elif how == 1:
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(found) - 8) & ~3
            found[at : at + 4] = chance.choice(WORDS).to_bytes(4, "little", signed=True)
    elif how == 2:
        at = chance.randrange(len(found) - 8) & ~7
        found[at : at + 8] = chance.choice(LONGS).to_bytes(8, "little", signed=True)
    else:
        del found[chance.randrange(len(found)) :]
    return bytes(found)


def read(config: StreamConfig, name: str) -> str:
    opened: list[Any] = []
    try:
        provider = create_metadata(config)
        opened.append(provider)
        provider.fetch_partitions(["t"], ())
        provider.fetch_schema("t")
        consumer = create_consumer(config, Partition("t", 0))
        opened.append(consumer)
        at = 0
        while (found := consumer.fetch_messages(at, None, LIMITS)).rows is not None:
            for column in found.rows.columns:
                try:
                    column.to_pylist()
                except (ValueError, ArithmeticError, OverflowError):
                    continue  # a value that Python has none for: a year, a scale
            at = found.next_offset
    except StreamError as error:
        return type(error).__name__ if name in str(error) else f"FOREIGN {error}"
    except Exception:
        return f"FOREIGN {traceback.format_exc()}"
    else:
        return "read"
    finally:
        for each in opened:
            each.close()


def main() -> None:
    folder, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance, wholes = random.Random(seed), []
    for compression in (None, "lz4", "zstd"):
        for write in (write_stream, write_random):
            parts = columns().to_batches(max_chunksize=7)
            path = write(folder / "whole", *parts, compression=compression)
            wholes.append(path.read_bytes())
    path = folder / "damaged.arrow"
    configs = [config_of(path, memory__map=mapped) for mapped in ("true", "false")]
    results: Counter[str] = Counter()
    for number in range(rounds):
        path.write_bytes(damaged(chance.choice(wholes), chance))
        results[read(configs[number % 2], "damaged.arrow")] += 1
    for result, count in sorted(results.items()):
        sys.stdout.write(f"{count} {result}\n")


if __name__ == "__main__":
    main()
