"""Anomalies of transactions: aborted-read (G1a), precommitted-read, G1c, and G0 which Kafka allows.

Names as in Adya's thesis and the Kafka workload of Jepsen: T1 -wr-> T2 when T2 read what T1 wrote,
T1 -ww-> T2 when T2's value follows T1's in a log. Kafka does not isolate writes, so only a cycle of
reads (of committed data) is circular information flow; a cycle with writes in it counts as G0.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from chronik.audit.anomaly import Findings, Level
from chronik.audit.history import History, Transaction
from chronik.audit.rows import Outcome, Row, value_of

Graph = dict[Transaction, set[Transaction]]


def find_aborted_reads(history: History, findings: Findings) -> None:
    """A reader saw what definitely was not written, or what a transaction took back."""
    for value, rows in history.reads.items():
        send = history.sends.get(value)
        if send is None:
            continue
        for row in rows:
            if send.outcome == Outcome.FAIL:
                why = "its send failed"
            elif history.is_aborted(send) and history.is_committed_reader(row.process):
                why = "its transaction aborted"
            else:
                continue
            said = f"value {value.sequence} of {value.sender} was read, but {why}"
            findings.add("aborted-read", said, row, send)


def find_precommitted_reads(history: History, findings: Findings) -> None:
    """A transaction read its own write through a consumer, before it had committed."""
    for value, rows in history.reads.items():
        send = history.sends.get(value)
        own = history.transaction_of(send) if send else None
        for row in rows:
            if send and own and own == (row.process, row.transaction):
                said = f"{own[0]}'s transaction {own[1]} read its own value {value.sequence}"
                findings.add("precommitted-read", said, row, send)


def find_cycles(history: History, findings: Findings) -> None:
    if not history.transactions:
        return
    reads, evidence = _read_graph(history)
    circular = list(components(reads))
    for component in circular:
        rows = [row for edge, row in evidence.items() if set(edge) <= component]
        said = "each read from the next: " + ", ".join(f"{p}#{n}" for p, n in sorted(component))
        findings.add("G1c", said, *rows[:4])
    both = _write_graph(history)
    for reader, writers in reads.items():
        both[reader] |= writers
    for component in components(both):
        if component not in circular:
            said = "interleaved: " + ", ".join(f"{p}#{n}" for p, n in sorted(component)[:5])
            findings.add("G0", said, level=Level.ALLOWED)


def _read_graph(history: History) -> tuple[Graph, dict[tuple[Transaction, Transaction], Row]]:
    graph: Graph = defaultdict(set)
    evidence = {}
    for value, rows in history.reads.items():
        send = history.sends.get(value)
        writer = history.transaction_of(send) if send else None
        for row in rows:
            reader = (row.process, row.transaction)
            committed = row.transaction >= 0 and history.is_committed_reader(row.process)
            if writer and committed and reader != writer:
                graph[writer].add(reader)
                evidence[writer, reader] = row
    return graph, evidence


def _write_graph(history: History) -> Graph:
    graph: Graph = defaultdict(set)
    for partition, offsets in history.data_offsets.items():
        log = history.logs[partition]
        for low, high in pairwise(offsets):
            for before, after in _pairs(
                history, log.values[low].values(), log.values[high].values()
            ):
                graph[before].add(after)
    return graph


def _pairs(
    history: History, low: Iterable[Row], high: Iterable[Row]
) -> Iterator[tuple[Transaction, Transaction]]:
    for before in _writers(history, low):
        for after in _writers(history, high):
            if before != after:
                yield before, after


def _writers(history: History, rows: Iterable[Row]) -> list[Transaction]:
    sends = (history.sends.get(value_of(row)) for row in rows)
    return [found for send in sends if send and (found := history.transaction_of(send))]


def components(graph: Graph) -> Iterator[set[Transaction]]:
    """Strongly connected components of more than one node (Kosaraju, without recursion)."""
    backward: Graph = defaultdict(set)
    for node, following in graph.items():
        for child in following:
            backward[child].add(node)
    seen: set[Transaction] = set()
    finished = [node for root in sorted(graph) for node in _finishing_order(graph, root, seen)]
    taken: set[Transaction] = set()
    for root in reversed(finished):
        component = set(_finishing_order(backward, root, taken))
        if len(component) > 1:
            yield component


def _finishing_order(graph: Graph, root: Transaction, seen: set[Transaction]) -> list[Transaction]:
    """The nodes not seen yet that the root reaches, each after those that it reaches."""
    if root in seen:
        return []
    seen.add(root)
    order: list[Transaction] = []
    work = [(root, iter(sorted(graph.get(root, ()))))]
    while work:
        node, following = work[-1]
        child = next((found for found in following if found not in seen), None)
        if child is None:
            order.append(node)
            work.pop()
        else:
            seen.add(child)
            work.append((child, iter(sorted(graph.get(child, ())))))
    return order
