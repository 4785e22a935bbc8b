"""The status page: `NodeStatus` in, one HTML document out, with no asset from anywhere else.

The script fetches the page again every few seconds and puts the new `<main>` in place, so open
rows stay open; without scripts the browser reloads. Whatever a client could have named is escaped.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable
from html import escape
from itertools import groupby

from chronik.broker.status import NodeStatus, PartitionStatus, Rates

TOPICS_SHOWN_MAX = 200
PARTITIONS_SHOWN_MAX = 100
PARTITIONS_OPEN_MAX = 6
"""A topic with more partitions starts folded."""
REFRESH_S = 3

_STYLE = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--line:#e2e5ea;--text:#1b2330;--dim:#667085;
--good:#0a7f4f;--good-bg:#e2f5ec;--bad:#b42318;--bad-bg:#fdeceb;--warn:#9a5b00;--in:#2563eb;--out:#0d9488}
@media(prefers-color-scheme:dark){:root{--bg:#0f141b;--card:#171e28;--line:#2a3340;--text:#e6e9ee;
--dim:#93a0b2;--good:#4cc38a;--good-bg:#12291f;--bad:#ff8b80;--bad-bg:#331a1a;--warn:#e5a54b;
--in:#6aa1ff;--out:#2dd4bf}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--text);
font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 20px 48px}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:6px 14px;margin-bottom:18px}
h1{font-size:20px;margin:0}h2{font-size:14px;margin:28px 0 10px}.dim{color:var(--dim)}
.pill{padding:2px 10px;border-radius:99px;font-weight:600;font-size:13px;align-self:center}
.ok{color:var(--good);background:var(--good-bg)}.fail{color:var(--bad);background:var(--bad-bg)}
.reasons{margin:0 0 18px;padding:10px 14px 10px 30px;border-radius:8px;color:var(--bad);
background:var(--bad-bg)}
.cards{display:grid;grid-template-columns:repeat(4,1fr);gap:12px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px}
.card b{display:block;font-size:20px;font-weight:600;font-variant-numeric:tabular-nums}
.card small{display:block;color:var(--dim);font-size:12px}
.warn b{color:var(--warn)}.bad b{color:var(--bad)}
.curves{display:grid;grid-template-columns:repeat(2,1fr);gap:12px;margin-top:12px}
svg{display:block;width:100%;height:56px;margin:6px 0}
.table{background:var(--card);border:1px solid var(--line);border-radius:10px;overflow-x:auto}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500;font-size:12px;text-align:right;white-space:nowrap}
td,th{padding:7px 14px;border-top:1px solid var(--line)}tr:first-child>*{border-top:0}
a{color:inherit}
td{text-align:right}td:first-child,th:first-child,.facts td{text-align:left}
.facts td:first-child{width:200px;color:var(--dim)}
details table{margin:8px 0 4px}details td,details th{padding:4px 10px}
td.name{min-width:140px;font-weight:500;overflow-wrap:anywhere}
td.open{padding:0 14px 6px;border-top:0}
summary{cursor:pointer;color:var(--dim);font-size:12px}.badcell{color:var(--bad);font-weight:600}
#gone{display:none;position:sticky;top:0;padding:8px;text-align:center;color:var(--bad);
background:var(--bad-bg)}#gone.on{display:block}
@media(max-width:760px){.cards{grid-template-columns:repeat(2,1fr)}.curves{grid-template-columns:1fr}}
"""
_SCRIPT = """
const gone=document.getElementById('gone');
setInterval(async()=>{if(document.hidden)return;try{
const answer=await fetch('/',{signal:AbortSignal.timeout(2500)});
const next=new DOMParser().parseFromString(await answer.text(),'text/html').querySelector('main');
const main=document.querySelector('main');
for(const d of main.querySelectorAll('details')){
const same=next.querySelector('#'+CSS.escape(d.id));if(same)same.open=d.open}
main.replaceWith(next);gone.className=''}catch{gone.className='on'}},REFRESH_MS);
""".replace("REFRESH_MS", str(REFRESH_S * 1000))


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; connect-src 'self'; script-src {_source(_SCRIPT)}; "
    f"style-src {_source(_STYLE)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only the page's own script and style run, whatever a topic is called."""


def human_bytes(size: float) -> str:
    """1536 is `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_count(count: float) -> str:
    """Thousands apart; a small fraction keeps one digit."""
    return f"{count:,.1f}" if 0 < count < 10 and count != int(count) else f"{count:,.0f}"


def human_duration(seconds: float) -> str:
    """93784 is `1 d 2 h`: the two largest units."""
    left = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or (parts and len(parts) < 2):
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2]) or "0 s"


def _card(label: str, value: str, note: str, tone: str = "") -> str:
    return (
        f'<div class="card {tone}"><small>{escape(label)}</small><b>{escape(value)}</b>'
        f"<small>{escape(note)}</small></div>"
    )


def _cards(status: NodeStatus) -> str:
    partitions = status.partitions
    leading = sum(1 for one in partitions if one.leader == status.node_id)
    under = sum(1 for one in partitions if one.under_replicated)
    rates = status.rates
    cards = (
        _card("Messages in", f"{human_count(rates.messages_in)}/s", "last 10 s"),
        _card("Requests", f"{human_count(rates.requests)}/s", "last 10 s"),
        _card("Connections", human_count(status.connections), "open"),
        _card("In flight", human_bytes(status.in_flight_bytes), "request bytes held"),
        _card("Partitions", human_count(len(partitions)), f"{human_count(leading)} led here"),
        _card(
            "Under-replicated",
            human_count(under),
            "a replica is behind" if under else "all replicas in sync",
            "bad" if under else "",
        ),
        _card(
            "Event loop stalls",
            human_count(status.stalls),
            f"longest pause {status.stall_s_max * 1000:.0f} ms",
            "warn" if status.stalls else "",
        ),
        _card("Group commit", f"{status.commit_ms_mean:.1f} ms", f"mean, {status.durability}"),
    )
    return f'<section class="cards">{"".join(cards)}</section>'


def _curve(label: str, color: str, rates: Iterable[Rates], value: Callable[[Rates], float]) -> str:
    values = [value(rate) for rate in rates] or [0.0]
    peak = max(values)
    top = max(peak, 1.0)
    step = 600 / max(1, len(values) - 1)
    points = " ".join(f"{i * step:.1f},{54 - 50 * v / top:.1f}" for i, v in enumerate(values))
    return (
        f'<div class="card"><small>{label}</small><b>{human_bytes(values[-1])}/s</b>'
        f'<svg viewBox="0 0 600 56" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<polygon points="0,56 {points} 600,56" fill="var(--{color})" fill-opacity=".14"/>'
        f'<polyline points="{points}" fill="none" stroke="var(--{color})" stroke-width="1.5" '
        f'vector-effect="non-scaling-stroke"/></svg>'
        f"<small>last {len(values)} s, peak {human_bytes(peak)}/s</small></div>"
    )


def _curves(status: NodeStatus) -> str:
    bytes_in = _curve("Bytes in", "in", status.curve, lambda rate: rate.bytes_in)
    bytes_out = _curve("Bytes out", "out", status.curve, lambda rate: rate.bytes_out)
    return f'<section class="curves">{bytes_in}{bytes_out}</section>'


def _partition_row(one: PartitionStatus) -> str:
    in_sync = f"{len(one.in_sync)} of {len(one.replicas)}"
    tone = ' class="badcell"' if one.under_replicated else ""
    leader = str(one.leader) if one.leader >= 0 else "none"
    cells = (one.log_start, one.high_watermark, one.log_end)
    numbers = "".join(f"<td>{number:,}</td>" for number in cells)
    return (
        f"<tr><td>{one.partition}</td><td>{leader}</td><td{tone}>{in_sync}</td>{numbers}"
        f"<td>{human_bytes(one.size_bytes)}</td></tr>"
    )


def _partition_table(topic: str, partitions: list[PartitionStatus]) -> str:
    rows = "".join(map(_partition_row, partitions[:PARTITIONS_SHOWN_MAX]))
    hidden = len(partitions) - PARTITIONS_SHOWN_MAX
    unfolded = " open" if len(partitions) <= PARTITIONS_OPEN_MAX else ""
    more = f'<p class="dim">and {hidden:,} more</p>' if hidden > 0 else ""
    return (
        f'<details id="t-{escape(topic)}"{unfolded}><summary>partitions</summary><table><tr>'
        "<th>partition</th><th>leader</th><th>in sync</th><th>start offset</th>"
        f"<th>high watermark</th><th>end offset</th><th>size</th></tr>"
        f"{rows}</table>{more}</details>"
    )


def _topic_rows(topic: str, partitions: list[PartitionStatus]) -> str:
    under = sum(1 for one in partitions if one.under_replicated)
    tone = ' class="badcell"' if under else ""
    offsets = sum(one.log_end - one.log_start for one in partitions)
    waiting = sum(one.log_end - one.high_watermark for one in partitions)
    size = sum(one.size_bytes for one in partitions)
    return (
        f'<tr><td class="name">{escape(topic)}</td><td>{len(partitions):,}</td>'
        f"<td{tone}>{under:,}</td><td>{offsets:,}</td><td>{waiting:,}</td>"
        f"<td>{human_bytes(size)}</td></tr>"
        f'<tr><td class="open" colspan="6">{_partition_table(topic, partitions)}</td></tr>'
    )


def _topics(status: NodeStatus) -> str:
    ordered = sorted(status.partitions, key=lambda one: (one.topic, one.partition))
    topics = [(topic, list(rows)) for topic, rows in groupby(ordered, key=lambda one: one.topic)]
    if not topics:
        return '<h2>Topics</h2><div class="card dim">No topics yet.</div>'
    rows = "".join(_topic_rows(topic, found) for topic, found in topics[:TOPICS_SHOWN_MAX])
    hidden = len(topics) - TOPICS_SHOWN_MAX
    more = f'<p class="dim">and {hidden:,} more topics</p>' if hidden > 0 else ""
    return (
        f'<h2>Topics <span class="dim">{len(topics):,}</span></h2><div class="table"><table>'
        "<tr><th>topic</th><th>partitions</th><th>under-replicated</th><th>offsets kept</th>"
        f"<th>above high watermark</th><th>size</th></tr>{rows}</table></div>{more}"
    )


def _node_table(status: NodeStatus) -> str:
    brokers = ", ".join(map(str, status.brokers)) or "none"
    controller = str(status.controller) if status.controller >= 0 else "none"
    lost = f", {status.trace_dropped:,} events lost" if status.trace_dropped else ""
    facts = [
        ("Cluster", status.cluster_id),
        ("Brokers", f"{brokers}; controller: {controller}"),
        ("Group commits", f"{status.commit_cycles:,}"),
        ("Traces", status.trace_mode + lost),
        *(
            (f"Listener {one.name}", _addresses(one.bound, one.advertised))
            for one in status.listeners
        ),
    ]
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in facts)
    return f'<h2>Node</h2><div class="table"><table class="facts">{rows}</table></div>'


def _addresses(bound: str, advertised: str) -> str:
    return bound if bound == advertised else f"{bound}, advertised as {advertised}"


def _header(status: NodeStatus) -> str:
    health = status.health
    pill = '<span class="pill ok">healthy</span>'
    reasons = ""
    if not health.ok:
        pill = '<span class="pill fail">failing</span>'
        items = "".join(f"<li>{escape(reason)}</li>" for reason in health.reasons)
        reasons = f'<ul class="reasons">{items}</ul>'
    return (
        f"<header><h1>Chronik node {status.node_id}</h1>{pill}"
        f'<span class="dim">version {escape(status.version)}, '
        f"up {human_duration(status.uptime_s)}</span>"
        f'<span class="dim"><a href="/metrics">metrics</a> &middot; '
        f'<a href="/health">health</a></span></header>{reasons}'
    )


def render_page(status: NodeStatus) -> str:
    """The whole document."""
    parts = (_header, _cards, _curves, _topics, _node_table)
    main = "".join(part(status) for part in parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Chronik node {status.node_id}</title><style>{_STYLE}</style>"
        f'<noscript><meta http-equiv="refresh" content="{REFRESH_S}"></noscript></head><body>'
        '<div id="gone">The node does not answer; the figures below are old.</div>'
        f"<main>{main}</main><script>{_SCRIPT}</script></body></html>"
    )
