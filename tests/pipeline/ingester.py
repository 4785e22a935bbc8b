"""An ingester as a process of its own, to be killed: its tasks run in the process itself.

`python -m tests.pipeline.ingester BOOTSTRAP TOPIC WAREHOUSE RECORDS_PER_COMMIT [delta]`
"""

import sys

from chronik.pipeline.delta_table import DeltaWarehouse
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.warehouse import OffsetConflict, Warehouse

CONFLICT = 3


def main() -> int:
    bootstrap, topic, warehouse, records, *delta = sys.argv[1:]
    place = DeltaWarehouse(warehouse) if delta else Warehouse(warehouse)
    job = Job(bootstrap, place, records_max=int(records), parallelism=2)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    try:
        ingest_topic(job, topic)
    except OffsetConflict:
        return CONFLICT
    return 0


if __name__ == "__main__":
    sys.exit(main())
