"""The auditor on Spark: the rules of `audit/verdict` as joins and windows, for ledgers of any size.

Touches: ledger, trace and segment files, a Spark session. May import: `audit` (rows, the shape of a
verdict), `pipeline` (session, decoder), `trace`, `wire`, `model`, and pyspark, pyarrow, numpy.
Driven by: `cli/audit`. Start reading at `job.py`, the only file that reads and writes; `order.py`
makes events of files; `survey.py`, `blocks.py` and `screen.py` find the blocks of a log in which
anything can be wrong; `history.py` has the tables that the families of rules (`values`, `loss`,
`polls`, `orders`, `transactions`, `watermarks`, `stalls`) judge. `location.py` and `replicas.py`
say where values were lost, `plots.py` what a report draws. One table is one function, its grain in
the first line.

    files -> survey -> blocks -> screen -> rows of the blocks that differ -> rules -> verdict
"""
