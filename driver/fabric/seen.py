"""Remembers which partitions the fabric manager has: asked once, and again when it was restarted."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from driver.fabric.api import FabricError, FabricManager, FabricPartition, NotShared
from driver.process.log import get_logger

_log = get_logger("fabric")


@dataclass(frozen=True, slots=True)
class FabricView:
    """The partitions of the node, none where there is no shared fabric. Which are active is not in it.

    ``unanswered``: a fabric manager runs and never answered, so the partitions are not known.
    """

    partitions: tuple[FabricPartition, ...] = ()
    unanswered: bool = False


NO_FABRIC = FabricView()


class SeenFabric:
    """The fabric manager's last answer; used by one thread.

    While no fabric manager runs, the last answer stays: the hardware is the same.
    """

    def __init__(self, manager: FabricManager) -> None:
        self._manager = manager
        self._asked: Hashable | None = None
        self._told: FabricView | None = None
        self._error = ""

    def look(self) -> FabricView:
        """The partitions as they are known now."""
        instance = self._manager.instance()
        if instance is None or instance == self._asked:
            return self._told or NO_FABRIC
        try:
            found = self._manager.partitions()
        except NotShared:
            found = ()
        except FabricError as error:
            if str(error) != self._error:
                self._error = str(error)
                _log.warning("fabric partitions are not known", error=str(error))
            return self._told or FabricView(unanswered=True)
        self._error = ""
        self._asked = instance
        told = FabricView(tuple(FabricPartition(one.number, one.gpus) for one in found))
        if told != (self._told or NO_FABRIC):
            _log.info("fabric partitions", sizes=sorted(len(one.gpus) for one in told.partitions))
        self._told = told
        return told
