"""Every bound of a node, named, in one place. A bound that is not here does not exist."""

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""One frame, as Kafka's socket.request.max.bytes."""
CONNECTIONS_MAX = 10_000
"""Open client connections of one node; a further one is closed at once and counted."""
IN_FLIGHT_BYTES_MAX = 512 * 1024 * 1024
"""Request bytes held by one node; above it no socket is read until some are released."""
FRAME_TURN_S = 10
"""Where unfinished requests hold half of that, one at a time has this long for its rest."""
IN_FLIGHT_BYTES_PER_CONNECTION_MAX = 16 * 1024 * 1024
"""Of one client: a dozen of the largest batches, so that the disk always has the next ones. More
would wait in memory instead of in the client."""
IN_FLIGHT_REQUESTS_PER_CONNECTION_MAX = 1_000
RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX = 64 * 1024 * 1024
"""Above it a connection's requests are not read until the client has taken its answers."""
BATCH_BYTES_MAX = 1_048_588
"""One record batch, as Kafka's message.max.bytes; topics may say otherwise."""
TOPIC_NAME_LENGTH_MAX = 249
PARTITIONS_PER_REQUEST_MAX = 10_000
FETCH_BYTES_MAX = 55 * 1024 * 1024
"""One Fetch answer, as Kafka's fetch.max.bytes of a broker."""
FETCH_BYTES_ENOUGH = 512 * 1024
"""A Fetch answer to a near client that has so many is not filled up from further partitions: the
client reads several such answers faster than a large one, which no cache holds."""
FETCH_BYTES_PER_ROUND_TRIP_US = 4 * 1024
"""To a client far away it is filled up to so many for each microsecond of a round trip, 4 GB/s: it
asks for the next one only when it has this one."""
BRIEF_ANSWER_BYTES_MAX = 16 * 1024
"""Records of an answer to a follower that are copied into one piece with what is said of them."""
SHARED_READ_BYTES_MAX = 4 * 1024
"""What was read last of a partition is kept for the next consumer up to this size."""
FETCH_SESSIONS_MAX = 1_000
FETCH_WAIT_MS_MAX = 3_600_000
POLLS_AT_ONCE_US = 200
"""Fetches are looked at for so long, then whatever came in meanwhile has its turn."""
POLLS_GIVE_WAY_US = 1_000
"""So long, at most, they leave the processor to a write that is due or was just given to the disk:
longer than a sync takes on a fast disk. On a slow one they use the time."""
WATERMARK_NEWS_MS = 3
"""A follower learns of a moved watermark at the latest after this time, if no data comes first."""
INHERITED_SEQUENCE_MS = 70_000
"""So long after an election a producer may still have to send what it sent to the former leader:
a request that a stopped node does not answer is given up after a minute by librdkafka."""
PRODUCERS_PER_PARTITION_MAX = 10_000
"""Producer ids remembered by one partition; the longest idle one is forgotten first."""
SEQUENCE_WINDOW_BATCHES = 5
"""Batches per producer whose retry is recognised (Kafka allows five in flight)."""
EVENT_LOOP_STALL_MS = 50
"""A longer pause of the event loop is counted as a stall: a bug to find."""
REREAD_BATCHES_MAX = 16
"""A clean stop leaves so many batches without a checkpoint: a start reads them as quickly."""
SYNC_TOGETHER_LOGS_MIN = 256
"""Where a stop has so many logs to sync, the file system is synced as a whole: below, the time for
what other processes have written to it could be longer than a sync of each log."""
TRACE_EVENTS_QUEUED_MAX = 262_144
"""Trace events waiting to be written; when full, the events are counted as dropped and reported."""
TRACE_TEXTS_MAX = 16_384
TRACE_TEXT_CHARS_MAX = 4 * 1024 * 1024
"""Topics, clients and details that trace events refer to: beyond, the oldest are forgotten as soon
as no event waits that has one of them."""
WRITE_ON_LOOP_BYTES_MAX = 4 * 1024 * 1024
"""An unsynced write up to this size is done by the event loop itself: about a millisecond."""
WRITE_ON_LOOP_US_MAX = 10_000
WRITE_ON_LOOP_BYTES_PER_US = 100
"""An unsynced write that took longer, at so many bytes per microsecond on top, is a slow one."""
WRITE_ON_LOOP_PAUSE_MS = 20
WRITE_ON_LOOP_PAUSE_MS_MAX = 1_000
"""After a slow one disk threads do them for this long, and twice as long after each slow one that
follows: one alone was a hiccup of the machine, several are a disk that has enough to do."""
SYNC_RETRY_MS = 500
"""After so long a sync that failed is tried again, if followers may have what it was for."""
OPEN_SEGMENT_FILES_MAX = 4_096
"""Segment files held open at once; the least recently used is closed first."""
RECORD_ERRORS_MAX = 1_000
"""Records at fault that an answer names: a small compressed batch may hold millions of them."""
RECORDS_BYTES_MAX = 256 * 1024 * 1024
"""Records of one batch once decompressed; more is taken for an attack."""
HTTP_HEADER_BYTES_MAX = 8 * 1024
HTTP_CONNECTIONS_MAX = 64
"""Of the status page; a further one is closed at once."""
PEER_QUEUED_BYTES_MAX = 64 * 1024 * 1024
"""Messages waiting on a slow link; beyond it they are not sent (Raft sends what matters again)."""
METRIC_CLIENTS_MAX = 200
"""Clients with a counter of their own; further ones are counted together."""
PARTITION_SERIES_MAX = 10_000
"""Partitions with series of their own; further ones are in the sums and counted as omitted."""
REPLICA_RESPONSE_BYTES_MAX = 2 * 1024 * 1024
REPLICA_PARTITION_BYTES_MAX = 1024 * 1024
"""What a follower asks for at once, in all and of one partition: enough for a disk, and little
memory where several leaders answer at the same time."""
REPLICA_WAIT_MS_MAX = 1_500
"""Whatever happens ends a follower's poll at once: this only bounds what idle partitions cost, and
how long a broken link goes unnoticed."""
BROKER_HEARTBEAT_MS = 250
BROKER_SESSION_MS = 2_000
"""A broker silent for so long is fenced and its partitions get other leaders."""
METADATA_SAVE_RETRY_S = 0.1
"""Between two attempts to write the metadata log to a disk that refuses."""
COMPACTED_SEGMENTS_MAX = 100
"""Segments merged into one, at most: each is mapped while it is replaced."""
OFFSET_MAP_BYTES_MAX = 64 * 1024 * 1024
"""Memory of one cleaning's map, the only one of a node."""
SEALED_INDEX_BYTES_MAX = 64 * 1024 * 1024
"""Indexes of sealed segments kept in memory by one node."""
PARTITIONS_PER_ANSWER_MAX = 2_000
"""One page of DescribeTopicPartitions, as Kafka's max.request.partition.size.limit."""
HOST_LENGTH_MAX = 255
