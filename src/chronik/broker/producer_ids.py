"""Producer ids in blocks from the controller: unique over nodes and restarts (KIP-730)."""

import asyncio

from chronik.broker.controller import Controller
from chronik.cluster.commands import AllocateProducerIds
from chronik.model.errors import ErrorCode


class ProducerIds:
    """Hands out ids of the current block, and fetches the next block when it is used up."""

    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id
        self._block = iter(range(0))
        self._lock = asyncio.Lock()

    async def next(self) -> tuple[ErrorCode, int]:
        """A fresh id, or why there is none."""
        async with self._lock:
            for producer_id in self._block:
                return ErrorCode.NONE, producer_id
            broker = self._controller.image.brokers.get(self._node_id)
            epoch = broker.epoch if broker is not None else -1
            block = await self._controller.submit(AllocateProducerIds(self._node_id, epoch))
            if block.error.failed:
                return block.error.code, -1
            self._block = iter(range(block.start + 1, block.start + block.length))
            return ErrorCode.NONE, block.start
