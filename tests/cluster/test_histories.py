"""Any history of commands keeps the cluster's rules, and every node replays it to the same image.

`World.do` checks after each command: leader in ISR in replicas, epochs monotonic, ids unique, the
topic maps agree, records survive their bytes.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster.world import World, topic_id

from chronik.cluster import commands as c
from chronik.cluster.apply import apply, restore, snapshot
from chronik.cluster.image import EMPTY, NO_LEADER, ClusterImage
from chronik.cluster.records import PartitionChanged

BROKERS = st.integers(1, 4)
NAMES = st.sampled_from(["a", "b.c", "b_c", "d"])
ROWS = st.lists(BROKERS, max_size=4).map(tuple)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["join", "register", "fence", "stop", "ids", "leave"]), BROKERS),
    st.tuples(st.just("create"), NAMES, st.integers(-1, 4), st.integers(-1, 4)),
    st.tuples(st.just("assign"), NAMES, st.lists(ROWS, min_size=1, max_size=3)),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("grow"), NAMES, st.integers(0, 5)),
    st.tuples(st.just("unclean"), NAMES, st.booleans()),
    st.tuples(st.just("isr"), NAMES, st.integers(0, 3), st.sets(BROKERS), st.integers(-1, 1)),
    st.tuples(st.just("elect"), st.integers(0, 1)),
    st.tuples(st.just("move"), NAMES, st.integers(0, 3), st.none() | ROWS),
)


class History(World):
    """Turns steps into commands; a fresh topic id per creation."""

    def step(self, step: tuple[Any, ...]) -> None:
        getattr(self, "step_" + step[0])(*step[1:])

    def next_id(self) -> bytes:
        self.started += 1
        return topic_id(f"{self.started:016}")

    def step_join(self, broker: int) -> None:
        self.join(broker)

    def step_register(self, broker: int) -> None:
        self.register(broker)

    def step_fence(self, broker: int) -> None:
        self.do(c.FenceBroker(broker))

    def step_leave(self, broker: int) -> None:
        self.do(c.UnregisterBroker(broker))

    def step_stop(self, broker: int) -> None:
        if broker in self.image.brokers:
            self.do(c.BrokerHeartbeat(broker, self.epoch(broker), want_shutdown=True))

    def step_ids(self, broker: int) -> None:
        if broker in self.image.brokers:
            self.do(c.AllocateProducerIds(broker, self.epoch(broker)))

    def step_create(self, name: str, partitions: int, factor: int) -> None:
        topic = c.NewTopic(name, self.next_id(), partitions, factor)
        self.do(c.CreateTopics((topic,), start_index=self.started))

    def step_assign(self, name: str, rows: list[tuple[int, ...]]) -> None:
        topic = c.NewTopic(name, self.next_id(), assignments=tuple(enumerate(rows)))
        self.do(c.CreateTopics((topic,)))

    def step_delete(self, name: str) -> None:
        self.do(c.DeleteTopics((c.TopicRef(name),)))

    def step_grow(self, name: str, count: int) -> None:
        self.do(c.CreatePartitions((c.NewPartitions(name, count),), self.started))

    def step_unclean(self, name: str, value: bool) -> None:
        op = c.ConfigOp("unclean.leader.election.enable", c.AlterOp.SET, str(value))
        self.do(c.IncrementalAlterConfigs((c.ResourceOps(2, name, (op,)),)))

    def step_isr(self, name: str, index: int, isr: set[int], drift: int) -> None:
        state = self.image.partition(name, index)
        if state is None or not self.image.is_live(state.leader):
            return
        change = c.IsrChange(
            self.image.topics[name].id,
            index,
            state.leader_epoch,
            state.partition_epoch + drift,
            tuple((one, -1) for one in isr | {state.leader}),
        )
        self.do(c.AlterPartition(state.leader, self.epoch(state.leader), (change,)))

    def step_elect(self, type_: int) -> None:
        self.do(c.ElectLeaders(type_))

    def step_move(self, name: str, index: int, replicas: tuple[int, ...] | None) -> None:
        self.do(c.AlterReassignments((c.Reassignment(name, index, replicas),)))


def leaders_are_live(image: ClusterImage) -> bool:
    return all(
        state.leader == NO_LEADER or image.is_live(state.leader)
        for _, _, state in image.partitions()
    )


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=40))
def test_any_history_keeps_the_rules_and_replays_to_the_same_image(
    steps: list[tuple[Any, ...]],
) -> None:
    world = History(1, 2, 3)
    world.topic("a", (1, 2, 3), (2, 3, 1))
    for step in steps:
        world.step(step)
        assert leaders_are_live(world.image), step
    assert apply(EMPTY, world.log) == world.image
    assert restore(snapshot(world.image), world.image.version) == world.image


@settings(max_examples=100)
@given(st.lists(STEPS, max_size=40))
def test_without_unclean_election_only_a_leader_adds_to_the_isr_and_leaders_come_from_it(
    steps: list[tuple[Any, ...]],
) -> None:
    world = History(1, 2, 3)
    world.topic("a", (1, 2, 3), (2, 3, 1))
    for step in steps:
        if step[0] == "unclean" or step == ("elect", 1):
            continue
        before, written = world.image, len(world.log)
        world.step(step)
        # Only its leader may say that a replica has caught up.
        if step[0] != "isr":
            for record in world.log[written:]:
                assert not isinstance(record, PartitionChanged) or from_isr(before, record)


def from_isr(before: ClusterImage, record: PartitionChanged) -> bool:
    topic = before.topic_by_id(record.topic_id)
    assert topic is not None
    in_sync = topic.partitions[record.partition].isr
    return set(record.state.isr) <= set(in_sync) and record.state.leader in {NO_LEADER, *in_sync}
