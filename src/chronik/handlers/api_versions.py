"""ApiVersions (18), versions 0-4: what this node serves, computed from the handler table.

KIP-511 (software name and version, v3). The response header stays version 0 in every version.
"""

import re
from collections.abc import Iterable

from chronik.broker.broker import Broker
from chronik.handlers.api import Api
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    _broker: Broker, call: Call, request: ApiVersionsRequest, table: Iterable[Api]
) -> ApiVersionsResponse:
    """Every API of the table with its versions."""
    if call.api_version >= 3 and not _is_valid(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    call.peer.software = f"{request.client_software_name} {request.client_software_version}".strip()
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=api.key, min_version=api.advertised[0], max_version=api.advertised[1]
            )
            for api in table
        ]
    )


def _is_valid(request: ApiVersionsRequest) -> bool:
    return bool(
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    )
