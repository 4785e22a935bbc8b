"""Ledgers of any kind by their names: Arrow files, or JSON lines of the Verifiable clients."""

from collections.abc import Iterable
from pathlib import Path

from chronik.audit.ledger import check_ledger, ledger_files, read_rows
from chronik.audit.rows import Row
from chronik.audit.verifiable import read_verifiable

JSON_SUFFIXES = (".json", ".jsonl", ".txt", ".log")


def read_any(paths: Iterable[Path]) -> list[Row]:
    rows: list[Row] = []
    for path in paths:
        if path.is_file() and path.suffix in JSON_SUFFIXES:
            rows.extend(read_verifiable(path))
        else:
            files = ledger_files([path])
            for file in files:
                check_ledger(file)
            rows.extend(read_rows(files))
    return rows
