"""Iceberg's JVM library as a reader: `python iceberg_reader.py JAR < QUERIES`.

A line is a JSON list [path of a table's metadata.json, SQL expressions...]; the answer is a line
with their values. A process of its own, because Iceberg's runtime is for another Spark.
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    settings: dict[str, Any] = {
        "spark.jars": sys.argv[1],
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    for line in sys.stdin:
        path, *expressions = json.loads(line)
        row = spark.read.format("iceberg").load(path).selectExpr(*expressions).collect()[0]
        sys.stdout.write(json.dumps(list(row), default=str) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
