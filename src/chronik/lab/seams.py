"""Every defect by name, with what installs it in a lab node's process."""

from collections.abc import Callable

from chronik.lab import (
    append_defects,
    fetch_defects,
    replication_defects,
    watermark_defects,
)

DEFECTS: dict[str, Callable[[], None]] = {
    **append_defects.DEFECTS,
    **watermark_defects.DEFECTS,
    **fetch_defects.DEFECTS,
    **replication_defects.DEFECTS,
}
