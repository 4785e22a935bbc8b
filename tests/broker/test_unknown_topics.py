"""Batches that are ahead of their topic's metadata go on in the order they came, or are told."""

import asyncio
from functools import partial

from chronik.broker.unknown_topics import UnknownTopics
from chronik.cluster.apply import apply
from chronik.cluster.image import EMPTY
from chronik.cluster.records import TopicCreated

ID, OTHER = b"\x01" * 16, b"\x02" * 16


def test_fm49_what_waits_goes_on_in_order_when_the_topic_is_known() -> None:
    async def scenario() -> None:
        resumed: list[int] = []
        topics = UnknownTopics()
        for number in range(3):
            topics.wait(ID, 10, partial(resumed.append, number))
        topics.wait(OTHER, 10, partial(resumed.append, 9))
        topics.image_changed(EMPTY, apply(EMPTY, [TopicCreated(ID, "known")], 1))
        assert resumed == [0, 1, 2]

    asyncio.run(scenario())


def test_fm49_what_waited_in_vain_is_told_once() -> None:
    async def scenario() -> None:
        resumed: list[int] = []
        topics = UnknownTopics()
        told = asyncio.Event()
        topics.wait(ID, 0, partial(resumed.append, 0))
        topics.wait(ID, 0, told.set)
        topics.wait(ID, 10, partial(resumed.append, 1))
        await told.wait()
        assert resumed == [0]
        topics.image_changed(EMPTY, apply(EMPTY, [TopicCreated(ID, "known")], 1))
        assert resumed == [0, 1]

    asyncio.run(scenario())
