"""What happened to each batch, as rows: event kinds, the one Arrow schema, tracer, files.

Touches: one writer thread and the files of its directory, both only when traces are on.
May import: `model`. pyarrow is loaded by `batches`, `columns`, `files`, `writer` and `reader` only,
which `sinks` imports when traces go to files: a node without traces never loads it.
Driven by: every room that moves a batch calls `Tracer.emit`, or packs its events (`packed.py`);
`node` opens and closes; `audit` and `pipeline` read the files. Start reading at `events.py`, then
`tracer.py` and `packed.py`.
"""
