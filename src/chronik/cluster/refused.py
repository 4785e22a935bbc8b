"""How one item of a request is refused while the rest of the request goes on."""

from chronik.cluster.commands import ControllerSettings, Error
from chronik.model.errors import ErrorCode


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault
    """The answer for one item; caught by the loop over the items."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = Error(code, message)


def refuse_repeated(repeated: bool, message: str) -> None:
    """An item that a request names twice is refused: which one counts is not clear."""
    if repeated:
        raise Refused(ErrorCode.INVALID_REQUEST, message)


def refuse_too_many(partitions: int, left: int, settings: ControllerSettings) -> None:
    """One request may create only so many partitions, as in Kafka."""
    if partitions > left:
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request: at most "
            f"{settings.partitions_per_request_max}; use several requests.",
        )
