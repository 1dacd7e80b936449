"""Three Spark jobs write into one topic of a Flight server, at the same time.

    streamfactory serve --flight 127.0.0.1:8815 --path sales    # in one terminal
    python examples/three_writers/writers.py [LOCATION]         # in another one
    jupyter lab examples/three_writers/reader.ipynb             # reads meanwhile

Each job is a writer with a writer id. Its rows become visible in one step when the job
ends. A job that is repeated with the same epoch writes nothing a second time: run this
program twice.

Needs: pip install 'streamfactory[spark]', and Java 17. The server keeps the rows in the
folder `sales`.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import streamfactory
from streamfactory.spark import Branch, fan_out, prepare_environment, register

SHOPS = ["Lyon", "Oslo", "Rome"]


def sales(location: str) -> dict[str, str]:
    """Return the stream of all shops."""
    return {
        "streamType": "flight",
        "stream.flight.location": location,
        "stream.flight.topic.name": "sales",
    }


def of_shop(shop: str, frame: Any) -> Any:
    """Return the rows of one shop."""
    return frame.where(frame.shop == shop)


def main(spark: Any, location: str = "grpc://127.0.0.1:8815") -> None:
    rows = [(shop, n, n * 7 % 100) for shop in SHOPS for n in range(1000)]
    frame = spark.createDataFrame(rows, "shop string, sale int, cents int")
    jobs = [
        Branch(sales(location), name=shop, select=partial(of_shop, shop))
        for shop in SHOPS
    ]
    # Each branch is a job with the writer id sales/<name>; they run at the same time.
    fan_out(frame, epoch=0, streams=jobs, query="sales")
    with streamfactory.open(sales(location), columns=["shop"]) as stream:
        shops = stream.to_reader().read_all()
    counts = shops.group_by("shop").aggregate([([], "count_all")]).sort_by("shop")
    for row in counts.to_pylist():
        print(f"{row['shop']}: {row['count_all']:,} sales")


if __name__ == "__main__":
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        sys.exit("this example needs Spark: pip install 'streamfactory[spark]'")
    prepare_environment(local=True)
    builder = SparkSession.builder.master("local[3]").config("spark.log.level", "ERROR")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    register(session)
    main(session, *sys.argv[1:])
    session.stop()
