"""The auditor on Spark: the rules of `audit/verdict` as joins and windows, for ledgers of any size.

Touches: ledger, trace and segment files, a Spark session. May import: `audit` (rows, the shape of a
verdict), `pipeline.session`, `trace`, `wire`, `model`, and pyspark, pyarrow, numpy. Driven by:
`cli/audit`. Start reading at `job.py`, the only file that reads and writes; `ledgers.py` makes
events of files; `blocks.py` and `screen.py` find the blocks of a log in which anything can be
wrong; `history.py` has the tables that the families of rules (`values`, `loss`, `polls`, `orders`,
`transactions`, `watermarks`) judge. One table is one function, its grain in the first line.

    files -> events -> blocks -> screen -> rows of the blocks that differ -> rules -> verdict
"""
