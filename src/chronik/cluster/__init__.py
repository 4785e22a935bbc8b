"""The cluster's metadata: what exists, what may change, and what a change does.

`decide(image, command)` looks at the image and answers with records and a result; it changes
nothing. `apply(image, records)` is the only way to a new image. Every node that applied the same
records has the same image.

Touches: nothing; new ids and start indexes come in with the commands. May import: `model`.
Driven by: `broker` (the controller proposes the records to Raft) and `sim`. Start reading at
`image.py`, `records.py`, `apply.py`; then `commands.py` and the `decide_*.py` file of a family.
"""
