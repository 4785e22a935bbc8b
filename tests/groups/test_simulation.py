"""Clients that behave, a node that does not: crashes between any two steps, refused writes."""

import random
from collections.abc import Iterator
from itertools import count

from tests.groups.clients import REBALANCE_MS, SESSION_MS, GroupClient
from tests.groups.driver import Driver

from chronik.groups.config import GroupConfig
from chronik.groups.group import GroupState
from chronik.model.errors import ErrorCode

GROUP = "billing"
CONVERGENCE_MS = 4 * REBALANCE_MS + 2 * SESSION_MS


class Simulation:
    """Some clients, one coordinator; every call is one step."""

    def __init__(self, clients: int = 3, statics: int = 1) -> None:
        self.driver = Driver(GroupConfig(initial_rebalance_delay_ms=1_000), hold=True)
        self.clients = [
            GroupClient(GROUP, f"c{n}", f"i{n}" if n < statics else None) for n in range(clients)
        ]
        self.tokens: dict[int, GroupClient] = {}
        self.numbers = count()

    def send(self, client: GroupClient, *, commit: bool = False) -> None:
        command = client.request(commit=commit)
        if command is not None:
            token = next(self.numbers)
            self.tokens[token] = client
            self.driver.step(command, token)
        self.deliver()

    def deliver(self) -> None:
        for reply in self.driver.take_replies():
            assert isinstance(reply.reply_to, int)
            client = self.tokens.pop(reply.reply_to, None)
            if client is not None:
                client.receive(reply.response)

    def advance(self, duration_ms: int) -> None:
        self.driver.advance(duration_ms)
        self.deliver()

    def commit_next(self) -> None:
        if self.driver.queue:
            self.driver.commit_next()
        self.deliver()

    def fail_next(self) -> None:
        if self.driver.queue:
            self.driver.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        self.deliver()

    def crash(self, keep: int) -> None:
        self.driver.crash(keep)
        self.tokens.clear()
        for client in self.clients:
            client.connection_lost()

    def restart(self, client: GroupClient) -> None:
        self.tokens = {token: c for token, c in self.tokens.items() if c is not client}
        client.restart()

    def converge(self) -> None:
        """No more faults: within bounded time all clients share one stable generation."""
        self.driver.hold = False
        while self.driver.queue:
            self.commit_next()
        for _ in range(CONVERGENCE_MS // 1_000):
            for client in self.clients:
                self.send(client)
            self.advance(1_000)
        self.check_converged()

    def check_converged(self) -> None:
        group = self.driver.coordinator.groups[GROUP]
        assert group.state is GroupState.STABLE
        assert set(group.members) == {client.member_id for client in self.clients}
        assert {client.generation_id for client in self.clients} == {group.generation_id}
        for client in self.clients:
            assert client.phase == "run"
            assert client.assignment == group.members[client.member_id].assignment != b""
        assert self.driver.coordinator.durable == self.driver.fold()

    def check_offsets(self) -> None:
        """No acknowledged commit is ever lost, in memory or in the log."""
        durable = self.driver.coordinator.durable
        for number, client in enumerate(self.clients):
            stored = durable.offset(GROUP, "orders", number)
            assert (0 if stored is None else stored.offset) >= client.committed


def steps(simulation: Simulation, rounds: int) -> Iterator[None]:
    """An ordinary day, one step at a time: all join, work, one restarts, work goes on."""
    for number in range(rounds):
        for client in simulation.clients:
            simulation.send(client, commit=number % 3 == 2)
            yield
        if number == rounds // 2:
            simulation.restart(simulation.clients[number % len(simulation.clients)])
        simulation.commit_next()
        yield
        simulation.advance(700)
        yield


def test_fm68_crash_between_any_two_steps_loses_no_offset_and_no_member() -> None:
    total = sum(1 for _ in steps(Simulation(), 10))
    for crash_at in range(total):
        for keep in range(3):
            simulation = Simulation()
            day = steps(simulation, 10)
            for _ in range(crash_at):
                next(day)
            if keep > len(simulation.driver.queue):
                continue
            simulation.crash(keep)
            simulation.check_offsets()
            simulation.converge()
            simulation.check_offsets()


def test_fm68_random_faults_lose_no_offset_and_no_member() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        simulation = Simulation(clients=chance.randint(1, 5), statics=chance.randint(0, 3))
        for _ in range(150):
            _random_step(simulation, chance)
            simulation.check_offsets()
        simulation.converge()
        simulation.check_offsets()


def _random_step(simulation: Simulation, chance: random.Random) -> None:
    dice = chance.random()
    client = chance.choice(simulation.clients)
    if dice < 0.60:
        simulation.send(client, commit=chance.random() < 0.5)
    elif dice < 0.80:
        simulation.commit_next()
    elif dice < 0.90:
        simulation.advance(chance.choice((1, 500, 3_000, 12_000)))
    elif dice < 0.94:
        simulation.fail_next()
    elif dice < 0.97:
        simulation.restart(client)
    else:
        simulation.crash(chance.randint(0, len(simulation.driver.queue)))
