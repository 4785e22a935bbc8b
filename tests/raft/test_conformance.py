"""Replays etcd-io/raft's data files for quorums and membership changes, where they are present.

They are Apache-2.0 data of another project and not part of this one; the folder lies next to the
project's root. Format: a command, its input, `----`, the expected answer.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.raft.config import RaftConfig
from chronik.raft.log import RaftLog
from chronik.raft.membership import (
    Members,
    MembershipError,
    enter_joint,
    leave_joint,
    simple,
)
from chronik.raft.messages import ConfChangeType, HardState, MemberChange, Snapshot
from chronik.raft.quorum import UNBOUNDED, Quorum, VoteResult
from chronik.raft.state import RaftState

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "raft-testdata"
FILES = sorted(DATA.glob("*/*.txt"))
WORDS = {"_": -1, "n": 0, "y": 1}

pytestmark = pytest.mark.skipif(not FILES, reason="the data files are not on this machine")


def blocks(path: Path) -> Iterator[tuple[str, list[str], str]]:
    """Command line, input lines, expected answer."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    for block in re.split(r"\n{2,}", "\n".join(lines).strip()):
        head, _, expected = block.strip("\n").partition("\n----\n")
        command, *rest = head.removesuffix("\n----").splitlines()
        yield command, rest, expected.strip("\n")


def numbers(command: str, name: str) -> list[int] | None:
    found = re.search(rf"\b{name}=(zero|\(([^)]*)\))", command)
    if found is None:
        return None
    words = (found[2] or "").replace(",", " ").split()
    return [WORDS[word] if word in WORDS else int(word) for word in words]


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.parent.name == "quorum"], ids=lambda p: p.stem
)
def test_quorum_files_say_what_we_say(path: Path) -> None:
    for command, _, expected in blocks(path):
        incoming = numbers(command, "cfg") or []
        outgoing = numbers(command, "cfgj") or []
        quorum = Quorum(frozenset(incoming), frozenset(outgoing))
        # Values belong to the voters in the order in which they are first named.
        voters = list(dict.fromkeys([*incoming, *outgoing]))
        if command.startswith("committed"):
            acked = dict(zip(voters, numbers(command, "idx") or [], strict=False))
            known = {voter: index for voter, index in acked.items() if index >= 0}
            committed = quorum.committed(known)
            text = "∞" if committed == UNBOUNDED else str(committed)
            answer = expected.splitlines()[-1].removeprefix("<empty majority quorum>").strip()
            assert answer == text, command
        else:
            given = dict(zip(voters, numbers(command, "votes") or [], strict=False))
            result = quorum.vote({voter: bool(vote) for voter, vote in given.items() if vote >= 0})
            names = {
                VoteResult.WON: "VoteWon",
                VoteResult.LOST: "VoteLost",
                VoteResult.PENDING: "VotePending",
            }
            assert expected.splitlines()[-1].strip() == names[result], command


KINDS = {
    "v": ConfChangeType.ADD_VOTER,
    "l": ConfChangeType.ADD_LEARNER,
    "r": ConfChangeType.REMOVE,
}


class World:
    """Members and progress; every command, also a refused one, is one entry further."""

    def __init__(self) -> None:
        log = RaftLog(HardState(), Snapshot(), ())
        self.state = RaftState(RaftConfig(node_id=0), log, int)

    def play(self, command: str, lines: list[str]) -> str:
        try:
            self.state.set_members(self.change(command, " ".join(lines).split()))
        except MembershipError as error:
            return str(error)
        finally:
            self.state.log.base_index += 1
        return self.describe()

    def change(self, command: str, words: list[str]) -> Members:
        # Node 0 means nobody there, and u (update) changes nothing Raft knows of.
        changes = [
            MemberChange(KINDS[word[0]], int(word[1:]))
            for word in words
            if word[0] in KINDS and word[1:] != "0"
        ]
        members = self.state.members
        if command.startswith("simple"):
            return simple(members, changes)
        if command.startswith("enter-joint"):
            return enter_joint(members, changes, auto_leave="autoleave=true" in command)
        return leave_joint(members)

    def describe(self) -> str:
        members = self.state.members
        head = f"voters={ids(members.voters.incoming)}"
        head += f"&&{ids(members.voters.outgoing)}" if members.is_joint else ""
        head += f" learners={ids(members.learners)}" if members.learners else ""
        head += f" learners_next={ids(members.learners_next)}" if members.learners_next else ""
        head += " autoleave" if members.auto_leave else ""
        return "\n".join(
            [
                head,
                *(
                    f"{node}: StateProbe match={one.match} next={one.next}"
                    + (" learner" if one.is_learner else "")
                    for node, one in sorted(self.state.progress.items())
                ),
            ]
        )


def ids(nodes: frozenset[int]) -> str:
    return "(" + " ".join(map(str, sorted(nodes))) + ")"


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.parent.name == "confchange"], ids=lambda p: p.stem
)
def test_confchange_files_say_what_we_say(path: Path) -> None:
    world = World()
    for command, lines, expected in blocks(path):
        assert world.play(command, lines) == expected, command
