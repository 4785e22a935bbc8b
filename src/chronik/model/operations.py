"""The operations of KIP-430 that a client may do: all, where there are no ACLs, as in Kafka.

A set of operations is a sum of bits, one at each of Kafka's `AclOperation` codes.
"""

from typing import Final

NOT_ASKED: Final = -(2**31)
"""The answer to a client that did not want to know."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << code for code in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << code for code in range(9, 13)
)
_CONFIGS: Final = _DESCRIBE_CONFIGS | _ALTER_CONFIGS

ON_CLUSTER: Final = _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _CONFIGS | _IDEMPOTENT_WRITE
ON_TOPIC: Final = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _CONFIGS
ON_GROUP: Final = _READ | _DELETE | _DESCRIBE | _CONFIGS
