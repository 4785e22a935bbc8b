"""Where replicas should be: pure plans over `{(topic, partition): replicas}`.

A plan moves as little as it can. Replicas keep their place in the list, so that the preferred
leaders move along; the number of racks that a partition stands in never falls.
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping

from chronik.cli._cluster_state import Key

Assignment = dict[Key, tuple[int, ...]]
Racks = Mapping[int, str | None]


class NoPlaceError(ValueError):
    """Too few nodes would stay for the replicas that there are."""


def evened(assignment: Mapping[Key, tuple[int, ...]], racks: Racks) -> Assignment:
    """What changes so that all nodes in `racks` hold and lead as many partitions, give or take one.

    Replicas on nodes that are not in `racks` stay where they are.
    """
    spread = _Spreading(assignment, racks)
    while spread.step():
        pass
    plan = spread.plan
    _even_leaders(plan, racks)
    return {key: replicas for key, replicas in plan.items() if replicas != assignment[key]}


def evacuated(
    assignment: Mapping[Key, tuple[int, ...]], racks: Racks, leaving: int, *, shrink: bool = False
) -> Assignment:
    """What changes so that a node holds nothing; with `shrink` partitions may lose a replica."""
    plan = dict(assignment)
    counts = _counts(plan, racks)
    changed: Assignment = {}
    for key, replicas in assignment.items():
        if leaving not in replicas:
            continue
        free = [one for one in racks if one not in replicas and one != leaving]
        if free:
            target = min(free, key=lambda one: (_crowd(replicas, leaving, one, racks), counts[one]))
            counts[target] += 1
            changed[key] = _replaced(replicas, leaving, target)
        elif shrink and len(replicas) > 1:
            changed[key] = tuple(one for one in replicas if one != leaving)
        else:
            raise NoPlaceError(
                f"{key[0]}-{key[1]} has {len(replicas)} replicas and only {len(replicas) - 1} of "
                "the nodes that would stay: add a node first"
            )
    return changed


def _counts(plan: Mapping[Key, tuple[int, ...]], racks: Racks) -> Counter[int]:
    counts = Counter(dict.fromkeys(racks, 0))
    counts.update(one for replicas in plan.values() for one in replicas)
    return counts


class _Spreading:
    """Replicas on their way to even counts, with the counts kept at hand."""

    def __init__(self, assignment: Mapping[Key, tuple[int, ...]], racks: Racks) -> None:
        self.plan: Assignment = dict(assignment)
        self._racks = racks
        self._counts = _counts(self.plan, racks)
        self._held: dict[int, dict[str, set[Key]]] = {node: {} for node in racks}
        for key, replicas in self.plan.items():
            for node in replicas:
                if node in racks:
                    self._held[node].setdefault(key[0], set()).add(key)

    def step(self) -> bool:
        """One move from a fuller to an emptier node; False where none is left that helps."""
        order = sorted(self._racks, key=lambda node: (self._counts[node], node))
        for source in reversed(order):
            for target in order:
                if self._counts[source] - self._counts[target] < 2:
                    break
                key = self._movable(source, target)
                if key is not None:
                    self._move(key, source, target)
                    return True
        return False

    def _movable(self, source: int, target: int) -> Key | None:
        """A partition that may move, of the topic in which the two differ most."""
        held, other = self._held[source], self._held[target]
        empty: set[Key] = set()
        topics = sorted(held, key=lambda it: (len(other.get(it, empty)) - len(held[it]), it))
        for topic in topics:
            for key in sorted(held[topic] - other.get(topic, empty)):
                after = _replaced(self.plan[key], source, target)
                if _spread(after, self._racks) >= _spread(self.plan[key], self._racks):
                    return key
        return None

    def _move(self, key: Key, source: int, target: int) -> None:
        self.plan[key] = _replaced(self.plan[key], source, target)
        self._counts[source] -= 1
        self._counts[target] += 1
        self._held[source][key[0]].discard(key)
        self._held[target].setdefault(key[0], set()).add(key)


def _even_leaders(plan: Assignment, racks: Racks) -> None:
    """Changes orders, not places: along chains of partitions from a node that leads too many."""
    while True:
        leads = Counter(dict.fromkeys(racks, 0))
        leads.update(replicas[0] for replicas in plan.values() if replicas[0] in racks)
        source = max(racks, key=lambda node: (leads[node], -node), default=None)
        chain = None if source is None else _chain(plan, leads, source)
        if chain is None:
            return
        for key, target in chain:
            others = [one for one in plan[key] if one != target]
            plan[key] = (target, *others)


def _chain(plan: Assignment, leads: Counter[int], source: int) -> list[tuple[Key, int]] | None:
    """Hand-overs from `source`, node to node, to one that leads at least two fewer."""
    came: dict[int, list[tuple[Key, int]]] = {source: []}
    queue = deque([source])
    led: dict[int, list[Key]] = {}
    for key, replicas in plan.items():
        led.setdefault(replicas[0], []).append(key)
    while queue:
        node = queue.popleft()
        if leads[source] - leads[node] >= 2:
            return came[node]
        for key in led.get(node, ()):
            for other in plan[key][1:]:
                if other not in came and other in leads:
                    came[other] = [*came[node], (key, other)]
                    queue.append(other)
    return None


def _replaced(replicas: tuple[int, ...], old: int, new: int) -> tuple[int, ...]:
    return tuple(new if one == old else one for one in replicas)


def _spread(replicas: Collection[int], racks: Racks) -> int:
    return len({racks.get(one) or "" for one in replicas})


def _crowd(replicas: tuple[int, ...], leaving: int, node: int, racks: Racks) -> int:
    """How many of the other replicas stand in the node's rack."""
    rack = racks.get(node)
    return sum(rack is not None and racks.get(one) == rack for one in replicas if one != leaving)
