"""Which Delta tables a folder has, for what does not read them and must say so."""

from pathlib import Path

FOLDER = "delta"


def delta_names(warehouse: str | Path) -> list[str]:
    """The names of the Delta tables in a folder of this machine."""
    folder = Path(str(warehouse).removeprefix("file://")) / FOLDER
    if not folder.is_dir():
        return []
    return sorted(one.name for one in folder.iterdir() if (one / "_delta_log").is_dir())
