"""A metadata cluster in memory: a command is decided, its records written, read back, applied."""

from typing import TypeVar

from chronik.cluster.apply import apply
from chronik.cluster.commands import (
    BrokerHeartbeat,
    Command,
    ControllerSettings,
    CreatedTopic,
    CreateTopics,
    Error,
    FenceBroker,
    IsrChange,
    NewTopic,
    RegisterBroker,
)
from chronik.cluster.decide import decide
from chronik.cluster.image import (
    EMPTY,
    ClusterImage,
    Endpoint,
    PartitionState,
    check_invariants,
)
from chronik.cluster.records import Record, decode_all, encode_all
from chronik.model.errors import ErrorCode

R = TypeVar("R")


class World:
    """The image, and every record that led to it."""

    def __init__(self, *brokers: int, settings: ControllerSettings | None = None) -> None:
        self.image = EMPTY
        self.log: list[Record] = []
        self.settings = settings or ControllerSettings()
        self.started = 0
        for broker in brokers:
            self.join(broker)

    def do(self, command: Command[R]) -> R:
        decision = decide(self.image, command, self.settings)
        records = decode_all(encode_all(decision.records))
        assert tuple(records) == decision.records
        before = self.image
        self.image = apply(before, records)
        self.log += records
        check_invariants(self.image)
        check_monotonic(before, self.image)
        return decision.result

    def register(self, broker: int, rack: str | None = None, disk: bytes = b"") -> int:
        self.started += 1
        address = Endpoint("PLAINTEXT", f"host{broker}", 9092)
        incarnation = self.started.to_bytes(16, "big")
        command = RegisterBroker(broker, incarnation, (address,), rack, directory_id=disk)
        result = self.do(command)
        assert not result.error.failed, result
        return result.epoch

    def join(self, broker: int, rack: str | None = None, disk: bytes = b"") -> int:
        epoch = self.register(broker, rack, disk)
        assert not self.do(BrokerHeartbeat(broker, epoch)).fenced
        return epoch

    def fence(self, *brokers: int) -> None:
        for broker in brokers:
            assert not self.do(FenceBroker(broker)).failed

    def beat(self, broker: int) -> None:
        assert not self.do(BrokerHeartbeat(broker, self.epoch(broker))).fenced

    def epoch(self, broker: int) -> int:
        return self.image.brokers[broker].epoch

    def create(self, topic: NewTopic) -> CreatedTopic:
        (result,) = self.do(CreateTopics((topic,)))
        return result

    def topic(self, name: str, *rows: tuple[int, ...], **configs: str) -> None:
        """A topic whose partitions have the given replicas; '_' is '.' in keys."""
        pairs = tuple((key.replace("_", "."), value) for key, value in configs.items())
        new = NewTopic(name, topic_id(name), assignments=tuple(enumerate(rows)), configs=pairs)
        assert not self.create(new).error.failed

    def partition(self, name: str, index: int = 0) -> PartitionState:
        state = self.image.partition(name, index)
        assert state is not None
        return state

    def isr_change(self, name: str, *isr: int, partition: int = 0) -> IsrChange:
        """What the leader would propose now."""
        state = self.partition(name, partition)
        members = tuple((broker, self.epoch(broker)) for broker in isr)
        return IsrChange(
            topic_id(name), partition, state.leader_epoch, state.partition_epoch, members
        )


def topic_id(name: str) -> bytes:
    """Sixteen bytes that are the name's own."""
    return name.encode()[-16:].rjust(16, b"\x01")


def refusal(error: Error) -> tuple[ErrorCode, str]:
    """A code and its text; a refusal without a text fails the test (FM 83)."""
    assert error.failed
    assert error.message
    return error.code, error.message


def check_monotonic(before: ClusterImage, after: ClusterImage) -> None:
    """Asserts that no counter of the cluster went back."""
    assert after.next_producer_id >= before.next_producer_id
    assert after.next_broker_epoch >= before.next_broker_epoch
    assert after.version >= before.version
    for topic in after.topics.values():
        old = before.topic_by_id(topic.id)
        if old is None:
            continue
        assert len(topic.partitions) >= len(old.partitions)
        for was, now in zip(old.partitions, topic.partitions, strict=False):
            assert now.leader_epoch >= was.leader_epoch
            assert now.partition_epoch >= was.partition_epoch
            assert (now.partition_epoch > was.partition_epoch) == (now != was)
            assert now.leader == was.leader or now.leader_epoch > was.leader_epoch
