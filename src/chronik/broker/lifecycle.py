"""A node's membership: it registers, reports, and, as the controller, watches the others."""

import asyncio
import logging
import secrets

from chronik.broker.controller import Controller, ControllerUnavailableError
from chronik.broker.peering import Peers
from chronik.cluster.commands import BrokerHeartbeat, CreateCluster, FenceBroker, RegisterBroker
from chronik.cluster.image import Endpoint
from chronik.model.errors import ErrorCode
from chronik.model.limits import BROKER_HEARTBEAT_MS

HEARTBEAT_S = BROKER_HEARTBEAT_MS / 1000
WATCH_S = 0.1
_REGISTER_AGAIN = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
"""Registered anew elsewhere, or unregistered by an administrator while alive."""

log = logging.getLogger(__name__)


class Lifecycle:
    """From registration to controlled shutdown."""

    def __init__(
        self,
        node_id: int,
        controller: Controller,
        peers: Peers,
        endpoints: tuple[Endpoint, ...],
        rack: str | None,
        directory_id: bytes,
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._peers = peers
        self._endpoints = endpoints
        self._rack = rack
        self._directory_id = directory_id
        self._incarnation = secrets.token_bytes(16)
        self._epoch = -1
        self._tasks: list[asyncio.Task[None]] = []

    async def register(self) -> None:
        """Returns when the cluster knows this process and this node knows the cluster."""
        while True:
            try:
                if not self._controller.image.cluster_id:
                    await self._controller.submit(CreateCluster(secrets.token_urlsafe(16)))
                answer = await self._controller.submit(
                    RegisterBroker(
                        self._node_id,
                        self._incarnation,
                        self._endpoints,
                        self._rack,
                        directory_id=self._directory_id,
                    )
                )
            except ControllerUnavailableError as error:
                log.info("cannot register yet: %s", error)
                continue
            if not answer.error.failed:
                self._epoch = answer.epoch
                return
            log.warning("registration refused: %s", answer.error.message)
            await asyncio.sleep(HEARTBEAT_S)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Reports for the first time: from then on the node may lead."""
        await self._report()
        self._tasks = [tasks.create_task(self._beat()), tasks.create_task(self._watch())]

    def stop(self) -> None:
        """Reports no more."""
        for task in self._tasks:
            task.cancel()

    async def hand_over(self, timeout_s: float) -> None:
        """Controlled shutdown: other nodes take the lead of what this one leads."""
        if len(self._controller.image.brokers) < 2:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while loop.time() < deadline:
            try:
                answer = await self._controller.submit(
                    BrokerHeartbeat(self._node_id, self._epoch, want_shutdown=True),
                    max(0.05, deadline - loop.time()),
                )
            except ControllerUnavailableError as error:
                log.warning("stopping without handing over: %s", error)
                return
            if answer.should_shut_down or answer.error.failed:
                return
            await asyncio.sleep(0.02)

    async def _report(self) -> None:
        try:
            answer = await self._controller.submit(BrokerHeartbeat(self._node_id, self._epoch))
        except ControllerUnavailableError:
            return  # it is said often enough where commands fail
        if answer.error.code in _REGISTER_AGAIN:
            log.warning("registering again: %s", answer.error.message)
            await self.register()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await self._report()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_S)
            controller = self._controller
            if not controller.leads:
                continue
            # Not this node: it looks, so it lives, even if it is too busy to hear its own report.
            live = [
                one
                for one in controller.image.brokers.values()
                if not one.fenced and one.id != self._node_id
            ]
            silent = controller.sessions.silent(
                (one.id for one in live), loop.time(), self._peers.refuses
            )
            for broker in live:
                if broker.id in silent:
                    log.warning("node %d is silent: other nodes take over", broker.id)
                    await self._fence(broker.id, broker.epoch)

    async def _fence(self, broker_id: int, epoch: int) -> None:
        try:
            await self._controller.submit(FenceBroker(broker_id, epoch))
        except ControllerUnavailableError as error:
            log.warning("cannot fence node %d yet: %s", broker_id, error)
