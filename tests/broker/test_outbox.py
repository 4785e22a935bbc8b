"""Answers that become ready together leave together, whatever happens on the way."""

import pytest

from chronik.broker.outbox import Outbox


class Client:
    def __init__(self) -> None:
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1


def test_each_sends_once_when_the_outermost_work_is_done() -> None:
    outbox, one, two = Outbox(), Client(), Client()

    def inner() -> None:
        outbox.add(one)
        outbox.add(two)

    def outer() -> None:
        outbox.add(one)
        outbox.together(inner)
        assert (one.flushes, two.flushes) == (0, 0)

    outbox.together(outer)
    assert (one.flushes, two.flushes) == (1, 1)
    outbox.together(lambda: None)
    assert (one.flushes, two.flushes) == (1, 1)


def test_what_was_ready_before_an_error_is_sent() -> None:
    outbox, client = Outbox(), Client()

    def work() -> None:
        outbox.add(client)
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        outbox.together(work)
    assert client.flushes == 1
    assert not outbox.gathers


def test_without_work_at_hand_nothing_is_kept() -> None:
    with pytest.raises(AssertionError):
        Outbox().add(Client())
