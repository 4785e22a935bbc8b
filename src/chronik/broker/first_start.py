"""A node that finds an empty disk: is the cluster new, or was the disk lost?

A vote and an acknowledgement are promises about the disk (Raft, figure 2). A voter that has lost
its disk has forgotten them: voting at once, it could help to elect a leader that lacks what was
decided. So it asks the others. While a majority has never decided anything, the cluster is new.
As soon as one knows more, this node returns to an old cluster: it takes the log, but neither votes
nor campaigns until its registration is decided and it has everything that came before.

In a new cluster the first voter begins the first election as soon as all others are ready to vote:
they would otherwise wait for the end of an election timeout.
"""

import asyncio
import logging
from typing import NamedTuple

from chronik.broker.controller import Controller
from chronik.broker.peering import PeerApi, Peers, PeerUnavailableError
from chronik.storage.fs import FileSystem, join, unlink_if_present, write_atomically

MARKER = "returning"
"""A file in the data directory: a crash on the way back must not make a voter of half a log."""
ASK_TIMEOUT_S = 1.0
ASK_EVERY_S = 0.02
ANNOUNCE_EVERY_S = 0.5

log = logging.getLogger(__name__)


class Hello(NamedTuple):
    """What another voter says of itself."""

    has_decisions: bool
    """It knows of a decision, so the cluster is not new."""
    may_vote: bool
    """It knows its cluster's members."""


class FirstStart:
    """From an empty disk to a voter."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        controller: Controller,
        peers: Peers,
        voters: tuple[int, ...],
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._controller = controller
        self._peers = peers
        self._voters = voters
        self._is_new = False
        """True in a cluster that has just got its members."""

    async def decide(self, *, is_empty: bool) -> None:
        """Returns when it is known whether the cluster is new; a new one gets its members."""
        if MARKER in self._fs.listdir(self._directory):
            self._controller.is_returning = True
        while is_empty and not self._controller.is_returning:
            answers = await self._ask_all()
            if any(one.has_decisions for one in answers):
                log.warning("the cluster is not new: this node votes again when it has caught up")
                write_atomically(self._fs, join(self._directory, MARKER), [b"\n"])
                self._controller.is_returning = True
            elif 2 * (len(answers) + 1) > len(self._voters):
                self._controller.bootstrap(self._voters)
                self._is_new = True
                return
            else:
                await asyncio.sleep(ASK_EVERY_S)

    async def elect(self) -> None:
        """Begins the first election where this is the first voter, and nobody has before.

        Not with a mere majority: whoever came later would find a cluster that has decided
        something, and think that its own disk was lost.
        """
        is_first = self._controller.node_id == min(self._voters, default=-1)
        while self._is_new and is_first:
            answers = await self._ask_all()
            if self._controller.leader_id >= 0:
                return
            if sum(one.may_vote for one in answers) + 1 == len(self._voters):
                self._controller.campaign()
                return
            await asyncio.sleep(ASK_EVERY_S)

    async def announce(self) -> None:
        """Tells the leader, whoever it is, that this node no longer has what it acknowledged."""
        while self._controller.is_returning:
            await self._ask_all()
            await asyncio.sleep(ANNOUNCE_EVERY_S)

    def caught_up(self) -> None:
        """Everything that was decided before this moment is in this node's log."""
        if self._controller.is_returning:
            self._controller.is_returning = False
            unlink_if_present(self._fs, join(self._directory, MARKER))
            self._fs.fsync_dir(self._directory)

    async def _ask_all(self) -> list[Hello]:
        """What the others say, those that answer."""
        others = [one for one in self._voters if one != self._controller.node_id]
        answers = await asyncio.gather(*map(self._ask, others))
        return [one for one in answers if one is not None]

    async def _ask(self, voter: int) -> Hello | None:
        body = self._controller.hello()
        try:
            answer = await self._peers.call(voter, PeerApi.HELLO, 0, [body], ASK_TIMEOUT_S)
        except PeerUnavailableError:
            return None
        return Hello(bool(answer[0]), len(answer) > 1 and bool(answer[1]))
