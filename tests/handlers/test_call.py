"""The bytes in front of an answer's body."""

import pytest

from chronik.handlers.call import Call, Peer


def answered(*, flexible: bool, briefly: bool, body: bytes) -> bytes:
    done: list[Call] = []
    call = Call(bytearray(b"frame"), Peer("", 0, "", 0), 0, done.append, lambda: None)
    call.correlation_id, call.flexible_header = 7, flexible
    if briefly:
        call.reply_briefly(body)
    else:
        call.reply((body[:3], body[3:]))
    assert done == [call]
    return b"".join(call.answer or ())


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("body", [b"", b"an answer"])
def test_a_brief_answer_has_the_same_bytes(flexible: bool, body: bytes) -> None:
    brief = answered(flexible=flexible, briefly=True, body=body)
    assert brief == answered(flexible=flexible, briefly=False, body=body)
    size = len(body) + (5 if flexible else 4)
    assert brief[:8] == size.to_bytes(4, "big") + (7).to_bytes(4, "big")
    assert brief[8:] == (b"\0" if flexible else b"") + body
