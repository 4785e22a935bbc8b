"""The pipeline beside Spark's own JVM Kafka connector, and its growth with the topic.

    pipeline.py [--phases compare,linear] [--records 5000000] [--rounds 3] [--warm-up 2]
                [--codec none,lz4] [--sizes 10000000,30000000,100000000] [--quick]

compare: one Chronik node, one topic, one Spark session per contestant (local[2], 1 GB, the same
settings); the cases of pipeline_side.py run in turns, the order changes with every round, and
their results must be equal. The figures are medians; the first two rounds warm up both JVMs, whose
compilers work on long after the first, and do not count.
linear: topics of several sizes become tables; records/s and the driver's memory should stay.
`other_cpu_s` in a line is what else ran on the machine: if it is not small, the figures are noisy.
The lines go to results/pipeline-TIME.json, the tables to results/pipeline-TIME.md.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contestants import BENCH, Chronik
from pipeline_fill import CODECS, fill
from process_tree import cpu_s, machine_cpu_s, watched
from rich.console import Console
from rich.table import Table

CONSOLE = Console()
JARS = BENCH.parent / ".peers" / "spark-kafka"
JARS_SH = BENCH / "spark-kafka.sh"
TARGETS = {"table": 2.5, "aggregate": 3.0, "by_key": 0.0, "count": 3.0, "count_all": 0.0}
"""How many times the connector's records/s a case should do; 0: shown for completeness."""
CASES = tuple(TARGETS)
SIZES = (10_000_000, 30_000_000, 100_000_000)
QUICK = 10
STARTED_S_MAX = 60
Line = dict[str, Any]


class Side:
    """One contestant: a process with a Spark session."""

    def __init__(self, kind: str, log: Path) -> None:
        self.kind = kind
        command = [sys.executable, str(BENCH / "pipeline_side.py"), kind, str(JARS)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"), text=True
        )
        self._answer()

    def run(self, case: str, bootstrap: str, topic: str, broker: int) -> Line:
        """Runs one case and measures it."""
        with tempfile.TemporaryDirectory(dir=BENCH / "work") as folder:
            task = {"case": case, "bootstrap": bootstrap, "topic": topic}
            task["folder"] = str(Path(folder) / "table")
            assert self._process.stdin
            before, before_broker = cpu_s(self._process.pid), cpu_s(broker)
            before_all = machine_cpu_s()
            with watched(self._process.pid) as memory:
                print(json.dumps(task), file=self._process.stdin, flush=True)
                line = self._answer()
            ours, broker_s = cpu_s(self._process.pid) - before, cpu_s(broker) - before_broker
            other = machine_cpu_s() - before_all - ours - broker_s
            size = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())
        return line | {
            "side": self.kind,
            "case": case,
            "topic": topic,
            "cpu_s": round(ours, 2),
            "broker_cpu_s": round(broker_s, 2),
            "other_cpu_s": round(other, 2),
            "driver_mb": round(memory.driver_mb),
            "workers_mb": round(memory.workers_mb),
            "table_mb": round(size / 1e6, 1),
        }

    def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> Line:
        assert self._process.stdout
        text = self._process.stdout.readline()
        if not text:
            raise SystemExit(f"the session of '{self.kind}' ended; see {BENCH / 'work'}")
        found: Line = json.loads(text)
        return found


def main() -> int:
    options = parse()
    if "compare" in options.phases and not any(JARS.glob("*.jar")):
        if shutil.which("mvn") is None:
            CONSOLE.print("[red]Spark's Kafka connector comes with Maven: install mvn[/red]")
            return 2
        subprocess.run([JARS_SH, JARS], check=True)
    lines: list[Line] = []
    for phase in options.phases:
        for codec in options.codec if phase == "compare" else options.codec[:1]:
            with broker() as (bootstrap, pid):
                work = compare if phase == "compare" else linear
                lines += work(options, bootstrap, pid, codec)
    return report(lines, options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--phases", default="compare,linear")
    parser.add_argument("--records", type=int, default=5_000_000, help="of the compared topic")
    parser.add_argument("--rounds", type=int, default=3, help="that count")
    parser.add_argument("--warm-up", type=int, default=2, help="rounds before them")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--codec", default="none", help=f"of the records: {', '.join(CODECS)}")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="of phase linear")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one round")
    options = parser.parse_args()
    options.phases, options.codec = options.phases.split(","), options.codec.split(",")
    options.cases = options.cases.split(",")
    options.sizes = [int(size) for size in options.sizes.split(",")]
    if options.quick:
        options.rounds, options.warm_up, options.records = 1, 1, options.records // QUICK
        options.sizes = [size // QUICK for size in options.sizes]
    return options


@contextmanager
def broker() -> Iterator[tuple[str, int]]:
    """A node with empty data."""
    with Chronik("os").running() as (bootstrap, pids):
        deadline = time.perf_counter() + STARTED_S_MAX
        host, _, port = bootstrap.rpartition(":")
        while not answers(host, int(port)):
            if time.perf_counter() > deadline:
                raise SystemExit("the node does not start")
            time.sleep(0.1)
        yield bootstrap, pids[0]


def answers(host: str, port: int) -> bool:
    import socket  # noqa: PLC0415

    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def compare(options: argparse.Namespace, bootstrap: str, pid: int, codec: str) -> list[Line]:
    """Both sides in turns."""
    CONSOLE.rule(f"{options.records:,} records, compression {codec}")
    topic = f"compare-{codec}"
    fill(bootstrap, topic, options.records, codec=codec)
    sides = [Side(kind, BENCH / "work" / f"{kind}.log") for kind in ("chronik", "kafka")]
    lines: list[Line] = []
    try:
        for number in range(1 - options.warm_up, options.rounds + 1):
            for case in options.cases:
                found = [side.run(case, bootstrap, topic, pid) for side in sides]
                sides.reverse()
                assert found[0]["result"] == found[1]["result"], f"{case}: {found}"
                lines += [shown(one, number, options.records) for one in found]
    finally:
        for side in sides:
            side.stop()
    return [line for line in lines if line["round"] > 0]


def linear(options: argparse.Namespace, bootstrap: str, pid: int, codec: str) -> list[Line]:
    """One session, topics of growing size."""
    side = Side("chronik", BENCH / "work" / "linear.log")
    lines = []
    try:
        fill(bootstrap, "warm-up", options.sizes[0] // QUICK, codec=codec)
        side.run("table", bootstrap, "warm-up", pid)
        for size in options.sizes:
            CONSOLE.rule(f"{size:,} records to a table")
            fill(bootstrap, f"linear-{size}", size, codec=codec)
            line = side.run("table", bootstrap, f"linear-{size}", pid)
            lines.append(shown(line | {"case": f"linear {size:,}"}, 1, size))
    finally:
        side.stop()
    return lines


def shown(line: Line, number: int, records: int) -> Line:
    line.pop("result")
    line |= {"round": number, "records": records, "seconds": round(line["seconds"], 3)}
    line["rec_s"] = round(records / line["seconds"])
    CONSOLE.print(json.dumps(line), markup=False, highlight=False, style="dim")
    return line


# -- report


def report(lines: list[Line], options: argparse.Namespace) -> int:
    """Tables on the terminal and two files; 1 where a target is missed."""
    rows = [*compared(lines), *grown(lines)]
    table = Table("case", "figure", "chronik", "connector", "ratio", "target")
    for row in rows:
        table.add_row(*row)
    CONSOLE.print(table)
    stem = BENCH / "results" / time.strftime("pipeline-%Y%m%dT%H%M%SZ", time.gmtime())
    stem.parent.mkdir(exist_ok=True)
    facts = f"{os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
    whole = {"machine": facts, "options": vars(options), "lines": lines}
    stem.with_suffix(".json").write_text(json.dumps(whole, indent=1) + "\n")
    head = "| case | figure | chronik | connector | ratio | target |\n|---|---|---|---|---|---|\n"
    body = "".join("| " + " | ".join(row) + " |\n" for row in rows)
    stem.with_suffix(".md").write_text(f"{options.records:,} records; {facts}\n\n{head}{body}")
    CONSOLE.print(f"wrote {stem.relative_to(BENCH.parent)}.md and .json")
    return int(any("missed" in row[5] for row in rows))


def compared(lines: list[Line]) -> Iterator[tuple[str, ...]]:
    for topic in dict.fromkeys(line["topic"] for line in lines if "compare" in line["topic"]):
        for case, target in TARGETS.items():
            here = [one for one in lines if one["topic"] == topic and one["case"] == case]
            if not here:
                continue
            name = f"{case}, {topic.removeprefix('compare-')}"
            ours, theirs = (median(here, kind, lambda x: x["rec_s"]) for kind in KINDS)
            ratio = ours / theirs
            yield name, "records/s", f"{ours:,.0f}", f"{theirs:,.0f}", *judged(ratio, target)
            ours, theirs = (median(here, kind, cpu_per_million) for kind in KINDS)
            yield (
                name,
                "CPU s per million",
                f"{ours:.2f}",
                f"{theirs:.2f}",
                f"{ours / theirs:.2f}",
                "",
            )


KINDS = ("chronik", "kafka")


def cpu_per_million(line: Line) -> float:
    """Spark's and the broker's."""
    return float((line["cpu_s"] + line["broker_cpu_s"]) / line["records"] * 1e6)


def median(lines: list[Line], kind: str, figure: Any) -> float:
    return statistics.median(figure(line) for line in lines if line["side"] == kind)


def judged(ratio: float, target: float) -> tuple[str, str]:
    if not target:
        return f"{ratio:.2f}", ""
    return f"{ratio:.2f}", f">= {target}" + ("" if ratio >= target else ": missed")


def grown(lines: list[Line]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        if line["case"].startswith("linear"):
            memory = f"driver {line['driver_mb']} MB, workers {line['workers_mb']} MB"
            per_million = f"{cpu_per_million(line):.2f}"
            yield line["case"], "records/s", f"{line['rec_s']:,}", "", "", memory
            yield line["case"], "CPU s per million", per_million, "", "", ""


if __name__ == "__main__":
    sys.exit(main())
