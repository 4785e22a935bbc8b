"""Faults of a node's machine: a slow disk, a full disk, a clock that jumps (see `seam`)."""

import os
from pathlib import Path

SEAM = Path(__file__).parent / "seam"


class Machines:
    """One folder of fault files per node."""

    def __init__(self, directory: Path, nodes: tuple[int, ...]) -> None:
        self._folders = {node: directory / f"faults-{node}" for node in nodes}
        for folder in self._folders.values():
            folder.mkdir(parents=True)

    def environment(self, node: int) -> dict[str, str]:
        """What a node's process needs to meet the faults."""
        paths = [str(SEAM), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "CHRONIK_TEST_FAULTS": str(self._folders[node]),
        }

    def slow_disk(self, node: int, seconds: float) -> None:
        """Every write and every sync takes so much longer."""
        self._set(node, "slow", str(seconds))

    def slow_sync(self, node: int, seconds: float) -> None:
        """Writes are as quick as ever; a sync of a partition's log takes so much longer."""
        self._set(node, "slow-sync", str(seconds))

    def bad_sync(self, node: int) -> None:
        """No sync of a partition's log succeeds."""
        self._set(node, "bad-sync", "")

    def full_disk(self, node: int) -> None:
        """No write succeeds, and some leave a few bytes behind."""
        self._set(node, "full", "")

    def jump_clock(self, node: int, seconds: float) -> None:
        """The wall clock is wrong by so much, from now on."""
        self._set(node, "clock", str(seconds))

    def heal(self) -> None:
        """All disks and clocks are right again."""
        for folder in self._folders.values():
            for fault in folder.iterdir():
                fault.unlink()

    def _set(self, node: int, fault: str, value: str) -> None:
        # A reader must not find the file half written.
        folder = self._folders[node]
        hidden = folder.with_suffix(".tmp")
        hidden.write_text(value)
        hidden.rename(folder / fault)
