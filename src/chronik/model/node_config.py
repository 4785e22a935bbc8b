"""A node's configuration: which keys there are, and what makes a set of values one that can start.

Where the values come from (a file, the environment, flags) is not known here; each brings along
where it was written, and every complaint names that place. All complaints come at once.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from chronik.model.broker_configs import BROKER_KEYS, broker_key
from chronik.model.configs import ConfigError
from chronik.model.node_keys import NODE_KEYS, OWN_KEYS, Kind, NodeKey
from chronik.model.settings import NodeSettings

CONFIGS: Final = "configs."
"""What follows it is a broker config by Kafka's name."""
ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - named to be refused
SIMILARITY_MIN: Final = 0.7
Peer = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Given:
    """One value and where it was written; later ones replace earlier ones with the same key."""

    key: str
    value: object
    """Text (environment, flags), or what TOML has; an item of a list is a Given of its own."""
    where: str


class NodeConfigError(ValueError):
    """A configuration that no node can start with, and every reason why."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def settle(given: Iterable[Given]) -> NodeSettings:
    """The settings that the values make, in rising priority; NodeConfigError where they do not."""
    values = _Values()
    for one in given:
        values.take(one)
    if not values.problems:
        _check(values)
    if values.problems:
        raise NodeConfigError(values.problems)
    return _settings(values)


class _Values:
    """The values so far, where each was written, and what is wrong."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.configs: dict[str, str] = {}
        self.peer_places: list[str] = []
        self._values: dict[str, object] = {}
        self._places: dict[str, str] = {}

    def take(self, one: Given) -> None:
        """Reads one value; a complaint where it is none."""
        try:
            if one.key.startswith(CONFIGS):
                self._config(one, one.key.removeprefix(CONFIGS))
                return
            self._values[one.key] = self._read(_known(one.key), one)
            self._places[one.key] = one.where
        except ValueError as error:
            self.complain(one.where, str(error))

    def complain(self, where: str, text: str) -> None:
        """One more reason not to start."""
        self.problems.append(f"{where}: {text}" if where else text)

    def place(self, key: str) -> str:
        """Where a key was set; nothing where it was not."""
        return self._places.get(key, "")

    def text(self, key: str) -> str | None:
        """A text, the default, or None."""
        return cast("str | None", self._values.get(key, NODE_KEYS[key].default or None))

    def number(self, key: str) -> int | None:
        """A number, the default, or None."""
        default = NODE_KEYS[key].default
        return cast("int | None", self._values.get(key, int(default) if default else None))

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The voters as they were named."""
        return cast("tuple[Peer, ...]", self._values.get("cluster.peers", ()))

    @property
    def joins(self) -> bool:
        """True for a node that is new to a running cluster."""
        return bool(self._values.get("cluster.join", False))

    def _config(self, one: Given, name: str) -> None:
        if name in OWN_KEYS:
            raise ValueError(f"{name} does not belong under [configs]: use {OWN_KEYS[name]}")
        if name not in BROKER_KEYS:
            close = _close(name, BROKER_KEYS)
            raise ValueError(f"unknown broker config '{name}'{close}")
        text = _config_text(one.value)
        try:
            broker_key(name).parse(text)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        self.configs[name] = text

    def _read(self, key: NodeKey, one: Given) -> object:
        if key.kind == "peers":
            return self._read_peers(key, one)
        try:
            return _READERS[key.kind](one.value, key)
        except ValueError as error:
            last = key.name.rpartition(".")[2]
            shown = f"'{one.value}'" if isinstance(one.value, str) else str(one.value)
            raise ValueError(
                f"{key.name}: {shown} is {error}: write for example {last} = {key.example}"
            ) from error

    def _read_peers(self, key: NodeKey, one: Given) -> tuple[Peer, ...]:
        peers, self.peer_places = [], []
        for item in _items(key, one):
            try:
                peers.append(read_peer(item.value))
                self.peer_places.append(item.where)
            except ValueError as error:
                self.complain(item.where, f"{key.name}: {error}")
        return tuple(peers)


def _known(name: str) -> NodeKey:
    if name not in NODE_KEYS:
        raise ValueError(_unknown(name))
    return NODE_KEYS[name]


def _unknown(name: str) -> str:
    """What to do about a key that there is not."""
    if name in OWN_KEYS:
        return f"unknown key '{name}': here it is {OWN_KEYS[name]}"
    if name in BROKER_KEYS:
        return f"unknown key '{name}': broker configs belong under [configs]"
    by_end = [one for one in NODE_KEYS if one.rpartition(".")[2] == name]
    if by_end:
        return f"unknown key '{name}': did you mean {' or '.join(by_end)}?"
    return f"unknown key '{name}'{_close(name, NODE_KEYS)}"


def _close(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), 1, SIMILARITY_MIN)
    return f": did you mean '{found[0]}'?" if found else ""


# -- single values


def _read_number(value: object, key: NodeKey, largest: int = 2**31 - 1) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= largest:
        raise ValueError(f"no number from 0 to {largest}")
    return number


def _read_port(value: object, key: NodeKey) -> int:
    return _read_number(value, key, 65535)


def _read_text(value: object, key: NodeKey) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 - a complaint as any other
    if key.choices and value not in key.choices:
        raise ValueError(f"none of {', '.join(key.choices)}")
    if not value.strip():
        raise ValueError("empty")
    return value.strip()


def _read_flag(value: object, key: NodeKey) -> bool:
    if isinstance(value, bool):
        return value
    if value not in {"true", "false"}:
        raise ValueError("neither true nor false")
    return value == "true"


_READERS: Final[Mapping[Kind, Callable[[object, NodeKey], object]]] = {
    "number": _read_number,
    "port": _read_port,
    "text": _read_text,
    "flag": _read_flag,
}


def _config_text(value: object) -> str:
    """A TOML value as Kafka's property files write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_config_text(one.value if isinstance(one, Given) else one) for one in value)
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{value!r} is no text, number, flag or list of them")


def _items(key: NodeKey, one: Given) -> list[Given]:
    """The items of a list: TOML's own, or a text with commas."""
    items = one.value
    if isinstance(items, str):
        return [Given(key.name, item, one.where) for item in items.split(",") if item.strip()]
    if not isinstance(items, list):
        raise ValueError(  # noqa: TRY004 - a complaint as any other
            f"{key.name}: {items!r} is no list: write for example peers = {key.example}"
        )
    return items


def read_peer(value: object) -> Peer:
    """ID@HOST:PORT; an IPv6 host stands in brackets."""
    text = value.strip() if isinstance(value, str) else ""
    node_id, at, address = text.partition("@")
    host, _, port = address.rpartition(":")
    is_valid = at and node_id.isdigit() and host.strip("[]") and port.isdigit()
    if not is_valid or not 0 < int(port) < 65536 or (":" in host and host[0] != "["):
        raise ValueError(f"{value!r} is no peer: write ID@HOST:PORT, e.g. 1@10.0.0.1:9192")
    if host.strip("[]") in ANY_ADDRESS:
        raise ValueError(f"{value!r}: nobody can connect to {host}: name the host")
    return int(node_id), host.strip("[]"), int(port)


# -- values together


def _check(values: _Values) -> None:
    for name in ("node.id", "node.data"):
        if values.text(name) is None:
            section, _, last = name.partition(".")
            values.complain(
                "",
                f"{name} is missing: write {last} = {NODE_KEYS[name].example} under [{section}], "
                f"or set CHRONIK_{section.upper()}_{last.upper()}",
            )
    _check_peers(values)
    _check_advertised(values)
    _check_ports(values)


def _check_peers(values: _Values) -> None:
    ids: dict[int, str] = {}
    addresses: dict[tuple[str, int], int] = {}
    for (node_id, host, port), where in zip(values.peers, values.peer_places, strict=True):
        if node_id in ids:
            values.complain(where, f"cluster.peers: node {node_id} appears twice: ids are unique")
        elif (host, port) in addresses:
            other = addresses[host, port]
            values.complain(
                where, f"cluster.peers: nodes {other} and {node_id} have one address, {host}:{port}"
            )
        ids[node_id] = where
        addresses[host, port] = node_id
    own = values.number("node.id")
    if ids and own is not None and own not in ids and not values.joins:
        values.complain(
            values.place("cluster.peers"),
            f"cluster.peers: this node's id {own} is not among {sorted(ids)}: add it, or set "
            "cluster.join = true if it is new to a running cluster",
        )
    if values.joins and not any(peer != own for peer in ids):
        values.complain(
            values.place("cluster.join"), "cluster.join: name the running nodes in cluster.peers"
        )


def _check_advertised(values: _Values) -> None:
    host = values.text("advertised.host")
    if host is None and values.text("listen.host") in ANY_ADDRESS:
        values.complain(
            values.place("listen.host"),
            f"listen.host: no client can connect to {values.text('listen.host')}: set "
            "advertised.host to the name or address that they can reach",
        )
    if host in ANY_ADDRESS and host is not None:
        values.complain(
            values.place("advertised.host"),
            f"advertised.host: no client can connect to {host}: name the host",
        )
    if values.number("advertised.port") == 0:
        values.complain(
            values.place("advertised.port"), "advertised.port: 0 is no port to connect to"
        )


def _check_ports(values: _Values) -> None:
    listen = values.text("listen.host")
    used: list[tuple[str, str | None, int]] = []
    for section in ("listen", "peer", "http"):
        port = values.number(f"{section}.port")
        if section == "peer" and values.peers:
            port = _peer_port(values)
        if not port:
            continue
        host = values.text(f"{section}.host") or listen
        for other, other_host, other_port in used:
            if port == other_port and (host == other_host or {host, other_host} & ANY_ADDRESS):
                where = values.place(f"{section}.port") or values.place(f"{other}.port")
                values.complain(
                    where or values.place("cluster.peers"),
                    f"{section}.port and {other}.port are both {port}: each needs its own",
                )
        used.append((section, host, port))


def _peer_port(values: _Values) -> int:
    given = values.number("peer.port")
    if given is not None:
        return given
    own = values.number("node.id")
    return next((port for node_id, _, port in values.peers if node_id == own), 0)


def _settings(values: _Values) -> NodeSettings:
    node_id, data = values.number("node.id"), values.text("node.data")
    assert node_id is not None
    assert data is not None
    return NodeSettings(
        data_dir=data,
        node_id=node_id,
        host=values.text("listen.host") or "",
        port=values.number("listen.port") or 0,
        advertised_host=values.text("advertised.host"),
        advertised_port=values.number("advertised.port"),
        rack=values.text("node.rack"),
        peer_host=values.text("peer.host"),
        peer_port=_peer_port(values),
        peers=values.peers,
        join=values.joins,
        durability="os" if values.text("node.durability") == "os" else "fsync",
        trace=cast("Literal['off', 'memory', 'files']", values.text("node.trace")),
        http_host=values.text("http.host"),
        http_port=values.number("http.port"),
        configs=tuple(values.configs.items()),
    )
