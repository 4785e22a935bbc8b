"""When watermarks are written, and which of them are reported."""

from tests.broker.kit import World, run

from chronik.broker.watermarks import CheckpointPace, Level, Thresholds, WatermarkMonitor
from chronik.model.configs import BrokerLayers
from chronik.trace.tracer import OFF

LIMITS = Thresholds.of(BrokerLayers())


def test_the_defaults_are_those_that_operators_know() -> None:
    assert LIMITS == (5000, 500, 10_000, 10, 100)


def test_watermarks_are_written_every_interval_and_at_once_when_far_behind() -> None:
    async def scenario() -> None:
        (partition,) = partitions = World().partitions
        pace = CheckpointPace()
        assert not pace.is_due(partitions, 10_000, LIMITS), "nothing has moved"
        partition.state.log_end = partition.state.high_watermark = 5
        assert pace.is_due(partitions, 10_000, LIMITS)
        pace.written(partitions, 10_000)
        partition.state.log_end = partition.state.high_watermark = 6
        assert not pace.is_due(partitions, 14_999, LIMITS)
        assert pace.is_due(partitions, 15_000, LIMITS)
        partition.state.log_end = partition.state.high_watermark = 20_000
        assert not pace.is_due(partitions, 10_499, LIMITS)
        assert pace.is_due(partitions, 10_500, LIMITS)

    run(scenario)


def test_only_what_stays_uncommitted_is_reported_and_it_is_said_when_it_is_over() -> None:
    async def scenario() -> None:
        (partition,) = partitions = World().partitions
        monitor, state = WatermarkMonitor(OFF), partition.state
        state.log_end = 1000
        monitor.look(partitions, LIMITS)
        assert monitor.behind_max == 0, "it came since the last look"
        state.high_watermark, state.log_end = 1000, 5000
        monitor.look(partitions, LIMITS)
        assert monitor.behind_max == 0, "a fast producer is no alarm"
        monitor.look(partitions, LIMITS)
        assert (monitor.count(Level.ALARM), monitor.behind_max) == (1, 4000)
        state.high_watermark = 4980
        monitor.look(partitions, LIMITS)
        assert (monitor.count(Level.ALARM), monitor.count(Level.WARN)) == (0, 1)
        state.high_watermark = 5000
        monitor.look(partitions, LIMITS)
        assert (monitor.count(Level.WARN), monitor.behind_max) == (0, 0)

    run(scenario)


def test_followers_are_judged_by_their_leader() -> None:
    async def scenario() -> None:
        (partition,) = partitions = World().partitions
        partition.state.follow(1)
        partition.state.log_end = 1000
        monitor = WatermarkMonitor(OFF)
        monitor.look(partitions, LIMITS)
        monitor.look(partitions, LIMITS)
        assert monitor.count(Level.ALARM) == 0

    run(scenario)
