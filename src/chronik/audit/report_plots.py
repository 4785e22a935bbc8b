"""The parts of a report that need more than the measures: `plots.plot_data` made their data."""

from html import escape
from typing import Any

from chronik.audit.svg import bar_chart, line_chart, timeline_chart

LANES = (
    ("node", "nodes"),
    ("fault", "faults"),
    ("election", "elections"),
    ("stall", "stalls"),
)
LISTED_MAX = 20


def timeline_section(measures: dict[str, Any]) -> str:
    """Nothing happened: nothing is drawn."""
    entries = measures.get("plots", {}).get("timeline", [])
    if not entries:
        return ""
    lanes = [
        (title, [(one["s"], one["end_s"], one["what"]) for one in entries if one["kind"] == kind])
        for kind, title in LANES
        if any(one["kind"] == kind for one in entries)
    ]
    seconds = measures["over_time"].get("seconds", [0.0])
    low = min(0.0, *(one["s"] for one in entries))
    high = max(seconds[-1], *(one["end_s"] for one in entries))
    listed = "".join(
        f'<tr><td class="n at">{one["s"]:.2f} s</td><td>{escape(one["kind"])}</td>'
        f"<td>{escape(one['what'])}</td></tr>"
        for one in entries[:LISTED_MAX]
    )
    more = len(entries) - LISTED_MAX
    tail = f'<p class="soft">and {more} more</p>' if more > 0 else ""
    chart = timeline_chart(lanes, low, high)
    table = f'<div class="wide"><table>{listed}</table></div>{tail}'
    return f"<section><h3>Nodes, faults, elections and stalls</h3>{chart}{table}</section>"


def progress_chart(measures: dict[str, Any]) -> str:
    data = measures.get("plots", {}).get("progress")
    if not data:
        return ""
    names = {name: _short(name, data["series"]) for name in data["series"]}
    lines = [(names[name], values) for name, values in data["series"].items()]
    return f"<h3>Values read over time, per partition</h3>{line_chart(data['seconds'], lines, 's')}"


def nodes_section(measures: dict[str, Any]) -> str:
    """What the nodes' own traces tell."""
    plots = measures.get("plots", {})
    parts = [
        f"<h3>Watermark and log end per node: {escape(key)}</h3>"
        + line_chart(data["seconds"], list(data["series"].items()), "s")
        for key, data in plots.get("nodes", {}).items()
        if data
    ]
    refused = plots.get("rejections", {})
    if refused:
        bars = [
            (node, float(sum(errors.values())), _errors(errors)) for node, errors in refused.items()
        ]
        parts.append(f"<h3>Rejections per node</h3>{bar_chart(bars)}")
    return f"<section>{''.join(parts)}</section>" if parts else ""


def _errors(errors: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name.lower()}" for name, count in list(errors.items())[:2])


def _short(name: str, all_names: dict[str, Any]) -> str:
    topics = {one.rpartition("-")[0] for one in all_names}
    return f"partition {name.rpartition('-')[2]}" if len(topics) == 1 else name
