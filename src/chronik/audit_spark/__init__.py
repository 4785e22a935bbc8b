"""The auditor on Spark: ledgers of any size, with the verdict of `audit/verdict`.

Touches: ledger, trace and segment files, a Spark session. May import: `audit` (rows, rules, the
shape of a verdict), `pipeline` (session, decoder), `trace`, `wire`, `model`, and pyspark, pyarrow,
numpy. Driven by: `cli/audit`. Start reading at `job.py`, the only file that reads and writes.
`order.py` makes events of files and `fold.py` adds them up, inside the tasks; `survey.py` is that
pass; `screen.py` finds the blocks of a log in which anything can be wrong; `reduce.py` reads their
rows. Few rows are judged by `few.py` with the rules of `audit`; many by the same rules as joins and
windows: `history.py` has the tables that their families (`values`, `loss`, `polls`, `orders`,
`transactions`, `watermarks`, `stalls`) judge. `location.py` and `replicas.py` say where values were
lost, `plots.py` what a report draws. One table is one function, its grain in the first line.

    files -> survey -> blocks -> screen -> rows of the blocks that differ -> rules -> verdict
"""
