"""Looks at the node's GPUs again and again, and passes on what they can offer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from driver.errors import NvmlError
from driver.health import taint_of_failure
from driver.log import get_logger
from driver.nvml.api import DriverNotLoaded
from driver.offers import node_offers

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.config import NodeConfig
    from driver.inventory import Discovery
    from driver.metrics import Metrics
    from driver.model import Device, Inventory

_log = get_logger(__name__)

CHECK_SECONDS = 15.0


class NodeOffers:
    """The offers of this node, taken afresh with each ``check``.

    While NVML as a whole cannot be asked, for want of an NVIDIA driver perhaps, what was offered before
    stays with a taint, so that no new pod comes; nothing is offered before NVML was asked once. What
    changes is logged once, when it changes.
    """

    def __init__(
        self,
        discovery: Discovery,
        config: NodeConfig | None,
        metrics: Metrics,
        on_devices: Callable[[tuple[Device, ...]], None],
    ) -> None:
        self._discovery = discovery
        self._config = config
        self._metrics = metrics
        self._on_devices = on_devices
        self._driver_missing = False
        self._devices: tuple[Device, ...] = ()
        self._logged: dict[str, object] = {}

    def check(self) -> None:
        """Look once; raises NvmlError when NVML is there and cannot be asked."""
        try:
            inventory = self._discovery.snapshot()
        except NvmlError as error:
            taint = taint_of_failure(error)
            if self._devices:
                self._on_devices(tuple(replace(d, taints=(*d.taints, taint)) for d in self._devices))
            if not isinstance(error, DriverNotLoaded):
                raise
            if not self._driver_missing:
                _log.warning("no NVIDIA driver on this node, nothing new is offered", error=str(error))
            self._driver_missing = True
            return
        self._driver_missing = False
        offers = node_offers(inventory, self._config)
        self._report(inventory, {str(held.gpu.pci): held.reason for held in offers.withheld})
        self._devices = offers.devices
        self._on_devices(offers.devices)

    def _report(self, inventory: Inventory, withheld: dict[str, str]) -> None:
        """Log what differs from the last look."""
        now: dict[str, object] = {
            "gpus": [str(gpu.pci) for gpu in inventory.gpus],
            "driver_version": inventory.driver_version,
            "cuda_driver_version": inventory.cuda_driver_version,
            "withheld": withheld,
            "problems": {
                str(gpu.pci): [problem.message for problem in gpu.problems]
                for gpu in inventory.gpus
                if gpu.problems
            },
            "node_problems": [problem.message for problem in inventory.problems],
        }
        changed = {name: value for name, value in now.items() if self._logged.get(name) != value}
        if "problems" in changed or "node_problems" in changed:
            for problem in (
                *inventory.problems,
                *(found for gpu in inventory.gpus for found in gpu.problems),
            ):
                self._metrics.nvml_failed(problem.reason)
        if changed:
            _log.info("GPUs of the node", **changed)
        self._logged = now
