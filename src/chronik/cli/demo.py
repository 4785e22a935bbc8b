"""`chronik demo`: the product's main job from end to end, with a report to look at (`make run`)."""

import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from chronik.audit.verify import Result
    from chronik.audit.workload import Progress
    from chronik.cli._supervisor import Supervisor

TOPIC = "orders"
VICTIM = 2
KILL_AT = 0.3
RATE = 25_000.0
"""Messages a second: slow enough that the accident happens in the middle of the batch."""
RETURN_AFTER_S = 1.0
QUESTION = f"SELECT country, count(*) AS orders FROM {TOPIC} GROUP BY country ORDER BY country"


@click.command("demo")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 9))
@click.option("--messages", default=200_000, show_default=True, type=click.IntRange(1_000))
@click.option(
    "--out", default="./chronik-run", show_default=True, help="Data, ledgers and the report."
)
@click.option(
    "--durability", type=click.Choice(["fsync", "os"]), default="fsync", show_default=True
)
def command(nodes: int, messages: int, out: str, durability: str) -> None:
    """A cluster, a batch while a node dies, a table made of it, and the proof of all three."""
    from rich.console import Console

    console = Console()
    began = time.monotonic()  # noqa: TID251 - shown to a person, nothing depends on it
    folder = Path(out)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cluster = _cluster(nodes, folder, durability)
    try:
        with console.status(f"Starting a cluster of {nodes} nodes ..."):
            if not cluster.start():
                raise click.ClickException(
                    f"the cluster did not start: see {folder}/data/*/node.log"
                )
        console.print(f"[green]✓[/] {nodes} nodes serve on {cluster.bootstrap}")
        result = _produce_and_audit(console, cluster, nodes, messages, folder)
        in_table = _make_table(console, cluster.bootstrap, folder)
    finally:
        cluster.stop()
    took_s = time.monotonic() - began  # noqa: TID251
    _tell(console, result, folder, took_s)
    sys.exit(0 if result.verdict.ok and in_table else 1)


def _cluster(nodes: int, folder: Path, durability: str) -> "Supervisor":
    from chronik.cli._supervisor import Supervisor, plan

    options = ["--durability", durability, "--trace", "files"]
    options += [f"--set=default.replication.factor={min(3, nodes)}"]
    options += [f"--set=min.insync.replicas={min(2, nodes)}"]
    return Supervisor(
        plan(nodes, _free_ports(2 * nodes), str(folder / "data")), "127.0.0.1", options
    )


def _free_ports(count: int) -> int:
    """The first of `count` consecutive ports that nobody listens on."""
    for first in range(9092, 60_000, count):
        if all(_is_free(first + i) for i in range(count)):
            return first
    raise click.ClickException(f"no {count} consecutive free ports on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _produce_and_audit(
    console: "Console", cluster: "Supervisor", nodes: int, messages: int, folder: Path
) -> "Result":
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    from chronik.audit.verify import verify_once
    from chronik.audit.workload import Plan

    plan = Plan(
        bootstrap=cluster.bootstrap,
        topic=TOPIC,
        as_json=True,
        run=1,
        ledger=folder / "ledger",
        messages=messages,
        rate=RATE,
        acks="all",
        idempotent=True,
        partitions=3,
        replication=min(3, nodes),
    )
    accident = _Accident(cluster, int(messages * KILL_AT) if nodes > 2 else None)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console) as bars:
        sent = bars.add_task("  produced", total=messages)
        read = bars.add_task("  read back", total=messages)

        def show(progress: "Progress") -> None:
            bars.update(sent, completed=progress.sent)
            bars.update(read, completed=max(progress.read.values(), default=0))
            accident.look(progress.sent)

        result = verify_once(plan, show, "demo")
        accident.wait()
    if accident.told:
        console.print(f"[green]✓[/] {accident.told}")
    return result


def _make_table(console: "Console", bootstrap: str, folder: Path) -> bool:
    """The topic as a table, a question to it, and the proof that log and table are one."""
    try:
        from chronik.pipeline.session import NoJavaError, session
    except ImportError:
        console.print("[yellow]-[/] no table: install chronik[spark]")
        return True
    try:
        with console.status("Starting Spark ..."):
            spark = session("local[*]")
    except NoJavaError as error:
        console.print(f"[yellow]-[/] no table: {error}")
        return True
    try:
        return _ingest_and_prove(console, spark, bootstrap, folder)
    finally:
        spark.stop()


def _ingest_and_prove(console: "Console", spark: Any, bootstrap: str, folder: Path) -> bool:
    from chronik.audit.ledger import export_parquet, ledger_files
    from chronik.pipeline.ingest import ingest_once
    from chronik.pipeline.proof import prove
    from chronik.pipeline.sql import query

    warehouse = str(folder / "warehouse")
    with console.status("Making a table of the topic ..."):
        made = ingest_once(bootstrap, [TOPIC], warehouse, mode="json")
    console.print(
        f"[green]✓[/] {made.rows} records are rows of the Iceberg table '{TOPIC}' in {warehouse}"
    )
    with console.status("Asking the table ..."):
        rows = query(spark, bootstrap, warehouse, QUESTION).collect()
    answer = ", ".join(f"{row.country} {row.orders}" for row in rows)
    console.print(f"[green]✓[/] {QUESTION}\n    {answer}")
    with console.status("Comparing acknowledgements, log and table ..."):
        export_parquet(ledger_files([folder / "ledger"]), folder / "ledger.parquet")
        verdict = prove(bootstrap, TOPIC, warehouse, ledger=str(folder / "ledger.parquet"))
    console.print(f"{'[green]✓[/]' if verdict.ok else '[red]✗[/]'} {verdict.text()}")
    return bool(verdict.ok)


class _Accident:
    """Kills a node when enough was sent, and brings it back a moment later."""

    def __init__(self, cluster: "Supervisor", at: int | None) -> None:
        self._cluster = cluster
        self._at = at
        self._back: threading.Timer | None = None
        self.told = ""

    def look(self, sent: int) -> None:
        """Called with the progress of the workload."""
        if self._at is not None and sent >= self._at and self._back is None:
            self._cluster.kill(VICTIM)
            self.told = f"node {VICTIM} was killed after {sent} messages and came back"
            self._back = threading.Timer(RETURN_AFTER_S, self._cluster.restart, (VICTIM,))
            self._back.start()

    def wait(self) -> None:
        """Until the node is on its way back."""
        if self._back is not None:
            self._back.join()


def _tell(console: "Console", result: "Result", folder: Path, took_s: float) -> None:
    from rich.table import Table

    from chronik.audit.report import write_report

    table = Table(title="Delivery, per partition", title_justify="left")
    for name in ("partition", "acked", "read", "missing"):
        table.add_column(name, justify="left" if name == "partition" else "right")
    for name, row in result.partitions.items():
        table.add_row(name, str(row["sent"]), str(row["read"]), str(row["missed"]))
    console.print(table)
    word = "[bold green]PASS[/]" if result.verdict.ok else "[bold red]FAIL[/]"
    console.print(
        f"{word}  {result.consumed} of {result.plan.messages} messages read back "
        f"({result.share:.2%}), {took_s:.0f} s in all"
    )
    for anomaly in result.verdict.anomalies:
        console.print(f"  {anomaly.name}: {anomaly.count}")
    report = folder / "report.html"
    report.write_text(write_report("Chronik demo", {"demo": result.verdict}, []))
    console.print(
        f"Report: {report}\n"
        "Next:   chronik up --nodes 3                 a cluster to play with\n"
        "        chronik verify large-batch --help    the same proof about any Kafka cluster"
    )
