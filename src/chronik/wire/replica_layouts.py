"""Fixed layouts of a follower's Fetch v15-18 and its answer: nothing new, or one topic of it.

That is what is mostly said. `replica_fetch.py` is the follower's side, `replica_serve.py` the
leader's.
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
TOPIC_THEN: Final = b"\0\1\1\1\1\x0d"
"""No tags of the topic, nothing forgotten, and so on."""
ANSWER_AND_TOPIC: Final = struct.Struct(">ihiB16sB")
