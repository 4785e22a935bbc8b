"""What a run of a simulated world was and what it found; each world adds its own counts."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The same seed, nodes, steps and bugs give the same report."""

    world: ClassVar[str] = ""
    """The option that names the world; empty for the default one."""

    seed: int
    nodes: int
    steps: int
    bugs: tuple[str, ...]
    finding: str
    """Empty if nothing was found."""
    trace: tuple[str, ...]
    """The last events before the finding."""
    committed: int
    acked: int
    restarts: int
    simulated_us: int

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.finding

    def counts(self) -> dict[str, int]:
        """What happened, for a summary of many runs."""
        return {"committed": self.committed, "acknowledged": self.acked, "starts": self.restarts}

    @property
    def command(self) -> str:
        """What repeats this run."""
        bug = "".join(f" --bug {name}" for name in self.bugs)
        words = f"--seed {self.seed} --nodes {self.nodes} --steps {self.steps}"
        return f"chronik simulate {self.world}{words}{bug}"
