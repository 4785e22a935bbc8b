"""Who of the brokers was heard of lately: known to the node that leads the metadata log."""

from collections.abc import Iterable

from chronik.cluster.commands import BrokerHeartbeat, RegisterBroker

SESSION_TIMEOUT_S = 2.0
"""A broker silent for so long is fenced and its partitions get other leaders."""


class Sessions:
    """The time of each broker's last sign of life."""

    def __init__(self, timeout_s: float = SESSION_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._heard: dict[int, float] = {}

    def restart(self, broker_ids: Iterable[int], now_s: float) -> None:
        """A new leader gives everybody a whole session to report."""
        self._heard = dict.fromkeys(broker_ids, now_s)

    def heard(self, command: object, now_s: float) -> None:
        """Registrations and heartbeats are signs of life."""
        if isinstance(command, (BrokerHeartbeat, RegisterBroker)):
            self._heard[command.broker_id] = now_s

    def silent(self, broker_ids: Iterable[int], now_s: float) -> list[int]:
        """Those whose session has ended."""
        return [one for one in broker_ids if now_s - self._heard.get(one, now_s) > self._timeout_s]
