"""Ends the faults of GPUs that the kubelet plugin has reset."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.health.incident_store import Book
    from driver.devices.node_state import Healed, NodeState


class Heals:
    """Hears what the kubelet plugin tells, which has each GPU that was reset since the machine was started.

    What was told of a GPU after its reset stays: the times of both are of this machine.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._known: frozenset[Healed] = frozenset()

    def plugin_tells(self, state: NodeState) -> None:
        """Take in the state of the node."""
        now = frozenset(state.healed)
        for one in now - self._known:
            self._book.healed(one.pci, max(0.0, time.time() - one.unix_milliseconds / 1000))
        self._known = now
