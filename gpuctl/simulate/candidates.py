"""The nodes on which a group of like pods may fit, so that one which did not is not asked again in vain."""

from __future__ import annotations

import random


class Candidates:
    """The nodes on which a group may fit: those that did not fit are out until something there ends."""

    def __init__(self, nodes: int) -> None:
        self._nodes = list(range(nodes))
        self._place = {node: node for node in self._nodes}

    def pick(self, chance: random.Random) -> int | None:
        """One of them, None when there is none."""
        return self._nodes[chance.randrange(len(self._nodes))] if self._nodes else None

    def drop(self, node: int) -> None:
        """It does not fit there now."""
        place, last = self._place.pop(node), self._nodes.pop()
        if last != node:
            self._nodes[place] = last
            self._place[last] = place

    def restore(self, node: int) -> None:
        """Something ended there."""
        if node not in self._place:
            self._place[node] = len(self._nodes)
            self._nodes.append(node)
