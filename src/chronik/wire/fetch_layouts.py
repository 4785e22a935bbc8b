"""Fixed layouts of a Fetch v15-18 and its answer, as they mostly are: one topic, or nothing new.

`fetch.py` and `fetch_response.py` are the consumers', `replica_fetch.py` is the follower's side of
replication, `replica_serve.py` the leader's.
"""

import struct
from typing import Final

LENGTH_MAX: Final = 127
"""An array's length plus one in one byte."""
ONE: Final = 2
"""The length of an array of one."""
HEAD_AND_TOPIC: Final = struct.Struct(">iiibiiB16sB")
PARTITION: Final = struct.Struct(">iiqiqiB")
END: Final = struct.Struct(">6siqB")
"""One of the two below, the follower, its epoch, no tags."""
NO_TOPIC_THEN: Final = b"\1\1\1\1\1\x0d"
"""No topics, nothing forgotten, no rack; one tagged field, number 1, of 13 bytes: the follower."""
CONSUMER_END: Final = b"\0\1\1\0"
"""No tags of the topic, nothing forgotten, no rack, no tags."""
TOPIC_THEN: Final = b"\0\1\1\1\1\x0d"
"""No tags of the topic, nothing forgotten, and so on."""
ANSWER_AND_TOPIC: Final = struct.Struct(">ihiB16sB")
RESULT: Final = struct.Struct(">ihqqqBi")
"""Up to the length of the records."""
NO_RECORDS: Final = struct.Struct(">ihqqqBiBB")
"""The same with no records, and no tags."""
