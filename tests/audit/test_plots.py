"""What a report draws: nodes, partitions, faults, elections; nothing where there is no evidence."""

import re
from typing import Any

import pytest
from tests.audit.ledgers import clean

from chronik.audit.location import locate_losses
from chronik.audit.plots import plot_data, resampled
from chronik.audit.report import write_report
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.svg import line_chart
from chronik.audit.verdict import judge
from chronik.trace.events import EventKind, TraceEvent

S = 1_000_000_000


def event(node: int, second: int, kind: EventKind, **columns: Any) -> TraceEvent:
    return TraceEvent(second * S, second * S, node, kind, "t", 0)._replace(**columns)


def leader(second: int, node: int) -> Row:
    return Row(
        Kind.EPOCH, "metadata", second * S, second * S, "t", 0, detail=f"leader={node} isr=1"
    )


def sent(sequence: int, second: float) -> Row:
    at_ns = int(second * S)
    place = Row(Kind.SEND, "p0", at_ns, at_ns + 1, "t", 0, sequence)
    return place._replace(sequence=sequence, outcome=Outcome.OK)


def read(sequence: int, second: float, epoch: int = 0) -> Row:
    place = Row(Kind.RECORD, "c0", end_ns=int(second * S), topic="t", partition=0)
    return place._replace(offset=sequence, sender="p0", sequence=sequence, epoch=epoch)


def test_an_election_is_a_change_of_the_leader() -> None:
    rows = [sent(0, 1), leader(1, 1), leader(2, 1), leader(5, 2)]
    (entry,) = plot_data(rows)["timeline"]
    assert (entry["kind"], entry["s"], entry["what"]) == ("election", 4.0, "t-0: leader 1 to 2")


def test_traces_show_levels_rejections_and_who_leads() -> None:
    events = [
        event(1, 1, EventKind.APPENDED, log_end=10, leader_epoch=0),
        event(2, 2, EventKind.FOLLOWER_APPENDED, log_end=10),
        event(1, 3, EventKind.WATERMARK, high_watermark=10),
        event(2, 4, EventKind.APPENDED, log_end=12, leader_epoch=1),
        event(2, 5, EventKind.REJECTED, error_code=6),
        event(2, 6, EventKind.REJECTED, error_code=6),
    ]
    data = plot_data([sent(0, 1)], events)
    assert data["rejections"] == {"node 2": {"NOT_LEADER_OR_FOLLOWER": 2}}
    series = data["nodes"]["t-0"]["series"]
    assert sorted(series) == ["node 1 log end", "node 1 watermark", "node 2 log end"]
    assert series["node 2 log end"][-1] == 12
    assert [entry["what"] for entry in data["timeline"]] == ["t-0: node 2 leads, epoch 1, after 1"]


def test_a_ledger_without_times_draws_nothing() -> None:
    data = plot_data([Row(Kind.SEND, "p0", topic="t", partition=0, offset=0, sequence=0)])
    assert data == {"progress": {}, "timeline": [], "nodes": {}, "rejections": {}}


def test_a_series_holds_the_last_level_that_was_known() -> None:
    data = resampled({"a": [(0.0, 5), (10.0, 7)]})
    assert data["seconds"][0] == 0.0
    assert data["series"]["a"][0] == data["series"]["a"][-2] == 5
    assert data["series"]["a"][-1] == 7


@pytest.mark.parametrize("top", [0, 0.003, 1, 7, 99, 1_580, 2_345_678])
def test_an_axis_has_a_few_round_numbers(top: float) -> None:
    texts = re.findall(r'text-anchor="end">([^<]+)<', line_chart([0, 1], [("a", [0, top])], "s"))
    assert 3 <= len(texts) <= 6
    assert all(len(text.replace(",", "").replace("0", "").strip(".")) <= 2 for text in texts)


def test_a_report_needs_nothing_but_itself() -> None:
    rows = [*clean(200), leader(1, 1), leader(2, 2), Row(Kind.FAULT, begin_ns=S, detail="<b>kill")]
    verdict = judge(rows)
    verdict.measures["plots"] = plot_data(rows)
    page = write_report("title", {"run": verdict}, [])
    assert "&lt;b&gt;kill" in page
    assert "<b>kill" not in page
    assert not re.search(r'(src|href)="|url\(|@import', page)
    assert "Values read over time, per partition" in page


def test_a_loss_is_located_in_partition_offsets_time_and_leaders() -> None:
    client = Row(Kind.CLIENT, "p0", begin_ns=0, detail=f"wall_ns={1_700_000_000 * S}")
    rows = [client, leader(0, 1), leader(30, 2)]
    rows += [sent(n, 10 + n) for n in range(10)]
    rows += [read(n, 40 + n, epoch=0 if n < 4 else 3) for n in range(10) if n not in (4, 5, 6)]
    rows += [Row(Kind.REPLICA, "node1", topic="t", partition=0, offset=5, sender="p0", sequence=5)]
    rows += [Row(Kind.REPLICA, "node2", topic="t", partition=0, offset=9, sender="p0", sequence=9)]
    rows += [Row(Kind.FAULT, "faults", 20 * S, 20 * S, detail="kill -9")]
    (loss,) = locate_losses(rows)
    assert (loss["partition"], loss["count"], loss["offsets"]) == ("t-0", 3, [[4, 6]])
    assert loss["acked_s"] == [4.0, 6.0]
    assert loss["acked_at"][0] == "2023-11-14T22:13:34.000+00:00"
    assert [one["leader"] for one in loss["leaders"]] == [1]
    assert loss["epochs"] == [0, 3]
    assert loss["faults"] == ["10.0 s: kill -9"]
    assert loss["where"]["appended at node1 only, never committed"] == 1
    assert "offsets 4 to 6" in loss["statement"]


def test_where_nothing_was_lost_nothing_is_located() -> None:
    assert locate_losses(clean(100)) == []
