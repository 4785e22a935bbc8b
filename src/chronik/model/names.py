"""Which names of topics and groups are legal: Kafka's rules, checked before a name goes anywhere.

A legal topic name cannot hold a path separator and is never "." or "..", so a name that passed here
is safe as part of a directory name.
"""

import re
from typing import Final

from chronik.model.limits import TOPIC_NAME_LENGTH_MAX

GROUP_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset(
    {GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC, METADATA_TOPIC}
)

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def topic_name_error(name: str | None) -> str | None:
    """What is wrong with a topic name, in Kafka's words; None where it is legal."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in {".", ".."}:
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"Topic name is invalid: the length of '{name[: TOPIC_NAME_LENGTH_MAX + 1]}' is longer "
            f"than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
        )
    if not _LEGAL.match(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def is_internal(topic: str) -> bool:
    """True for the topics the cluster itself writes."""
    return topic in INTERNAL_TOPICS


def collision_key(topic: str) -> str:
    """Two topics with one key collide: metrics have no '.', so Kafka refuses the second of them."""
    return topic.replace(".", "_")


def group_id_error(group_id: str | None, *, empty_allowed: bool = False) -> str | None:
    """What is wrong with a group id. The empty one only serves old clients' offset commits."""
    if group_id is None:
        return "Group id is invalid: null is not allowed"
    if not group_id and not empty_allowed:
        return "Group id is invalid: the empty string is not allowed; set group.id in the client"
    return None
