"""Medians over the rounds, and each row's ratio to Kafka, as a table to look at and one to keep."""

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

BASELINE = "kafka"
Line = dict[str, Any]


@dataclass(frozen=True)
class Metric:
    """One figure of a bench line."""

    key: str
    label: str
    higher_is_better: bool = False


METRICS: dict[str, tuple[Metric, ...]] = {
    "s": (
        Metric("ready_s", "start until it answers, s"),
        Metric("idle_anon_mb", "idle, anonymous memory, MB"),
        Metric("idle_rss_mb", "idle, resident memory, MB"),
        Metric("idle_cpu_pct", "idle, CPU, %"),
    ),
    "d": (Metric("p50_ms", "p50, ms"), Metric("p99_ms", "p99, ms")),
    "e": (Metric("p50_ms", "p50, ms"), Metric("p99_ms", "p99, ms")),
}
THROUGHPUT = (
    Metric("rec_s", "records/s", higher_is_better=True),
    Metric("cpu_s_per_gb", "CPU s per GB"),
    Metric("anon_peak_mb", "anonymous memory, peak MB"),
)
PHASES = {
    "s": "start",
    "a": "produce",
    "b": "produce, small batches",
    "c": "consume",
    "d": "end-to-end latency, 500 records/s",
    "e": "one produce in flight",
}


@dataclass
class Row:
    """One metric of one case: the values of each contestant, one per round."""

    label: str
    metric: Metric
    values: dict[str, list[float]] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)

    def median(self, name: str) -> float | None:
        """None where there is no figure."""
        values = self.values.get(name)
        return statistics.median(values) if values else None

    def ratio(self, name: str) -> float | None:
        """How many times better than Kafka; below 1 is worse."""
        ours, theirs = self.median(name), self.median(BASELINE)
        if name == BASELINE or not ours or not theirs:
            return None
        return ours / theirs if self.metric.higher_is_better else theirs / ours


def rows(lines: Iterable[Line]) -> list[Row]:
    """Rows in the order in which the cases were first measured."""
    found: dict[tuple[str, str], Row] = {}
    for line in lines:
        for metric in METRICS.get(line["phase"], THROUGHPUT):
            add(found, line, metric)
    order = list(PHASES)
    return sorted(found.values(), key=lambda row: order.index(row.label[0]))


def add(found: dict[tuple[str, str], Row], line: Line, metric: Metric) -> None:
    if line["phase"] not in PHASES:
        return
    label = case_label(line)
    row = found.setdefault((label, metric.key), Row(label, metric))
    if not line.get("ok", True):
        row.bad.add(line["name"])
    elif metric.key in line:
        row.values.setdefault(line["name"], []).append(float(line[metric.key]))


def noise_pct(lines: Iterable[Line], name: str, key: str) -> float:
    """CPU time that did not go to the benchmark, of all CPU time that anybody had meanwhile."""
    used = {"cpu_s": 0.0, "client_cpu_s": 0.0, "other_cpu_s": 0.0, "stolen_s": 0.0}
    for line in lines:
        if line["name"] == name:
            for kind in used:
                used[kind] += line.get(kind, 0.0)
    return 100 * used[key] / (sum(used.values()) or 1)


def noise(lines: list[Line], names: list[str]) -> str:
    """Two sentences for below the table."""
    others, stolen = (
        ", ".join(f"{name} {noise_pct(lines, name, key):.0f}%" for name in names)
        for key in ("other_cpu_s", "stolen_s")
    )
    return (
        f"CPU time of other processes and of the kernel's own threads during the cases: {others}. "
        f"Taken away by a virtual machine's host: {stolen}. Above 10%, measure again."
    )


def case_label(line: Line) -> str:
    """Phase letter first, then what was done."""
    parts = [f"{line['phase']} {PHASES[line['phase']]}"]
    if line["phase"] == "c":  # its case is the topic: kind, acks and size of what was produced
        kind, acks, size = str(line.get("case", "--")).rsplit("-", 2)
        parts += [f"of {kind}", f"acks={acks}", f"{size} B"]
    elif line["phase"] in "ab":
        parts += [f"acks={line.get('acks')}", f"{line.get('size')} B"]
    return ", ".join(parts)


def cell(row: Row, name: str) -> str:
    """Median, ratio, and a mark where a round went wrong."""
    median, ratio = row.median(name), row.ratio(name)
    text = "-" if median is None else number(median)
    if ratio is not None:
        text += f"  ({ratio:.2f}x)"
    return f"{text} FAILED" if name in row.bad else text


def number(value: float) -> str:
    """Three significant digits, thousands apart."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 100 else f"{value:.3g}"


def table(found: list[Row], names: list[str], title: str) -> Table:
    """For the terminal."""
    drawn = Table(title=title, caption="medians; in brackets: times better than Kafka")
    drawn.add_column("case")
    drawn.add_column("figure")
    for name in names:
        drawn.add_column(name, justify="right")
    last = ""
    for row in found:
        if row.label != last and last:
            drawn.add_section()
        shown = row.label if row.label != last else ""
        drawn.add_row(shown, row.metric.label, *(cell(row, name) for name in names))
        last = row.label
    return drawn


def markdown(found: list[Row], names: list[str], title: str, note: str) -> str:
    """For a document."""
    return "\n".join([*markdown_lines(found, names, title), "", note]) + "\n"


def markdown_lines(found: list[Row], names: list[str], title: str) -> Iterator[str]:
    yield f"# {title}\n"
    yield "In brackets: times better than Kafka (below 1 is worse). Medians of all rounds.\n"
    yield "| case | figure | " + " | ".join(names) + " |"
    yield "|---|---|" + "---:|" * len(names)
    for row in found:
        cells = " | ".join(cell(row, name) for name in names)
        yield f"| {row.label} | {row.metric.label} | {cells} |"
