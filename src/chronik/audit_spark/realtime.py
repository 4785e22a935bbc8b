"""Blocks in which a send may stand before one that was acked before it began.

Between two producers a and b: a's block k can be overtaken by b's block j <= k only if something
in j began after something in k was acked. A running maximum over the blocks finds all such pairs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from chronik.audit_spark.blocks import Blocks
from chronik.audit_spark.fold import HIGHEST, LOWEST
from chronik.audit_spark.order import Array


class Sent(NamedTuple):
    """What a producer sent to a block; of a send of unknown end, `end_ns_min` is `HIGHEST`."""

    place: int
    process: str
    begin_ns_max: int
    end_ns_min: int = HIGHEST


class _Step(NamedTuple):
    """A block of a producer in the order of a scan: `value` is put, `asked` must not be below."""

    place: int
    process: str
    value: int
    asked: int


def overtaken(blocks: Blocks, clocks: Mapping[str, str], late: Sequence[Sent] = ()) -> Array:
    """The places of either side; sends of one producer are judged by their sequence."""
    mask = np.zeros(blocks.places, bool)
    for sends in _comparable(blocks, clocks, late):
        forward = [_Step(s.place, s.process, s.begin_ns_max, s.end_ns_min) for s in sends]
        backward = [_Step(s.place, s.process, -s.end_ns_min, -s.begin_ns_max) for s in sends]
        for steps in (forward, backward[::-1]):
            for place in _below_others(steps):
                mask[place] = True
    return mask


def _comparable(
    blocks: Blocks, clocks: Mapping[str, str], late: Sequence[Sent]
) -> Iterator[list[Sent]]:
    """Sends to one key by several producers, measured by one clock, in the order of the blocks."""
    rows = np.flatnonzero(blocks.sends)
    names = [blocks.processes[code] for code in blocks.process[rows].tolist()]
    numbers = (blocks.column(name)[rows].tolist() for name in ("begin_ns_max", "end_ns_min"))
    all_of = [*map(Sent, blocks.place[rows].tolist(), names, *numbers), *late]
    keys = blocks.place_key.tolist()

    def group(one: Sent) -> tuple[int, str]:
        return keys[one.place], clocks.get(one.process, "")

    for _, sends in groupby(sorted(all_of, key=lambda one: (*group(one), one.place)), group):
        found = list(sends)
        if len({one.process for one in found}) > 1:
            yield found


def _below_others(steps: list[_Step]) -> Iterator[int]:
    """Places where what is asked is below the highest value of another producer so far."""
    (first, owner), second = (LOWEST, ""), LOWEST
    for place, group in groupby(steps, lambda step: step.place):
        here = list(group)
        for step in here:
            if step.process == owner:
                first = max(first, step.value)
            elif step.value > first:
                (first, owner), second = (step.value, step.process), first
            else:
                second = max(second, step.value)
        if any(step.asked < (second if step.process == owner else first) for step in here):
            yield place
