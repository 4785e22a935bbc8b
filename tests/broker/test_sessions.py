"""Who is silent, and for how long that is forgiven."""

from chronik.broker.sessions import REFUSED_TIMEOUT_S, SESSION_TIMEOUT_S, Sessions
from chronik.cluster.commands import BrokerHeartbeat


def test_a_session_ends_after_its_time_without_a_sign_of_life() -> None:
    sessions = Sessions()
    sessions.restart([1, 2], 10.0)
    sessions.heard(BrokerHeartbeat(1, 7), 11.5)
    assert sessions.silent([1, 2], 10.0 + SESSION_TIMEOUT_S, lambda _: False) == []
    assert sessions.silent([1, 2], 10.1 + SESSION_TIMEOUT_S, lambda _: False) == [2]


def test_a_process_that_died_is_missed_sooner_than_one_that_hangs() -> None:
    sessions = Sessions()
    sessions.restart([1, 2], 10.0)
    at_s = 10.1 + REFUSED_TIMEOUT_S
    assert sessions.silent([1, 2], at_s, lambda one: one == 2) == [2]


def test_a_node_that_reports_lives_although_its_address_is_wrong() -> None:
    sessions = Sessions()
    for step in range(20):
        sessions.heard(BrokerHeartbeat(1, 7), step * 0.5)
        assert sessions.silent([1], step * 0.5 + 0.5, lambda _: True) == []


def test_the_silence_of_a_leader_counts_from_its_last_message() -> None:
    sessions = Sessions()
    sessions.restart([1, 2], 10.0)
    sessions.heard_at(1, 9.0)
    assert sessions.silent([1, 2], 9.5 + SESSION_TIMEOUT_S, lambda _: False) == [1]
