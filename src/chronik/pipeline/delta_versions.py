"""The versions of a Delta table as rows of `snapshots_table`.

A version says what it added; how far the table was then is found backwards from where it is now.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from chronik.pipeline.delta_table import DeltaTable
from chronik.pipeline.warehouse import RANGES, ROWS, TOPIC


def versions(table: DeltaTable) -> Iterable[dict[str, object]]:
    """The oldest first; files and bytes are known of the newest only."""
    return reversed(list(_newest_first(table)))


def _newest_first(table: DeltaTable) -> Iterator[dict[str, object]]:
    actions: Any = pa.table(table.table.get_add_actions(flatten=True))
    sizes = actions.column("size_bytes").to_pylist()
    rows = sum(one or 0 for one in actions.column("num_records").to_pylist())
    following = table.state().next
    history: list[dict[str, Any]] = table.table.history()
    for number, one in enumerate(history):
        added = int(one.get(ROWS, 0))
        yield {
            "table": table.name,
            "topic": table.properties.get(TOPIC),
            "snapshot_id": one["version"],
            "committed": one["timestamp"] * 1_000,
            "operation": one["operation"].lower(),
            "added_rows": added,
            "rows": rows,
            "files": None if number else len(sizes),
            "bytes": None if number else sum(sizes),
            "next_offsets": json.dumps(following),
            "current": number == 0,
        }
        rows -= added
        ranges = json.loads(one.get(RANGES, "{}"))
        following = following | {int(p): start for p, (start, _) in ranges.items()}
