"""The verdict as one HTML file that needs nothing else: tables, plots, and the JSON inside it."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from chronik.audit.anomaly import Anomaly, Verdict, row_dict
from chronik.audit.report_plots import nodes_section, progress_chart, timeline_section
from chronik.audit.svg import bar_chart, line_chart

COLOURS = 8
_STYLE = """
:root{color-scheme:light dark;
--ink:#1d2430;--soft:#667085;--page:#fff;--card:#f6f7f9;--rule:#dfe3e8;
--s0:#2563eb;--s1:#c2410c;--s2:#15803d;--s3:#7c3aed;--s4:#0e7490;--s5:#be185d;--s6:#a16207;
--s7:#475569;--fail:#b42318;--warn:#a15c07;--ok:#15803d}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#98a2b3;--page:#12161d;--card:#1b212b;
--rule:#2f3744;--s0:#7aa7ff;--s1:#fb9a64;--s2:#5fd08a;--s3:#b79cff;--s4:#5cc8de;--s5:#f58bbd;
--s6:#e0c060;--s7:#9fb0c6;--fail:#ff8a80;--warn:#f2c063;--ok:#5fd08a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:0 auto;
max-width:980px;padding:24px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:32px 0 8px}
h3{font-size:15px;margin:20px 0 6px}
.word{font-weight:700}.ok{color:var(--ok)}.fail{color:var(--fail)}.warn{color:var(--warn)}
.allowed,.soft{color:var(--soft)}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:5px 10px;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right}td.at{width:1%;white-space:nowrap}
section{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:4px 20px 16px;
margin-top:20px}
svg{width:100%;height:auto;display:block;font-size:12px}svg text{fill:var(--soft)}
.grid{stroke:var(--rule)}.line{fill:none;stroke-width:2}.bar{fill:var(--s0)}
COLOURS.legend span{margin-right:18px}
.legend i{display:inline-block;width:14px;height:3px;margin-right:6px;vertical-align:middle}
pre{font-size:12px;white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0}
"""
STYLE = _STYLE.replace(
    "COLOURS",
    "".join(
        f".line.s{n}{{stroke:var(--s{n})}}.mark.s{n}{{fill:var(--s{n})}}"
        f".legend i.s{n}{{background:var(--s{n})}}"
        for n in range(COLOURS)
    ),
)


def write_report(title: str, verdicts: Mapping[str, Verdict], findings: Sequence[str]) -> str:
    """The page; its last element holds the same as JSON."""
    ok = all(verdict.ok for verdict in verdicts.values())
    word = _word("ok", "no anomaly was found") if ok else _word("fail", "anomalies were found")
    said = "".join(f"<p>{escape(finding)}</p>" for finding in findings)
    sections = "".join(_section(name, verdict) for name, verdict in verdicts.items())
    values = {name: verdict.to_dict() for name, verdict in verdicts.items()}
    # A text with "</script" in it would end the element early.
    data = json.dumps(values).replace("<", "\\u003c")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1><p>{word}</p>{said}{sections}"
        f'<script type="application/json" id="verdict">{data}</script></body></html>'
    )


def _section(name: str, verdict: Verdict) -> str:
    measures = verdict.measures
    series = measures["over_time"]
    seconds = series.get("seconds", [])
    lines = [(key, series[key]) for key in ("sent", "acked", "read") if key in series]
    unseen = [("acked and not yet read", series["unseen"])] if series else []
    return (
        f"<h2>{escape(name)}</h2><p>{_summary(measures)}</p>"
        f"{_anomalies(verdict.anomalies)}{_losses(measures)}"
        f"<section><h3>Delivery over time</h3>{line_chart(seconds, lines, 's')}"
        f"<h3>Unseen over time</h3>{line_chart(seconds, unseen, 's')}{_lags(measures)}</section>"
        f"{timeline_section(measures)}"
        f"<section><h3>Read of what was sent, per partition</h3>{_progress(measures)}"
        f"{_partitions(measures)}{progress_chart(measures)}</section>"
        f"{nodes_section(measures)}"
        f"<section><h3>Ack latency</h3>{_latency(measures['ack_latency_ms'])}"
        f"<h3>Latency from send to read</h3>{_latency(measures['delivery_latency_ms'])}</section>"
    )


def _summary(measures: dict[str, Any]) -> str:
    sends = ", ".join(f"{count:,} {outcome}" for outcome, count in measures["sends"].items())
    text = f"sends: {sends or 'none'}; records read: {measures['records']:,}"
    refusals = "; ".join(f"{name}: {count:,}" for name, count in measures["refusals"].items())
    return escape(f"{text}; without ack: {refusals}" if refusals else text)


def _anomalies(anomalies: Sequence[Anomaly]) -> str:
    if not anomalies:
        return f"<p>{_word('ok', 'No anomaly of any level.')}</p>"
    rows = "".join(
        f"<tr><td>{_word(found.level, found.level)}</td><td>{escape(found.name)}</td>"
        f'<td class="n">{found.count:,}</td><td>{_examples(found)}</td></tr>'
        for found in anomalies
    )
    head = '<tr><th>level</th><th>anomaly</th><th class="n">count</th><th>examples</th></tr>'
    return f'<div class="wide"><table>{head}{rows}</table></div>'


def _losses(measures: dict[str, Any]) -> str:
    said = "".join(f"<p>{escape(loss['statement'])}</p>" for loss in measures.get("losses", []))
    where = measures.get("where_lost", {})
    said += "".join(f"<p>{count:,} lost: {escape(place)}</p>" for place, count in where.items())
    return f"<section><h3>Where it was lost</h3>{said}</section>" if said else ""


def _examples(found: Anomaly) -> str:
    texts = []
    for example in found.examples:
        rows = "\n".join(json.dumps(row_dict(row)) for row in example.rows)
        more = (
            f"<details><summary>rows</summary><pre>{escape(rows)}</pre></details>" if rows else ""
        )
        texts.append(f"<div>{escape(example.statement)}{more}</div>")
    return "".join(texts)


def _progress(measures: dict[str, Any]) -> str:
    bars = []
    topics = {name.rpartition("-")[0] for name in measures["partitions"]}
    for name, row in measures["partitions"].items():
        label = f"partition {name.rpartition('-')[2]}" if len(topics) == 1 else name[-26:]
        seen = row["sent"] - row["missed"]
        share = seen / row["sent"] if row["sent"] else 1.0
        bars.append((label, share, f"{seen:,} of {row['sent']:,} ({share:.1%})"))
    return bar_chart(bars, top=1.0)


def _partitions(measures: dict[str, Any]) -> str:
    names = ("sent", "read", "missed", "offset_min", "offset_max", "gaps", "log_start", "log_end")
    titles = "".join(f'<th class="n">{name.replace("_", " ")}</th>' for name in names)
    head = f"<tr><th>partition</th>{titles}</tr>"
    rows = "".join(
        f"<tr><td>{escape(partition)}</td>"
        + "".join(f'<td class="n">{row[name]:,}</td>' for name in names)
        + "</tr>"
        for partition, row in measures["partitions"].items()
    )
    return f'<div class="wide"><table>{head}{rows}</table></div>'


def _lags(measures: dict[str, Any]) -> str:
    charts = []
    for consumer, series in measures["lag_over_time"].items():
        chart = line_chart(series["seconds"], [("records behind the end", series["lag"])], "s")
        charts.append(f"<h3>Lag of {escape(consumer)} over time</h3>{chart}")
    return "".join(charts)


def _latency(percentiles: dict[str, float]) -> str:
    return bar_chart([(name, value, f"{value:,.1f} ms") for name, value in percentiles.items()])


def _word(style: str, text: str) -> str:
    return f'<span class="word {style}">{escape(text)}</span>'
