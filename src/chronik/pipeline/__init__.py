"""Topics become tables, exactly once: the data pipeline, on Spark through PySpark.

Touches: the cluster as a client, the warehouse folder, a Spark session. May import: `trace`,
`wire`, `model`, and pyspark, pyarrow, numpy, pyiceberg, deltalake, protobuf, confluent-kafka.
Driven by: `cli/pipeline`, `cli/sql`, `make run`.
Start reading at `ingest.py`, then `tasks.py` (records to files), `modes.py` (raw, JSON, Avro,
Protobuf), `decode.py` (bytes to Arrow), `source.py` (for `spark.read`), `tables.py` (what a format
must do: the commit that holds the offsets), `warehouse.py` (Iceberg), `delta_table.py` (Delta),
`places.py` (folders and stores), `sql_plan.py` (what a query reads) and `proof.py`.
"""
