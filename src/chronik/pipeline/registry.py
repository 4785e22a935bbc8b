"""A Confluent-style schema registry: the schema that a value's first five bytes name."""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

MAGIC = 0
HEADER_BYTES = 5
ANSWER_SECONDS_MAX = 30.0
REACH_SECONDS_MAX = 5.0
_REFUSALS = (401, 403)
_AUTHORISATION = ("basic.auth.user.info", "bearer.auth.token")


class RegistryError(Exception):
    """The registry does not answer, or with something that is no schema."""


class UnknownSchema(Exception):  # noqa: N818
    """The registry answers that it has no schema of this number."""


@dataclass(frozen=True)
class Registry:
    """Where schemas are. Only its `place` is kept in tables: the rest may be secret."""

    url: str
    settings: dict[str, str] = field(default_factory=dict, repr=False)
    """By Confluent's names: basic.auth.user.info (user:password) or bearer.auth.token."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise RegistryError(f"the registry is a URL with http:// or https://, not '{self.url}'")
        unknown = [name for name in self.settings if name not in _AUTHORISATION]
        if unknown:
            raise RegistryError(f"no setting {unknown[0]}; there are {', '.join(_AUTHORISATION)}")

    @property
    def place(self) -> str:
        """The URL without a user's name and password, fit to be kept in a table."""
        parts = urllib.parse.urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    def require(self) -> None:
        """Raises where nobody answers, or refuses who asks; what it has is not looked at."""
        url = f"{self.url.rstrip('/')}/subjects"
        request = urllib.request.Request(url, headers=self._headers())
        try:
            urllib.request.urlopen(request, timeout=REACH_SECONDS_MAX).close()
        except urllib.error.HTTPError as error:
            with error:
                if error.code in _REFUSALS:
                    raise RegistryError(
                        f"{url}: {error.code} {error.reason}. --registry-config "
                        "basic.auth.user.info=USER:PASSWORD (or bearer.auth.token) says who asks"
                    ) from error
        except (OSError, ValueError) as error:
            raise RegistryError(f"no schema registry answers at {self.url}: {error}") from error

    def schema(self, number: int) -> dict[str, Any]:
        """`GET /schemas/ids/N`: the answer, whose `schema` is the text of the schema."""
        return self._get(f"schemas/ids/{number}", f"schema {number}")

    def version(self, subject: str, version: int) -> dict[str, Any]:
        """The same for a version of a subject, by which schemas refer to each other."""
        path = f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
        return self._get(path, f"version {version} of '{subject}'")

    def _get(self, path: str, what: str) -> dict[str, Any]:
        url = f"{self.url.rstrip('/')}/{path}"
        request = urllib.request.Request(url, headers=self._headers())
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    raise UnknownSchema(f"{what} is not in the registry") from error
            raise RegistryError(f"{url}: {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise RegistryError(f"{url}: {error}") from error
        if not isinstance(found, dict) or "schema" not in found:
            raise RegistryError(f"{url}: the answer has no schema")
        return found

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if "basic.auth.user.info" in self.settings:
            secret = base64.b64encode(self.settings["basic.auth.user.info"].encode()).decode()
            headers["Authorization"] = f"Basic {secret}"
        elif "bearer.auth.token" in self.settings:
            headers["Authorization"] = f"Bearer {self.settings['bearer.auth.token']}"
        return headers


def schema_number(value: bytes) -> int | None:
    """The number in a value's header; None where it has no such header."""
    if len(value) < HEADER_BYTES or value[0] != MAGIC:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big")
