"""What a topic's configuration means to the batches that come in and to the log that keeps them."""

from chronik.model.topic_configs import TopicConfig
from chronik.storage.segment import LogConfig
from chronik.wire.validation import Rules


def batch_rules(config: TopicConfig) -> Rules:
    """What a batch must be like to be appended."""
    return Rules(
        max_message_bytes=config.max_message_bytes,
        compacted=config.compacted,
        log_append_time=config.log_append_time,
        timestamp_before_ms_max=config.message_timestamp_before_max_ms,
        timestamp_after_ms_max=config.message_timestamp_after_max_ms,
    )


def log_config(config: TopicConfig) -> LogConfig:
    """When a segment ends, and how dense its index is."""
    segment_ms = config.segment_ms
    if config.compacted:
        # The active segment is never cleaned: it must end before the longest lag that is allowed.
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=segment_ms,
        index_interval_bytes=config.index_interval_bytes,
    )
