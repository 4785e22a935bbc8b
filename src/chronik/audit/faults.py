"""Something is done to the cluster now and then, by a command of the user's, and written down."""

import subprocess
import threading
from collections import Counter
from types import TracebackType
from typing import Self

from chronik.audit.ledger import LedgerWriter
from chronik.audit.plan import Plan, client_words, ledger_path
from chronik.audit.rows import Kind, Row

COMMAND_S_MAX = 120.0


class Faults:
    """Runs a shell command at intervals, on a thread of its own, while the run goes."""

    def __init__(self, plan: Plan, command: str, every_s: float) -> None:
        self._plan, self._command, self._every_s = plan, command, every_s
        self.done: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)

    def __enter__(self) -> Self:
        if self._command:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._command:
            self._thread.join()

    def _run(self) -> None:
        plan = self._plan
        with LedgerWriter(ledger_path(plan, "faults"), plan.run_name, "faults") as ledger:
            ledger.note(Kind.CLIENT, client_words(plan))
            while not self._ended.wait(self._every_s):
                begin_ns = ledger.now_ns()
                said = f"{self._command} ({self._executed()})"
                self.done[said] += 1
                ledger.append(Row(Kind.FAULT, "", begin_ns, ledger.now_ns(), detail=said))
                ledger.flush()

    def _executed(self) -> str:
        try:
            done = subprocess.run(
                self._command,
                shell=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_S_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"not done after {COMMAND_S_MAX:.0f} s"
        return f"exit {done.returncode}"
