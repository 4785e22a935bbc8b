"""Batches that arrive before their topic's metadata: they wait for it, in the order they came.

A client may learn of a new topic from another node and be here before the metadata is. There are
clients that take UNKNOWN_TOPIC_ID for final and give their records up.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from chronik.cluster.image import ClusterImage

WAIT_S_MAX = 1.0
"""A topic that is unknown for so long is taken for deleted."""

Resume = Callable[[], None]


class _Waiting(NamedTuple):
    resume: Resume
    timer: asyncio.TimerHandle


class UnknownTopics:
    """Who waits, by topic id."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, list[_Waiting]] = {}

    def wait(self, topic_id: bytes, timeout_s: float, resume: Resume) -> None:
        """Has `resume` called when the topic is known, or when the time is over."""
        timer = asyncio.get_running_loop().call_later(
            min(timeout_s, WAIT_S_MAX), lambda: self._give_up(topic_id, resume)
        )
        self._waiting.setdefault(topic_id, []).append(_Waiting(resume, timer))

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """In this very call, so that nothing that comes later is appended first."""
        for topic_id in [one for one in self._waiting if one in new.topic_names]:
            for waiting in self._waiting.pop(topic_id):
                waiting.timer.cancel()
                waiting.resume()

    def _give_up(self, topic_id: bytes, resume: Resume) -> None:
        left = [one for one in self._waiting.pop(topic_id, []) if one.resume is not resume]
        if left:
            self._waiting[topic_id] = left
        resume()
