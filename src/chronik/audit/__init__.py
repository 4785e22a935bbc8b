"""The auditor: drives any Kafka cluster as a client, writes down what it saw, and judges it.

Touches: the network (as a Kafka client), ledger files. May import: `trace`, `wire`, `model`;
nothing else of Chronik: a judge stays outside the court. Driven by: `cli` (verify, audit, diagnose)
and tests. Start reading at `rows.py` (what a ledger says), then `verdict.py`; `workload.py` makes
ledgers, `ledger.py` keeps them, `diagnose.py` reads a broker's logs and traces for the cause.

    workload -> ledger (Arrow files) -> rows -> history -> anomalies by family -> verdict -> report
"""
