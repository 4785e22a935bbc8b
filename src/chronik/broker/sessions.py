"""Who of the brokers was heard of lately: known to the node that leads the metadata log."""

from collections.abc import Callable, Iterable

from chronik.cluster.commands import BrokerHeartbeat, RegisterBroker
from chronik.model.limits import BROKER_SESSION_MS

SESSION_TIMEOUT_S = BROKER_SESSION_MS / 1000
REFUSED_TIMEOUT_S = 0.6
"""The same for one whose machine says that no process listens there: it has died. Longer than two
heartbeats, so that a node which is only known by a wrong address lives on."""


class Sessions:
    """The time of each broker's last sign of life."""

    def __init__(self, timeout_s: float = SESSION_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._heard: dict[int, float] = {}

    def restart(self, broker_ids: Iterable[int], now_s: float) -> None:
        """A new leader gives everybody a whole session to report."""
        self._heard = dict.fromkeys(broker_ids, now_s)

    def heard_at(self, broker_id: int, at_s: float) -> None:
        """A broker's last sign of life was then, as its silence since has shown."""
        self._heard[broker_id] = at_s

    def heard(self, command: object, now_s: float) -> None:
        """Registrations and heartbeats are signs of life."""
        if isinstance(command, (BrokerHeartbeat, RegisterBroker)):
            self._heard[command.broker_id] = now_s

    def silent(
        self, broker_ids: Iterable[int], now_s: float, refuses: Callable[[int], bool]
    ) -> list[int]:
        """Those whose session has ended."""
        found = []
        for one in broker_ids:
            silent_s = now_s - self._heard.get(one, now_s)
            is_dead = silent_s > REFUSED_TIMEOUT_S and refuses(one)
            if silent_s > self._timeout_s or is_dead:
                found.append(one)
        return found
