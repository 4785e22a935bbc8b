"""Where a follower's log is not a beginning of its leader's: it is cut, or begins anew.

Memory and state change in one step, between two writes of the log: whoever becomes the leader
meanwhile finds both.
"""

import logging
from functools import partial

from chronik.broker.asking import Asked
from chronik.broker.commit import GroupCommit
from chronik.broker.disk import Disk
from chronik.broker.opening import rebuilt_producers
from chronik.broker.partition import Partition
from chronik.storage.operations import Reset, Truncation
from chronik.wire.fetch_response import EpochEnd

log = logging.getLogger(__name__)


def still_fits(partition: Partition, asked: Asked) -> bool:
    """True while an answer fits: nothing was appended and no leader elected since it was asked.

    A former leader may have had batches on their way to the disk; what the new leader has at their
    offsets is something else.
    """
    state = partition.state
    return not state.is_leader and state.leader_epoch == asked[0] and state.log_end == asked[1]


async def cut(
    partition: Partition, diverging: EpochEnd, asked: Asked, commit: GroupCommit, disk: Disk
) -> bool:
    """Cuts the log where the leader's differs from it; False where nothing was to be cut."""
    log_, state = partition.log, partition.state
    target = _target(partition, diverging)
    before = (state.log_end, log_.epochs.latest)
    producers = await disk.run(partial(rebuilt_producers, log_, target))

    def plan() -> Truncation | Reset | None:
        if not still_fits(partition, asked):
            return None
        truncation = log_.truncate_to(target)
        state.truncated(log_.end_offset, producers)
        return truncation

    await commit.operate(partition, plan)
    if before == (state.log_end, log_.epochs.latest):
        return False
    log.info(
        "%s-%d: cut at offset %d, where the leader's epoch %d ends",
        partition.topic,
        partition.index,
        log_.end_offset,
        diverging.epoch,
    )
    return True


def _target(partition: Partition, diverging: EpochEnd) -> int:
    state = partition.state
    own_epoch, own_end = partition.log.end_offset_for_epoch(diverging.epoch)
    target = diverging.end_offset
    if own_epoch >= 0:
        target = min(target, own_end)
    if target < state.high_watermark:
        log.error(
            "%s-%d: node %d lacks what is committed from offset %d on; not cut below %d",
            partition.topic,
            partition.index,
            partition.leader_id,
            target,
            state.high_watermark,
        )
        target = state.high_watermark
    # An epoch that began here and has no records is cut off too, although no record is.
    return min(target, state.log_end)


async def begin_anew(
    partition: Partition, leader_start: int, asked: Asked, commit: GroupCommit, disk: Disk
) -> bool:
    """The leader has deleted what this replica would need next; False where it has not."""
    state = partition.state
    if state.durable_end >= leader_start:
        return False
    if not partition.has_directory:
        await disk.run(partition.make_directory)

    def plan() -> Reset | None:
        if not still_fits(partition, asked):
            return None
        reset = partition.log.reset_to(leader_start)
        state.restarted_at(leader_start)
        return reset

    await commit.operate(partition, plan)
    return True
