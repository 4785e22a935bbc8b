"""What a configuration key is: its type, its range, how its text is read and written.

The tables are in `topic_configs.py` and `broker_configs.py`. A key either works, or is accepted at
its default only and says why (`fixed_because`): nothing is accepted and then ignored.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

ConfigValue = bool | int | float | str | tuple[str, ...] | None

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class ConfigType(IntEnum):
    """DescribeConfigs' type codes."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where an effective value comes from; the lower code wins."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class UpdateMode(Enum):
    """Who may change a broker key while the node runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigError(ValueError):
    """A key or value that cannot be accepted; the text says what is allowed."""


_INTEGER: Final = re.compile(r"[+-]?[0-9]+\Z")
_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that gives a topic key its default, and its unit in the topic key's unit."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One configuration key."""

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    low: float | None = None
    high: float | None = None
    also: int | None = None
    """One value outside [low, high] that is allowed as well."""
    choices: tuple[str, ...] = ()
    check: Callable[[ConfigValue], str | None] | None = None
    """A further rule: the complaint, or None."""
    synonyms: tuple[Synonym, ...] = ()
    mode: UpdateMode = UpdateMode.CLUSTER_WIDE
    fixed_because: str = ""
    """Where not empty, only the default is accepted, and this is the reason."""
    empty_inherits: bool = False
    """The empty string means: not set here, take the next source's value."""

    @property
    def sensitive(self) -> bool:
        """A value never shown."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> ConfigValue:
        """The typed value of a text, or a ConfigError that says what is allowed."""
        value = self._convert(text)
        complaint = self._range_complaint(value) or self._choice_complaint(value)
        if complaint is None and self.check is not None:
            complaint = self.check(value)
        if complaint is None and self.fixed_because and value != self.default:
            complaint = f"only {self.format(self.default)!r} is supported: {self.fixed_because}"
        if complaint is not None:
            raise self._error(value, complaint)
        return value

    def format(self, value: ConfigValue) -> str | None:
        """Kafka's text of a typed value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def _convert(self, text: str | None) -> ConfigValue:
        if text is None:
            raise ConfigError(f"Null value not supported for : {self.name}")
        stripped = text.strip()
        if self.type is ConfigType.BOOLEAN:
            return self._boolean(stripped)
        if self.type in _BITS:
            return self._integer(stripped)
        if self.type is ConfigType.DOUBLE:
            return self._double(stripped)
        if self.type is ConfigType.LIST:
            # A repeated item says nothing new, so it is kept once.
            return tuple(
                dict.fromkeys(part.strip() for part in stripped.split(",") if part.strip())
            )
        return stripped

    def _boolean(self, text: str) -> bool:
        lowered = text.lower()
        if lowered not in {"true", "false"}:
            raise self._error(text, "Expected value to be either true or false")
        return lowered == "true"

    def _integer(self, text: str) -> int:
        bits = _BITS[self.type]
        # The length bound keeps a hostile text from becoming a huge number.
        value = int(text) if _INTEGER.match(text) and len(text) <= 20 else None
        if value is None or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise self._error(text, f"Not a number of type {self.type.name}")
        return value

    def _double(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise self._error(text, "Not a number of type DOUBLE") from None
        if math.isnan(value):
            raise self._error(text, "Not a number")
        return value

    def _range_complaint(self, value: ConfigValue) -> str | None:
        if not isinstance(value, int | float) or isinstance(value, bool) or value == self.also:
            return None
        if self.also is not None and not self._inside(value):
            return f"Value must be between {self.low} and {self.high} or equal to {self.also}"
        if self.low is not None and value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def _inside(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def _choice_complaint(self, value: ConfigValue) -> str | None:
        if not self.choices:
            return None
        items = value if isinstance(value, tuple) else (value,)
        if all(item in self.choices for item in items):
            return None
        return f"String must be one of: {', '.join(choice for choice in self.choices if choice)}"

    def _error(self, value: ConfigValue, complaint: str) -> ConfigError:
        shown = "[hidden]" if self.sensitive else self.format(value)
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {complaint}")


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """What was set for one node, by source. Values are texts that were validated when set."""

    dynamic: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)

    def sources(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        """The layers, strongest first."""
        return (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self.static),
        )


NO_LAYERS: Final = BrokerLayers()


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One place where a value was found (DescribeConfigs, KIP-226)."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One line of a DescribeConfigs answer."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    documentation: str


def entry_of(key: ConfigKey, found: tuple[ConfigSynonym, ...], value: str | None) -> ConfigEntry:
    """The answer for one key; `found` is every place that has a value, strongest first."""
    hidden = key.sensitive
    shown = tuple(ConfigSynonym(s.name, None if hidden else s.value, s.source) for s in found)
    return ConfigEntry(
        name=key.name,
        value=None if hidden else value,
        read_only=key.mode is UpdateMode.READ_ONLY,
        source=found[0].source if found else ConfigSource.DEFAULT_CONFIG,
        sensitive=hidden,
        synonyms=shown,
        type=key.type,
        documentation=key.doc,
    )
