"""The second half of `chronik demo`: the topic as a table, a question to it, and the proof."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chronik.pipeline.proof import Verdict

TOPIC = "orders"
QUESTION = f"SELECT country, count(*) AS orders FROM {TOPIC} GROUP BY country ORDER BY country"


@dataclass(frozen=True)
class TableResult:
    """What became of the topic."""

    rows: int
    bad: int
    answer: list[tuple[str, int]]
    verdict: "Verdict"


def missing() -> str | None:
    """Why there can be no table, and what to install; None where nothing is missing."""
    try:
        from chronik.pipeline.session import NoJavaError, require_java
    except ImportError:
        return "the package 'pyspark' is missing: pip install 'chronik[spark]'"
    try:
        require_java()
    except NoJavaError as error:
        return str(error)
    return None


class SparkInBackground:
    """Starts Spark while the cluster works: the JVM needs seconds, and mostly one core."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._error: BaseException | None = None
        self._session: Any = None
        self._thread = threading.Thread(target=self._start, name="spark", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        from chronik.pipeline.session import start_jvm

        try:
            start_jvm(app="chronik demo", log=self._log)
        except Exception as error:  # noqa: BLE001 - told to whoever asks for the session
            self._error = error

    def get(self) -> Any:
        """The session; waits for it."""
        from chronik.pipeline.session import session

        self._thread.join()
        if self._error is not None:
            raise self._error
        self._session = session(app="chronik demo")
        return self._session

    def stop(self) -> None:
        """Ends the session, if there is one; the JVM ends with this process in any case."""
        if self._session is not None:
            self._session.stop()


def make_table(spark: Any, bootstrap: str, folder: Path, say: Callable[[str], None]) -> TableResult:
    """Ingest, ask, prove; `say` hears what is being done."""
    from chronik.audit.ledger import export_parquet, ledger_files
    from chronik.pipeline.ingest import ingest_once
    from chronik.pipeline.proof import prove
    from chronik.pipeline.sql import query

    warehouse = folder / "warehouse"
    say("Making a table of the topic ...")
    made = ingest_once(bootstrap, [TOPIC], warehouse, mode="json", spark=spark).topics[0]
    say("Asking the table ...")
    rows = query(spark, bootstrap, warehouse, QUESTION).collect()
    answer = [(row.country, row.orders) for row in rows]
    say("Comparing acknowledgements, log and table ...")
    ledger = folder / "ledger.parquet"
    export_parquet(ledger_files([folder / "ledger"]), ledger)
    verdict = prove(bootstrap, TOPIC, warehouse, ledger=str(ledger), spark=spark)
    return TableResult(made.rows, made.bad, answer, verdict)
