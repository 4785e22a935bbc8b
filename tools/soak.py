"""The long runs, in pieces: `python tools/soak.py [RUN ...]`; what ended well is not repeated.

    kill       200 kill -9 of one node under load
    frames     a million spoiled frames, ten thousand rude connections
    groups     two minutes of accidents in a consumer group, per assignment strategy
    chaos      50 rounds of faults in a cluster of three processes
    pipeline   kill -9 of ingest, compaction, expiry and broker, 30 times each: table equals log
    mutations  1,000 ledgers of a million events, one of which is changed in each
    simulate   10,000 seeds of each simulated world, and every planted bug
    others     every other test that is marked as long

Every piece prints one line per round and leaves its output in .soak/RUN/PIECE.log; its last line
says how it ended, at which commit and after how long. `--list` shows what is done, `--again`
starts anew, `--before "nice -n 19"` is put before every command. docs/reference/soak.md says what
the runs showed.
"""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chronik.sim.raft_bugs import BUGS
from chronik.sim.replica_bugs import REPLICA_BUGS

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".soak"
SEEDS_PER_PIECE = 200
FIRST_SEED = 1_000_000
"""Seeds of the tests are low: these are others."""
BUG_SEEDS = 200
IN_PIECES = (
    "two_hundred_kills",
    "million_spoiled_frames",
    "ten_thousand_rude_connections",
    "every_record_is_processed",
    "fifty_rounds_of_chaos",
    "may_die",
    "thousand_changes",
)
PIPELINE_KILLS = {
    "raw": "ingest_may_die_anywhere",
    "json": "json_ingest_may_die_anywhere",
    "delta": "ingest_into_delta_may_die_anywhere",
    "compaction": "maintenance_may_die_anywhere[compaction]",
    "expiry": "maintenance_may_die_anywhere[expiry]",
    "delta-care": "care_of_delta_may_die_anywhere",
    "broker": "the_broker_may_die_under_an_ingest",
    "command": "the_command_may_die_with_spark_and_all",
}
MUTATION_PIECES = 20
FOUND = 1
"""How `chronik simulate` ends when it found something."""


@dataclass(frozen=True)
class Piece:
    """One command that ends by itself in a few minutes."""

    run: str
    name: str
    command: tuple[str, ...]
    good: int = 0
    """The exit status that is wanted; a planted bug must be found."""

    @property
    def log(self) -> Path:
        return LOGS / self.run / f"{self.name}.log"

    def verdict(self) -> str:
        """The last line of its log if it ended well, else nothing."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return lines[-1] if lines and lines[-1].startswith("piece ok") else ""


def test(run: str, name: str, path: str) -> Piece:
    """One test of the suite, with its output shown."""
    words = ("-m", "pytest", "-q", "-s", "--soak", "-p", "no:cacheprovider", path)
    return Piece(run, name, (sys.executable, *words))


def simulation(world: str, nodes: int, first: int, seeds: int, bug: str = "") -> Piece:
    """Seeds of one world."""
    words = ["-m", "chronik", "simulate", "--world", world, "--nodes", str(nodes)]
    words += ["--seed", str(first), "--seeds", str(seeds), *(["--bug", bug] if bug else [])]
    name = f"bug-{bug}" if bug else f"{world}-{nodes}-{first}"
    return Piece("simulate", name, (sys.executable, *words), FOUND if bug else 0)


def pieces() -> Iterator[Piece]:
    """All there are."""
    path = "tests/faults/test_kill.py::test_fm70_two_hundred_kills_lose_and_double_nothing"
    for seed in (11, 12):
        for producer in ("idempotent", "acks=1"):
            for durability in ("fsync", "os"):
                name = f"{seed}-{producer}-{durability}"
                yield test("kill", name, f"{path}[{name}]")
    for seed in range(2, 12):
        path = f"tests/faults/test_fuzz.py::test_fm31_a_million_spoiled_frames[{seed}]"
        yield test("frames", f"seed-{seed}", path)
    path = "tests/faults/test_fuzz.py::test_fm17_ten_thousand_rude_connections"
    yield test("frames", "sockets", path)
    path = "tests/clients/test_group_chaos.py"
    path = f"{path}::test_every_record_is_processed_and_none_twice_in_a_generation"
    for strategy in ("roundrobin", "cooperative-sticky"):
        yield test("groups", strategy, f"{path}[{strategy}]")
    for part in range(10):
        path = "tests/cluster_nodes/test_chaos.py::test_fifty_rounds_of_chaos_lose_nothing"
        yield test("chaos", f"part-{part}", f"{path}[{part}]")
    yield from pipeline()
    for part in range(MUTATION_PIECES):
        path = "tests/audit_spark/test_mutations.py"
        path = f"{path}::test_a_thousand_changes_in_a_million_events"
        yield test("mutations", f"part-{part}", f"{path}[{part}]")
    yield from simulations()
    others = " and ".join(f"not {one}" for one in IN_PIECES)
    words = ("-m", "pytest", "-q", "-s", "--soak", "-m", "soak", "-k", others)
    yield Piece("others", "all", (sys.executable, *words))


def pipeline() -> Iterator[Piece]:
    """Ten kills per piece, three seeds of each kind; of the whole command with Spark three."""
    for seed in (7, 8, 9):
        for name, kind in PIPELINE_KILLS.items():
            test_name = kind.replace("[", f"[{seed}-") if "[" in kind else f"{kind}[{seed}]"
            path = f"tests/pipeline/test_kills.py::test_{test_name}"
            yield test("pipeline", f"{name}-{seed}", path)


def simulations() -> Iterator[Piece]:
    """10,000 seeds of three nodes and 2,000 of five, in each world; then the planted bugs."""
    for world in ("raft", "partition"):
        for nodes, seeds in ((3, 10_000), (5, 2_000)):
            for first in range(FIRST_SEED, FIRST_SEED + seeds, SEEDS_PER_PIECE):
                yield simulation(world, nodes, first, SEEDS_PER_PIECE)
    for bug in BUGS:
        yield simulation("raft", 5 if bug == "ack-before-persist" else 3, 0, BUG_SEEDS, bug)
    for bug in REPLICA_BUGS:
        yield simulation("partition", 3, 0, BUG_SEEDS, bug)


def commit() -> str:
    """The commit that is being run, with a plus where files differ from it."""
    words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def play(piece: Piece, before: list[str]) -> bool:
    """Runs it; shows and keeps what it says."""
    piece.log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()  # noqa: TID251
    with piece.log.open("w") as log:

        def say(line: str) -> None:
            log.write(f"{line}\n")
            log.flush()
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

        say(f"$ {shlex.join(piece.command)}")
        words = [*before, *piece.command]
        child = subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert child.stdout is not None
        for line in child.stdout:
            say(line.rstrip())
        status = child.wait()
        is_good = status == piece.good
        seconds = time.monotonic() - began  # noqa: TID251
        verdict = "ok" if is_good else f"FAILED with status {status}"
        say(f"piece {verdict}: {piece.run} {piece.name} at {commit()}, {seconds:.0f} s")
    return is_good


def main() -> None:
    """Runs what is missing of the named runs; the status is 0 if all of it is done and good."""
    runs = tuple(dict.fromkeys(piece.run for piece in pieces()))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"of {', '.join(runs)}; all if none")
    parser.add_argument("--list", action="store_true", help="only show what is done")
    parser.add_argument("--again", action="store_true", help="repeat pieces that are done")
    parser.add_argument("--only", default="", help="pieces whose name contains this")
    parser.add_argument("--before", default="", help="put before every command")
    options = parser.parse_args()
    unknown = set(options.runs) - set(runs)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: the runs are {', '.join(runs)}")
    wanted = [
        piece
        for piece in pieces()
        if piece.run in (options.runs or runs) and options.only in piece.name
    ]
    failed = [] if options.list else play_missing(wanted, options)
    sum_up(wanted, failed)
    sys.exit(1 if failed or not all(piece.verdict() for piece in wanted) else 0)


def play_missing(wanted: list[Piece], options: argparse.Namespace) -> list[Piece]:
    """Goes on after a piece that failed: the others may have more to tell."""
    left = [piece for piece in wanted if options.again or not piece.verdict()]
    return [piece for piece in left if not play(piece, shlex.split(options.before))]


def sum_up(wanted: list[Piece], failed: list[Piece]) -> None:
    """One line per run."""
    for run in dict.fromkeys(piece.run for piece in wanted):
        mine = [piece for piece in wanted if piece.run == run]
        verdicts = [piece.verdict() for piece in mine if piece.verdict()]
        seconds = sum(int(line.split()[-2]) for line in verdicts)
        commits = sorted({line.split()[-3].rstrip(",") for line in verdicts})
        bad = ", ".join(piece.name for piece in failed if piece.run == run)
        sys.stdout.write(
            f"{run}: {len(verdicts)} of {len(mine)} pieces good, {seconds} s, "
            f"at {', '.join(commits) or 'no commit'}{f'; failed: {bad}' if bad else ''}\n"
        )


if __name__ == "__main__":
    main()
