"""Long runs tell of each round on one line, so that who watches sees where they are."""

import time


class Rounds:
    """`told` after each round: its number, its seed, what was done, what was seen, how long."""

    def __init__(self, run: str, count: int, seed: int, first: int = 1) -> None:
        self._run = run
        self._count = count
        self._seed = seed
        self._number = first - 1
        self._began = self._last = time.monotonic()

    def told(self, done: str, **seen: object) -> None:
        """A round whose checks held; one that fails ends the run with its error instead."""
        self._number += 1
        now = time.monotonic()
        details = "".join(f", {name} {value}" for name, value in seen.items())
        print(  # noqa: T201
            f"{self._run} round {self._number}/{self._count} seed {self._seed}: {done}{details}, "
            f"ok, {now - self._last:.1f} s",
            flush=True,
        )
        self._last = now

    def summary(self, **seen: object) -> None:
        """The last line."""
        details = "".join(f", {name} {value}" for name, value in seen.items())
        seconds = time.monotonic() - self._began
        print(  # noqa: T201
            f"{self._run}: {self._number} rounds, seed {self._seed}{details}, 0 findings, "
            f"{seconds:.0f} s",
            flush=True,
        )
