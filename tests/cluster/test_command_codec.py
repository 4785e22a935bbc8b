"""Commands and answers survive the way between two nodes."""

import pytest

from chronik.cluster.command_codec import CommandCodecError, decode_value, encode_value
from chronik.cluster.commands import (
    AlterPartition,
    CreatedTopic,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    Error,
    IsrChange,
    NewTopic,
    RegisterBroker,
    Registration,
)
from chronik.cluster.image import Endpoint
from chronik.model.errors import ErrorCode

VALUES = [
    CreateTopics((NewTopic("orders", bytes(range(16)), 3, 2, configs=(("retention.ms", None),)),)),
    (CreatedTopic("orders", Error(ErrorCode.INVALID_CONFIG, "no"), configs={"a": "b"}),),
    RegisterBroker(1, b"\x00" * 16, (Endpoint("PLAINTEXT", "h", 9092),), None),
    Registration(epoch=7),
    AlterPartition(1, 2, (IsrChange(b"i" * 16, 0, 1, 2, ((1, -1), (2, 5))),)),
    ElectLeaders(ElectionType.PREFERRED, None),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_the_same_after_the_way(value: object) -> None:
    assert decode_value(encode_value(value)) == value


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"system":["rm"]}', b'{"NewTopic":[1,2,3,4,5,6,7,8]}']
)
def test_what_is_no_command_is_refused(data: bytes) -> None:
    with pytest.raises(CommandCodecError):
        decode_value(data)


def test_only_values_of_this_room_travel() -> None:
    with pytest.raises(CommandCodecError):
        encode_value(object())
