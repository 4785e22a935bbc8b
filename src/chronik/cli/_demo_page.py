"""The report of `chronik demo`: one HTML file that tells the whole run."""

import json
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from chronik.audit.report import STYLE
from chronik.audit.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, bar_chart, line_chart
from chronik.cli._demo_cluster import VICTIM, Accident
from chronik.cli._demo_table import QUESTION, TOPIC

if TYPE_CHECKING:
    from chronik.audit.verify import Result
    from chronik.cli._demo_table import TableResult

EXTRA_STYLE = """
.big{display:flex;gap:12px;flex-wrap:wrap;margin:20px 0 4px}
.big div{flex:1 1 150px;background:var(--card);border:1px solid var(--rule);border-radius:8px;
padding:12px 16px}
.big b{display:block;font-size:26px;line-height:1.25;font-variant-numeric:tabular-nums}
.big span{color:var(--soft);font-size:13px}
.mark{stroke:var(--fail);stroke-width:1.5;stroke-dasharray:4 3}
svg text.said{fill:var(--fail)}
code{font-size:13px;background:var(--page);border:1px solid var(--rule);border-radius:4px;
padding:1px 5px;overflow-wrap:anywhere}
.flow{color:var(--soft)}.flow b{color:var(--ink)}
"""


def page(result: "Result", table: "TableResult | None", accident: Accident, took_s: float) -> str:
    """The page; its last element holds the audit's verdict as JSON."""
    ok = result.verdict.ok and (table is None or table.verdict.ok)
    word = "PASS" if ok else "FAIL"
    # A text with "</script" in it would end the element early.
    data = json.dumps({"demo": result.verdict.to_dict()}).replace("<", "\\u003c")
    body = (
        f'<h1>Chronik demo: <span class="{"ok" if ok else "fail"}">{word}</span></h1>'
        f"<p>{_story(result, table, accident, took_s)}</p>{_numbers(result, table)}"
        f"{_anomalies(result)}{_delivery(result, accident)}{_partitions(result, table)}"
        f"{'' if table is None else _question(table)}{_latency(result)}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Chronik demo</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}{EXTRA_STYLE}</style></head><body>{body}"
        f'<script type="application/json" id="verdict">{data}</script></body></html>'
    )


def _story(result: "Result", table: "TableResult | None", accident: Accident, took_s: float) -> str:
    nodes = result.plan.bootstrap.count(",") + 1
    sent = f"A client sent {result.plan.messages:,} orders to a cluster of {nodes}"
    parts = [f"{sent} and waited for every acknowledgement (acks=all)."]
    if accident.killed_at is not None:
        parts.append(
            f"Node {VICTIM} was killed after {accident.killed_at:,} of them "
            f"and started again {accident.away_s:.0f} s later."
        )
    parts.append("A second client read everything back while that happened.")
    if table is not None:
        parts.append(f"Then the topic became the Iceberg table '{TOPIC}',")
        parts.append("and acknowledgements, log and table were compared.")
    parts.append(f"It took {took_s:.0f} s.")
    return escape(" ".join(parts))


def _numbers(result: "Result", table: "TableResult | None") -> str:
    acked = result.verdict.measures["sends"].get("ok", 0)
    boxes = [("acknowledged", acked), ("read back", result.consumed)]
    if table is not None:
        boxes.append(("rows in the table", table.verdict.total("table_rows")))
    missed = sum(row["missed"] for row in result.partitions.values())
    lost = missed + (0 if table is None else table.verdict.total("lost"))
    boxes.append(("lost", lost))
    if table is not None:
        boxes.append(("doubled in the table", table.verdict.total("doubled")))
    cells = "".join(
        f"<div><b>{count:,}</b><span>{escape(name)}</span></div>" for name, count in boxes
    )
    return f'<div class="big">{cells}</div>'


def _anomalies(result: "Result") -> str:
    found = result.verdict.anomalies
    if not found:
        said = "The audit looked for every anomaly that it knows and found none."
        return f'<p class="ok">{said}</p>'
    rows = "".join(
        f'<tr><td class="{one.level}">{one.level}</td><td>{escape(one.name)}</td>'
        f'<td class="n">{one.count:,}</td></tr>'
        for one in found
    )
    head = '<tr><th>level</th><th>anomaly</th><th class="n">count</th></tr>'
    return f"<section><h3>Anomalies</h3><table>{head}{rows}</table></section>"


def _delivery(result: "Result", accident: Accident) -> str:
    series: dict[str, list[float]] = result.verdict.measures["over_time"]
    seconds = series.get("seconds", [])
    lines = [(name, series[name]) for name in ("sent", "acked", "read") if name in series]
    chart = line_chart(seconds, lines, "s")
    marks = _marks(seconds, series.get("sent", []), accident)
    return (
        "<section><h3>Sent, acknowledged and read over time</h3>"
        f"{chart.replace('</svg>', marks + '</svg>', 1)}</section>"
    )


def _marks(seconds: Sequence[float], sent: Sequence[float], accident: Accident) -> str:
    """Upright lines where the node went and where it came back."""
    if accident.killed_at is None or len(seconds) < 2:
        return ""
    killed_s = next(
        (s for s, count in zip(seconds, sent, strict=True) if count >= accident.killed_at), None
    )
    if killed_s is None:
        return ""
    back_s = killed_s + accident.away_s
    return _mark(seconds, killed_s, f"node {VICTIM} killed", "end") + _mark(
        seconds, back_s, "started again", "start"
    )


def _mark(seconds: Sequence[float], at_s: float, said: str, anchor: str) -> str:
    share = (at_s - seconds[0]) / ((seconds[-1] - seconds[0]) or 1)
    if share > 1:
        return ""
    x = LEFT + (WIDTH - LEFT - RIGHT) * share
    away = -6 if anchor == "end" else 6
    return (
        f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text class="said" x="{x + away:.1f}" y="{TOP + 10}" text-anchor="{anchor}">{said}</text>'
    )


def _partitions(result: "Result", table: "TableResult | None") -> str:
    """Acknowledgements, log and table side by side, per partition."""
    proofs = {} if table is None else {one.partition: one for one in table.verdict.partitions}
    names = ["acknowledged", "read back", "not read"]
    names += ["in the log", "in the table", "lost", "doubled", "altered"] if proofs else []
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    rows = []
    for name, row in result.partitions.items():
        cells: list[int] = [row["sent"], row["read"], row["missed"]]
        proof: Any = proofs.get(int(name.rpartition("-")[2]))
        if proof is not None:
            cells += [proof.log_rows, proof.table_rows, proof.lost, proof.doubled, proof.altered]
        texts = "".join(f'<td class="n">{value:,}</td>' for value in cells)
        rows.append(f"<tr><td>{escape(name)}</td>{texts}</tr>")
    return (
        '<section><h3>Every record, in every place it must be</h3><div class="wide"><table>'
        f"<tr><th>partition</th>{head}</tr>{''.join(rows)}</table></div></section>"
    )


def _question(table: "TableResult") -> str:
    bars = [(str(name), float(count), f"{count:,}") for name, count in table.answer]
    title = "<h3>A question to the table</h3>"
    return f"<section>{title}<code>{QUESTION}</code>{bar_chart(bars)}</section>"


def _latency(result: "Result") -> str:
    measures = result.verdict.measures
    charts = "".join(
        f"<h3>{title}</h3>{bar_chart([(n, v, f'{v:,.1f} ms') for n, v in measures[name].items()])}"
        for name, title in (
            ("ack_latency_ms", "Latency from send to acknowledgement"),
            ("delivery_latency_ms", "Latency from send to read"),
        )
    )
    return f"<section>{charts}</section>"
