"""The auditor's own test: a cluster in which one known defect is switched on, and must be named.

Touches: child processes (nodes), ports of this machine, a working folder. May import everything but
`cli`; nothing imports this room but `cli`. The product's modules hold no defect: a lab node
replaces a class or a function of the product in its own process, then runs it (`node.py`).
Start reading at `catalogue.py` (the defects, and what the audit must say of each), then `run.py`
(one run); `*_defects.py` hold the defects themselves, `faults.py` what happens around them.

    catalogue -> cluster (child nodes, one defect) + workload -> ledger, traces, files -> audit
"""
