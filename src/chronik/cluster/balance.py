"""Which partitions should go back to their preferred leader, as Kafka's controller decides it.

A broker is out of balance when it does not lead a part above some percentage of the partitions
whose first replica it is. Only what it can lead now, being live and in sync, is named.
"""

from collections import defaultdict

from chronik.cluster.image import ClusterImage


def misled(image: ClusterImage, percent_max: int) -> tuple[tuple[str, int], ...]:
    """The partitions to elect the preferred leader of; empty where brokers are in balance."""
    preferred: dict[int, int] = defaultdict(int)
    others: dict[int, list[tuple[str, int]]] = defaultdict(list)
    lost: dict[int, int] = defaultdict(int)
    for topic, index, state in image.partitions():
        wanted = state.preferred_leader
        preferred[wanted] += 1
        if state.leader == wanted:
            continue
        lost[wanted] += 1
        if wanted in state.isr and image.is_live(wanted) and not state.reassigning:
            others[wanted].append((topic.name, index))
    return tuple(
        where
        for broker, partitions in sorted(others.items())
        if lost[broker] * 100 > percent_max * preferred[broker]
        for where in partitions
    )
