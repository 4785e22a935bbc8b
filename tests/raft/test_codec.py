"""Bytes of messages and frames: round trips, and refusal of everything else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.raft import messages
from chronik.raft.codec import (
    CodecError,
    Reader,
    decode_conf_change,
    decode_message,
    encode_conf_change,
    encode_hard_state,
    encode_message,
    encode_snapshot,
    read_hard_state,
    read_snapshot,
)
from chronik.raft.messages import (
    ConfChange,
    ConfChangeTransition,
    ConfChangeType,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Heartbeat,
    MemberChange,
    Message,
    Snapshot,
)

NUMBER = st.integers(0, 2**64 - 1)
NODE = st.integers(0, 2**31 - 1)
DATA = st.binary(max_size=30)
FLAG = st.booleans()
NODES = st.lists(NODE, max_size=4).map(tuple)
ENTRY = st.builds(Entry, NUMBER, NUMBER, st.sampled_from(EntryType), DATA)
CONF_STATE = st.builds(ConfState, NODES, NODES, NODES, NODES, FLAG)
SNAPSHOT = st.builds(Snapshot, NUMBER, NUMBER, CONF_STATE, DATA)
HEAD = {"sender": NODE, "to": NODE, "term": NUMBER}
ADDRESS = {"sender": NODE, "to": NODE}
MESSAGE: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        messages.RequestVote,
        **HEAD,
        last_index=NUMBER,
        last_term=NUMBER,
        pre_vote=FLAG,
        transfer=FLAG,
        commit=NUMBER,
        commit_term=NUMBER,
    ),
    st.builds(
        messages.VoteResponse,
        **HEAD,
        granted=FLAG,
        pre_vote=FLAG,
        commit=NUMBER,
        commit_term=NUMBER,
    ),
    st.builds(
        messages.AppendEntries,
        **HEAD,
        prev_index=NUMBER,
        prev_term=NUMBER,
        commit=NUMBER,
        entries=st.lists(ENTRY, max_size=3).map(tuple),
    ),
    st.builds(
        messages.AppendResponse,
        **HEAD,
        index=NUMBER,
        rejected=FLAG,
        hint_index=NUMBER,
        hint_term=NUMBER,
    ),
    st.builds(messages.Heartbeat, **HEAD, commit=NUMBER, round=NUMBER),
    st.builds(messages.HeartbeatResponse, **HEAD, round=NUMBER),
    st.builds(messages.InstallSnapshot, **HEAD, snapshot=SNAPSHOT),
    st.builds(messages.TimeoutNow, **HEAD),
    st.builds(messages.Propose, **ADDRESS, type=st.sampled_from(EntryType), data=DATA),
    st.builds(messages.ReadIndexRequest, **ADDRESS, context=DATA),
    st.builds(messages.ReadIndexResponse, **HEAD, index=NUMBER, context=DATA),
    st.builds(messages.TransferLeadership, **ADDRESS, target=NODE),
)
CONF_CHANGE = st.builds(
    ConfChange,
    st.lists(st.builds(MemberChange, st.sampled_from(ConfChangeType), NODE), max_size=3).map(tuple),
    st.sampled_from(ConfChangeTransition),
    DATA,
)


@given(MESSAGE)
def test_what_is_written_is_read_back(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(CONF_CHANGE)
def test_conf_changes_are_read_back(change: ConfChange) -> None:
    assert decode_conf_change(encode_conf_change(change)) == change


@given(st.builds(HardState, NUMBER, st.none() | NODE, NUMBER))
def test_hard_states_are_read_back(state: HardState) -> None:
    assert read_hard_state(Reader(encode_hard_state(state))) == state


@given(SNAPSHOT)
def test_snapshots_are_read_back(snapshot: Snapshot) -> None:
    assert read_snapshot(Reader(encode_snapshot(snapshot))) == snapshot


@given(MESSAGE, st.data())
def test_a_message_cut_short_or_too_long_is_refused(message: Message, data: st.DataObject) -> None:
    whole = encode_message(message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CodecError):
        decode_message(whole[:cut])
    with pytest.raises(CodecError):
        decode_message(whole + b"\0")


@given(st.binary(max_size=60))
def test_foreign_bytes_give_a_message_or_a_codec_error(data: bytes) -> None:
    try:
        message = decode_message(data)
    except CodecError:
        return
    assert decode_message(encode_message(message)) == message


def test_another_version_is_refused() -> None:
    whole = encode_message(Heartbeat(0, 1, 2, 3))
    with pytest.raises(CodecError, match="version 2"):
        decode_message(b"\2" + whole[1:])


def test_every_message_has_its_own_bytes() -> None:
    one = Heartbeat(0, 1, 2, 3, 4)
    assert encode_message(one) != encode_message(replace(one, round=5))
