"""Audits the ledgers `clean` and `damaged` of a folder on each master: `masters.py DIR MASTER...`.

One process and one JVM for all of them, because starting it takes longer than an audit.
"""

import json
import sys
from pathlib import Path

from click.testing import CliRunner

from chronik.cli.audit import audit


def main(folder: Path, masters: list[str]) -> None:
    for number, master in enumerate(masters):
        for name in ("clean", "damaged"):
            tables = folder / f"tables-{number}-{name}"
            arguments = [str(folder / name), "--engine", "spark", "--master", master, "--json"]
            done = CliRunner().invoke(audit, [*arguments, "--tables", str(tables)])
            if done.exit_code not in (0, 1) or not done.stdout:
                raise SystemExit(f"{master} {name}: {done.exception!r} {done.output}")
            found = {"master": master, "ledger": name, "tables": str(tables)}
            print(json.dumps(found | {"verdict": json.loads(done.stdout)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
