"""Push rows from a program into a running DuckDB query.

A thread measures temperatures and pushes them; DuckDB aggregates them while they
arrive. The table holds at most a hundred batches, never the whole input. The second
query needs ten rows only, which ends the thread.

    python examples/push_duckdb.py

Needs: pip install 'streamfactory[duckdb]'. Writes no file.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import pyarrow as pa

import streamfactory

try:
    import duckdb
except ImportError:
    sys.exit("this example needs DuckDB: pip install 'streamfactory[duckdb]'")

SCHEMA = pa.schema([("city", pa.string()), ("minute", pa.int64()), ("celsius", "f8")])
CITIES = ["Lima", "Oslo", "Pune"]


def measurements(minute: int) -> pa.Table:
    """Return one row of each city."""
    celsius = [20.0 + (minute * n) % 7 for n in range(len(CITIES))]
    return pa.table([CITIES, [minute] * len(CITIES), celsius], schema=SCHEMA)


def query(sql: str, minutes: int) -> list[Any]:
    """Run a query over the table `weather` while a thread fills it."""
    sink, weather = streamfactory.push_table(SCHEMA, capacity_batches=100)

    def measure() -> None:
        # The block closes the table. It ends early if the query needs no more rows, and
        # fails the query if measuring fails.
        with sink:
            for minute in range(minutes):
                sink.write(measurements(minute))

    producer = threading.Thread(target=measure)
    with weather:  # a query that fails ends the producer, too
        producer.start()
        rows = duckdb.execute(sql).fetchall()
    producer.join()
    print(
        "rows pushed:",
        "all" if sink.statistics.rows_pushed == 3 * minutes else "a part",
    )
    return rows


def main() -> None:
    sql = "select city, count(*), max(celsius) from weather group by city order by city"
    for city, count, celsius in query(sql, minutes=1000):
        print(f"{city}: {count:,} rows, at most {celsius} degrees")
    sql = "select minute from weather where city = 'Oslo' limit 10"
    print("of Oslo:", [minute for (minute,) in query(sql, minutes=1_000_000)])


if __name__ == "__main__":
    main()
