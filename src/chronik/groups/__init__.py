"""The classic group protocol: join, sync, heartbeat, leave, offsets. A pure state machine.

Touches: nothing; time, ids and the log's answers are arguments. May import: `model`.
Driven by: `broker/`, one `GroupCoordinator` per led `__consumer_offsets` partition; `sim/`; tests.
Start reading at `coordinator.py`, then `group.py` (states), `rebalance.py` (two phases), `join.py`.

Two kinds of state
  durable    `DurableState`: committed offsets and the last stored generation of each group. It is
             the fold of the committed records and changes only in `replay`, never before a commit.
  in memory  `Group`: who joins, who waits, which generation is being formed. It may run ahead of
             the log, and is rebuilt from the durable state after a failover; clients join again.
Kafka applies records at once to a versioned state and reverts it when the append fails. Here
nothing is applied before the commit: there is nothing to revert, and no read sees what may be lost.

Contract of a driver
  Load     Lead the partition and wait until the high watermark has reached the log end found then.
           `load(decode(key, value)...)` from the log start (skip None), then `loaded(now)`. Until
           then answer COORDINATOR_LOAD_IN_PROGRESS.
  Step     `step(command, reply_to, now)` and every other call return an `Output`. Send its
           `replies` at once; append its `writes`, each as one batch, in the order returned. A
           write's own replies stay inside it. A command may be answered by a later output.
  Commit   When the high watermark passes a write: `committed(write, now)`, in log order. It replays
           the records, and its output holds the write's replies and those that waited for it.
  Failure  `failed(write, error, now)` only if the write is surely not in the log (refused before
           the append). The durable state has not moved; the replies turn into errors; a generation
           that could not be stored is given up and its members join again.
  Unknown  An append whose fate is open (slow followers) is neither: wait, or lose leadership.
  Unload   `unload(now)` on loss of leadership answers all that wait with NOT_COORDINATOR.
  Time     Sleep until `next_deadline()`, then `on_time(now)`; look again after every call. `now`
           is epoch milliseconds (records carry it) and should not jump; a step back is ignored.
  Once     Every command but TopicsDeleted gets exactly one reply, as writes settle and time moves.
"""
