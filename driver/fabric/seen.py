"""Remembers which partitions the fabric manager has; it is asked once, and again after a restart of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from driver.fabric.api import FabricError, FabricManager, FabricPartition, NotShared
from driver.process.log import get_logger

_log = get_logger("fabric")


@dataclass(frozen=True, slots=True)
class FabricView:
    """The partitions of the node, empty without a shared fabric. It does not say which are active.

    ``unanswered``: a fabric manager runs but has never answered, so the partitions are not known.
    """

    partitions: tuple[FabricPartition, ...] = ()
    unanswered: bool = False


NO_FABRIC = FabricView()


class KnownFabric:
    """The fabric manager's last answer; used by one thread."""

    def __init__(self, manager: FabricManager) -> None:
        self._manager = manager
        self._instance: Hashable | None = None
        self._view: FabricView | None = None
        self._error = ""

    def current(self) -> FabricView:
        """The partitions as far as they are known now."""
        instance = self._manager.instance()
        # While no fabric manager runs the last answer counts: the hardware is still the same.
        if instance is None or instance == self._instance:
            return self._view or NO_FABRIC
        try:
            found = self._manager.partitions()
        except NotShared:
            found = ()
        except FabricError as error:
            if str(error) != self._error:
                self._error = str(error)
                _log.warning("cannot read fabric partitions", error=str(error))
            return self._view or FabricView(unanswered=True)
        self._error = ""
        self._instance = instance
        view = FabricView(tuple(FabricPartition(one.number, one.gpus) for one in found))
        if view != (self._view or NO_FABRIC):
            _log.info("fabric partitions", sizes=sorted(len(one.gpus) for one in view.partitions))
        self._view = view
        return view
