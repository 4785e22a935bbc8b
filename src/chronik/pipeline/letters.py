"""Dead letters are settled: the files that a table's commit names come into their own table."""

from chronik.pipeline import dlq_table
from chronik.pipeline.tables import IngestTable, Tables
from chronik.pipeline.warehouse import MODE, TOPIC


def settle_bad(warehouse: Tables, table: IngestTable) -> None:
    """Adds the bad files that the table's last commit names to the dead letter table, once.

    The table's commit is the intent; this completes it, now or after a crash.
    """
    state = table.state()
    if not state.bad_files:
        return
    properties = {TOPIC: table.properties[TOPIC], MODE: "dlq"}
    letters = warehouse.open(table.name + dlq_table.SUFFIX, dlq_table.ARROW, properties)
    letters.add_once(state.bad_files, state.batch_id)
