"""`chronik demo`: the product's main job from end to end, with a report to look at (`make run`)."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from chronik.audit.verify import Result
    from chronik.audit.workload import Progress
    from chronik.cli._demo_cluster import Accident
    from chronik.cli._demo_table import SparkInBackground, TableResult
    from chronik.cli._supervisor import Supervisor

RATE = 25_000.0
"""Messages a second: slow enough that the accident happens in the middle of the batch."""


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
    """A cluster, a batch while a node dies, a table made of it, and the proof of all three.

    It leaves nothing running, however it ends; what it found is in the folder of --out.
    """
    from rich.console import Console

    from chronik.cli._demo_place import ended_by_signals, own_folder

    demo = Demo(Console(highlight=False), nodes, messages, durability)
    try:
        with ended_by_signals(), own_folder(Path(out)) as folder:
            ok = demo.run(folder)
    except KeyboardInterrupt:
        demo.console.print("Stopped; nothing is left running.")
        sys.exit(130)
    sys.exit(0 if ok else 1)


class Demo:
    """One run; every step is a line."""

    def __init__(self, console: "Console", nodes: int, messages: int, durability: str) -> None:
        self.console = console
        self._nodes, self._messages, self._durability = nodes, messages, durability

    def run(self, folder: Path) -> bool:
        """True where everything arrived, and the table is the log."""
        from chronik.cli._demo_cluster import KILL_AT, Accident, started
        from chronik.cli._demo_place import not_disturbed
        from chronik.cli._demo_table import SparkInBackground, missing

        began = time.perf_counter()
        lacking = missing()
        spark = None if lacking else SparkInBackground(folder / "spark.log")
        cluster = accident = None
        try:
            with self._step("cluster") as say:
                cluster = started(self._nodes, folder, self._durability)
                say(f"{self._nodes} nodes serve on {cluster.bootstrap}")
            kill_at = int(self._messages * KILL_AT) if self._nodes > 2 else None
            accident = Accident(cluster, kill_at)
            result = self._produce(cluster, accident, folder)
            table = self._table(spark, cluster.bootstrap, folder) if spark else None
        finally:
            with not_disturbed():
                _stop(cluster, accident, spark)
        if lacking:
            self._line("-", "table", f"left out: {lacking}")
        took_s = time.perf_counter() - began
        ok = self._end(folder, result, table, accident, took_s)
        return ok and (table is not None or lacking is not None)

    # -- steps

    def _produce(self, cluster: "Supervisor", accident: "Accident", folder: Path) -> "Result":
        from chronik.audit.verify import verify_once
        from chronik.audit.workload import Plan
        from chronik.cli._demo_table import TOPIC

        plan = Plan(
            bootstrap=cluster.bootstrap,
            topic=TOPIC,
            as_json=True,
            run=1,
            ledger=folder / "ledger",
            messages=self._messages,
            rate=RATE,
            acks="all",
            idempotent=True,
            partitions=3,
            replication=min(3, self._nodes),
        )
        with self._bars() as update:

            def show(progress: "Progress") -> None:
                update(progress.sent, max(progress.read.values(), default=0))
                accident.look(progress.sent)

            result = verify_once(plan, show, "demo")
            accident.wait()
        self._tell_delivery(result, accident)
        return result

    def _tell_delivery(self, result: "Result", accident: "Accident") -> None:
        from chronik.cli._demo_cluster import VICTIM

        sent = result.verdict.measures["sends"].get("ok", 0)
        rate = result.progress.sent / (result.progress.produce_s or 1)
        self._line("✓", "produced", f"{sent:,} orders acknowledged, {rate:,.0f} a second")
        if accident.killed_at is not None:
            away = f"{accident.away_s:.0f} s" if accident.away_s >= 1 else "a moment"
            said = f"node {VICTIM} was killed after {accident.killed_at:,} orders and came back"
            self._line("!", "accident", f"{said} {away} later")
        ok = result.verdict.ok and result.consumed == result.plan.messages
        said = f"{result.consumed:,} of {result.plan.messages:,} ({result.share:.2%})"
        self._line("✓" if ok else "✗", "read back", f"{said}; {anomalies_text(result)}")

    def _table(
        self, spark: "SparkInBackground", bootstrap: str, folder: Path
    ) -> "TableResult | None":
        """None where Spark failed: the first half still has its report."""
        try:
            return self._made(spark, bootstrap, folder)
        except Exception as error:  # noqa: BLE001 - told, and the demo fails
            first = str(error).strip().splitlines()[:1] or [type(error).__name__]
            self._line("✗", "table", f"{first[0]} (see spark.log)")
            return None

    def _made(self, spark: "SparkInBackground", bootstrap: str, folder: Path) -> "TableResult":
        from chronik.cli._demo_place import shown
        from chronik.cli._demo_table import QUESTION, TOPIC, make_table

        with self._step("table") as say, self.console.status("Starting Spark ...") as status:
            session = spark.get()
            found = make_table(session, bootstrap, folder, status.update)
            say(f"{found.rows:,} rows in the Iceberg table '{TOPIC}' in {shown(folder)}/warehouse")
        self._line("✓", "SQL", QUESTION)
        self._line(" ", "", ", ".join(f"{name} {count:,}" for name, count in found.answer))
        self._line("✓" if found.verdict.ok else "✗", "proof", proof_text(found))
        return found

    def _end(
        self,
        folder: Path,
        result: "Result",
        table: "TableResult | None",
        accident: "Accident",
        took_s: float,
    ) -> bool:
        from chronik.cli._demo_page import page
        from chronik.cli._demo_place import shown

        ok = result.verdict.ok and (table is None or table.verdict.ok)
        report = folder / "report.html"
        report.write_text(page(result, table, accident, took_s), encoding="utf-8")
        word = "[bold green]PASS[/]" if ok else "[bold red]FAIL[/]"
        self.console.print(f"\n{word} in {took_s:.0f} s. Report: {shown(report)}", soft_wrap=True)
        self.console.print("\n[bold]Try next[/]")
        for what, line in suggestions(shown(folder), table is not None):
            self.console.print(f"  [dim]# {what}[/]", soft_wrap=True)
            self.console.print(f"  {line}", soft_wrap=True, markup=False)
        return ok

    # -- lines

    @contextmanager
    def _step(self, name: str) -> Iterator[Callable[[str], None]]:
        """A line with what was done and how long it took; nothing where it fails."""
        began = time.perf_counter()
        said: list[str] = []
        yield said.append
        self._line("✓", name, f"{' '.join(said)} [dim]({time.perf_counter() - began:.1f} s)[/]")

    def _line(self, mark: str, name: str, text: str) -> None:
        colour = {"✓": "green", "✗": "bold red", "!": "yellow", "-": "yellow"}.get(mark, "default")
        self.console.print(f"[{colour}]{mark}[/] [bold]{name:<10}[/] {text}", soft_wrap=True)

    @contextmanager
    def _bars(self) -> Iterator[Callable[[int, int], None]]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("  {task.description:<10}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self.console, transient=True) as bars:
            sent = bars.add_task("produced", total=self._messages)
            read = bars.add_task("read back", total=self._messages)

            def update(sent_count: int, read_count: int) -> None:
                bars.update(sent, completed=sent_count)
                bars.update(read, completed=read_count)

            yield update


def _stop(
    cluster: "Supervisor | None", accident: "Accident | None", spark: "SparkInBackground | None"
) -> None:
    """All of it, whatever state it is in."""
    if accident is not None:
        accident.call_off()
    if cluster is not None:
        cluster.stop()
    if spark is not None:
        spark.stop()


def anomalies_text(result: "Result") -> str:
    """What the audit found wrong; the three words of the promise where it found nothing."""
    failed = [one for one in result.verdict.anomalies if one.level == "fail"]
    if not failed:
        return "0 lost, 0 duplicated, 0 reordered"
    return ", ".join(f"{one.name}: {one.count:,}" for one in failed)


def proof_text(table: "TableResult") -> str:
    """Acknowledgements, log and table in one line."""
    found = table.verdict
    counts = ", ".join(f"{found.total(name):,} {name}" for name in ("lost", "doubled", "altered"))
    return (
        f"{found.acked or 0:,} acknowledged, {found.total('log_rows'):,} in the log, "
        f"{found.total('table_rows'):,} in the table: {counts}"
    )


def suggestions(folder: str, has_table: bool) -> list[tuple[str, str]]:
    """What a newcomer can do now: (what it is, the command)."""
    after = []
    if has_table:
        question = "SELECT country, count(*), max(_timestamp) FROM orders GROUP BY country"
        after.append(
            (
                "ask the table that was just made",
                f'chronik sql "{question}" --cold -w {folder}/warehouse',
            )
        )
    traces = "SELECT node, kind, count(*) FROM chronik.traces GROUP BY ALL ORDER BY 1, 2"
    after += [
        (
            "what each node did with each batch",
            f'chronik sql "{traces}" --cold --evidence {folder}',
        ),
        ("a cluster to play with", "chronik up --nodes 3"),
        ("the same proof about any Kafka cluster", "chronik verify large-batch --help"),
    ]
    return after
