"""Fetch sessions as KIP-227 has them."""

import itertools

import pytest

from chronik.broker.fetch_sessions import (
    EPOCH_MAX,
    EVICT_AFTER_MS,
    FetchContext,
    FetchSessions,
    SessionError,
)
from chronik.model.errors import ErrorCode
from chronik.wire.fetch import FetchPartition, FetchRequest

VERSION = 12
Key = tuple[str, int]


def sessions(sessions_max: int = 10) -> FetchSessions:
    ids = itertools.count(1)
    return FetchSessions(lambda: next(ids), sessions_max)


def wanted(topic: str, index: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(topic, None, index, -1, offset, -1, -1, 1000)


def fetch(
    all_sessions: FetchSessions,
    session: tuple[int, int],
    partitions: list[FetchPartition],
    forgotten: list[tuple[str | bytes, int]] | None = None,
    version: int = VERSION,
    now_ms: int = 0,
) -> FetchContext:
    session_id, epoch = session
    request = FetchRequest(
        -1, -1, 500, 1, 10**6, 0, session_id, epoch, partitions, forgotten or [], "", None
    )
    return all_sessions.resolve(request, version, now_ms)


def keys(context: FetchContext) -> list[tuple[str | None, int]]:
    return [(one.topic, one.index) for one in context.partitions]


def code(error: pytest.ExceptionInfo[SessionError]) -> ErrorCode:
    return error.value.code


def test_a_full_fetch_with_epoch_0_makes_a_session() -> None:
    every = sessions()
    context = fetch(every, (0, 0), [wanted("a", 0)])
    assert context.session_id == 1
    assert not context.incremental


def test_a_fetch_without_session_makes_none() -> None:
    every = sessions()
    assert fetch(every, (0, -1), [wanted("a", 0)]).session_id == 0
    assert len(every) == 0


def test_an_incremental_fetch_names_only_changes() -> None:
    every = sessions()
    fetch(every, (0, 0), [wanted("a", 0), wanted("a", 1)])
    context = fetch(every, (1, 1), [wanted("b", 0)], [("a", 0)])
    assert context.incremental
    assert keys(context) == [("a", 1), ("b", 0)]
    assert keys(fetch(every, (1, 2), [])) == [("a", 1), ("b", 0)]


def test_a_named_partition_moves_to_its_new_offset() -> None:
    every = sessions()
    fetch(every, (0, 0), [wanted("a", 0, 5)])
    context = fetch(every, (1, 1), [wanted("a", 0, 9)])
    assert [one.fetch_offset for one in context.partitions] == [9]


def test_an_unknown_session_is_not_found() -> None:
    with pytest.raises(SessionError) as error:
        fetch(sessions(), (77, 1), [])
    assert code(error) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 3, EPOCH_MAX])
def test_a_wrong_epoch_is_refused_and_the_session_stays(epoch: int) -> None:
    every = sessions()
    fetch(every, (0, 0), [wanted("a", 0)])
    with pytest.raises(SessionError) as error:
        fetch(every, (1, epoch), [])
    assert code(error) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert keys(fetch(every, (1, 1), [])) == [("a", 0)]


def test_a_repeated_epoch_is_refused() -> None:
    every = sessions()
    fetch(every, (0, 0), [wanted("a", 0)])
    fetch(every, (1, 1), [])
    with pytest.raises(SessionError) as error:
        fetch(every, (1, 1), [])
    assert code(error) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_epochs_wrap_to_1() -> None:
    every = sessions()
    context = fetch(every, (0, 0), [wanted("a", 0)])
    assert context.session is not None
    context.session.epoch = EPOCH_MAX
    fetch(every, (1, EPOCH_MAX), [])
    fetch(every, (1, 1), [])


def test_epoch_minus_1_closes_the_session_and_0_replaces_it() -> None:
    every = sessions()
    fetch(every, (0, 0), [wanted("a", 0)])
    assert fetch(every, (1, 0), [wanted("b", 0)]).session_id == 2
    assert len(every) == 1
    assert fetch(every, (2, -1), [wanted("b", 0)]).session_id == 0
    assert len(every) == 0


def test_names_and_ids_do_not_mix_in_one_session() -> None:
    every = sessions()
    fetch(every, (0, 0), [wanted("a", 0)])
    with pytest.raises(SessionError) as error:
        fetch(every, (1, 1), [], version=13)
    assert code(error) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_cache_of_busy_sessions_gives_no_session() -> None:
    every = sessions(2)
    ids = [fetch(every, (0, 0), [wanted("a", 0)]).session_id for _ in range(3)]
    assert ids == [1, 2, 0]
    assert len(every) == 2


def test_the_longest_unused_session_makes_room() -> None:
    every = sessions(2)
    fetch(every, (0, 0), [wanted("a", 0)])
    fetch(every, (0, 0), [wanted("a", 0)])
    fetch(every, (1, 1), [], now_ms=1000)
    later = EVICT_AFTER_MS + 500
    assert fetch(every, (0, 0), [wanted("a", 0)], now_ms=later).session_id == 3
    with pytest.raises(SessionError):
        fetch(every, (2, 1), [])
    fetch(every, (1, 2), [], now_ms=later)


def test_only_changes_are_news() -> None:
    session = fetch(sessions(), (0, 0), [wanted("a", 0)]).session
    assert session is not None
    assert session.is_news(("a", 0), 5, 0)
    assert not session.is_news(("a", 0), 5, 0)
    assert session.is_news(("a", 0), 6, 0)
    assert session.is_news(("a", 0), 6, 2)


def test_partitions_that_had_data_go_to_the_end() -> None:
    every = sessions()
    session = fetch(every, (0, 0), [wanted("a", n) for n in range(3)]).session
    assert session is not None
    session.served([("a", 0)])
    assert keys(fetch(every, (1, 1), [])) == [("a", 1), ("a", 2), ("a", 0)]


def test_a_partition_forgotten_while_its_fetch_was_waiting_is_no_error() -> None:
    every = sessions()
    session = fetch(every, (0, 0), [wanted("a", 0)]).session
    assert session is not None
    fetch(every, (1, 1), [], [("a", 0)])
    session.served([("a", 0)])
    session.is_news(("a", 0), 1, 0)
    assert keys(fetch(every, (1, 2), [])) == []
