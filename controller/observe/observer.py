"""Checks the node's GPUs again and again, and passes on what they can offer in the node's present state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast, get_args

from controller.observe.blocked import with_blocked
from controller.observe.licenses import Licenses, utc_now
from controller.observe.node_events import NodeEvents
from driver.devices.device import Taint
from driver.devices.node_state import NodeState
from driver.devices.taints import TAINT_DEVICE_PLUGIN
from driver.errors import NvmlError
from driver.event_reasons import EventReason
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER
from driver.hardware.gate import LetGo
from driver.hardware.gpu import Gpu, Inventory
from driver.hardware.inventory import Discovery
from driver.health.health_rules import HealthRules
from driver.health.judge import taint_of_failure
from driver.kinds.forms import Part
from driver.kinds.registry import KINDS
from driver.nvml.api import DriverNotLoaded
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import HIDDEN_BY_RULE, Doubt, Offers, Withheld, node_offers
from driver.policy.rules import NodeConfig, virtual_to_enable
from driver.process.log import get_logger
from driver.process.metrics import Metrics
from driver.process.metrics.registry import NvmlFailure

_log = get_logger(__name__)

_POSTED_PARTS: Mapping[Part, str] = {"gpu": "", "passthrough": " to virtual machines"}
"""The withheld parts that get an event, with its words; no attribute of a device says that they are."""

_FAILURES = frozenset(get_args(NvmlFailure))

BESIDE_DEVICE_PLUGIN = "a device plugin on the node hands it out"


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """What one check found."""

    inventory: Inventory
    # The rules at that moment.
    rules: NodeConfig | None
    # The taint of what needs an NVIDIA driver; None if the node has one.
    missing: Taint | None
    # The GPUs that had left the NVIDIA driver for claims when the check began, one set for each device.
    away: frozenset[frozenset[PciAddress]]
    # The GPUs that should get virtual functions and have none.
    virtual_off: frozenset[PciAddress]


class Observer:
    """The offers of this node, made anew by each ``check`` from the GPUs and the ``rules``.

    * ``on_offers`` gets them, with the names of the devices that claims hold and with the GPUs, whenever
      one of these may have changed.
    * ``on_virtual_off`` gets the GPUs that should get virtual functions by their rule, have none, and are not
      in use by a claim.
    * ``on_check`` is called after each successful check, with the GPUs, the rules for faults, and the seconds
      since the check began.
    * ``withholds``: offer nothing while a device plugin offers GPUs of the node.

    Changes are logged once; a GPU that is not offered is also an event of the Node.
    """

    def __init__(
        self,
        discovery: Discovery,
        rules: Callable[[], NodeConfig | None],
        metrics: Metrics,
        events: NodeEvents,
        on_offers: Callable[[Offers, frozenset[str], tuple[Gpu, ...]], None],
        *,
        withholds: bool = False,
        on_virtual_off: Callable[[frozenset[PciAddress]], None] = lambda _gpus: None,
        on_check: Callable[[Inventory, HealthRules, float], None] = lambda _inventory, _rules, _seconds: None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._discovery = discovery
        self._rules = rules
        self._metrics = metrics
        self._events = events
        self._on_offers = on_offers
        self._withholds = withholds
        self._on_virtual_off = on_virtual_off
        self._on_check = on_check
        self._licenses = Licenses(events, now)
        self._device_plugin: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._seen: _Seen | None = None
        self._made: tuple[_Seen, frozenset[frozenset[PciAddress]], Offers] | None = None
        self._failure: NvmlError | None = None
        self._state: NodeState | None = None
        self._driver_missing = False
        self._logged: dict[str, object] = {}
        self._withheld: dict[str, str] = {}

    def check(self) -> None:
        """Check once; raises NvmlError if NVML is there and does not work."""
        # Before the GPUs are read: one that comes back to the NVIDIA driver meanwhile still counts as away.
        rules, began_at = self._rules(), time.monotonic()
        busy, away = self._busy(), self._away()
        missing: Taint | None = None
        try:
            # A GPU that is busy before or after the reading may have been busy during it.
            inventory = _without_waits(self._discovery.snapshot(), {*busy, *self._busy()})
        except LetGo:
            # The session is closed for the kubelet plugin, so nothing can be read and nothing is wrong.
            return
        except NvmlError as error:
            # Without NVML sysfs still shows the GPUs; virtual machines can have them.
            inventory, missing = self._discovery.without_driver(), taint_of_failure(error)
            # If the node has a driver and NVML fails all the same, the last devices stay with a taint. Before
            # the first successful check, only what is stored already is published.
            if not (isinstance(error, DriverNotLoaded) or _has_no_gpu(inventory)):
                with self._lock:
                    self._failure = error
                    self._pass_on()
                raise
            if not self._driver_missing:
                _log.warning(
                    "there is no NVIDIA driver on this node, so new containers get no GPU", error=str(error)
                )
        self._driver_missing = missing is not None
        virtual_off = virtual_to_enable(inventory, rules)
        # First, so that no device of a sick GPU is offered without its taints.
        self._on_check(
            inventory, HealthRules() if rules is None else rules.health, time.monotonic() - began_at
        )
        with self._lock:
            self._seen, self._failure = _Seen(inventory, rules, missing, away, virtual_off), None
            offers = self._offers(self._seen)
            self._pass_on()
        self._report(inventory, offers)

    def _offers(self, seen: _Seen) -> Offers:
        """The offers of a check, with the GPUs that were away then or are now. The lock is held."""
        away = seen.away | self._away_now()
        # The plugin's state changes more often than the GPUs, so the same input is not worked out twice.
        if self._made is None or self._made[:2] != (seen, away):
            offers = node_offers(seen.inventory, seen.rules, away=away, without_driver=seen.missing)
            if seen.missing is not None:
                offers = replace(
                    offers, doubts=(*offers.doubts, Doubt(None, whole=True, taints=(seen.missing,)))
                )
            self._made = seen, away, offers
        return self._made[2]

    def _away(self) -> frozenset[frozenset[PciAddress]]:
        with self._lock:
            return self._away_now()

    def _away_now(self) -> frozenset[frozenset[PciAddress]]:
        """The GPUs that left the NVIDIA driver for a claim, one set for each device."""
        names = map(KINDS.parse, () if self._state is None else self._state.held)
        return frozenset(
            frozenset(region.pci for region in name.regions)
            for name in names
            if name is not None and name.kind.leaves_driver
        )

    def _busy(self) -> tuple[PciAddress, ...]:
        """The GPUs that the plugin is changing; their NVML calls may take long although nothing is wrong."""
        with self._lock:
            return () if self._state is None else self._state.busy

    def plugin_reports(self, state: NodeState) -> None:
        """Take in the kubelet plugin's state; may be called by another thread than ``check``."""
        with self._lock:
            self._state = state
            self._pass_on()

    def device_plugin_offers(self, resources: tuple[str, ...]) -> None:
        """Take in the GPU resources of a device plugin; may be called by another thread than ``check``."""
        # While there are any, every device has a taint or none is offered. Otherwise the kubelet could give a
        # GPU to one pod by the device plugin and to another by a claim.
        with self._lock:
            self._device_plugin = resources
            self._pass_on()

    def _pass_on(self) -> None:
        """Pass on the offers, once everything is known. The lock is held, so that they arrive in order."""
        # Not before the plugin's state is known: what claims hold of earlier devices must not be handed out
        # in another form.
        if self._state is None or (self._seen is None and self._failure is None):
            return
        inventory = Inventory() if self._seen is None else self._seen.inventory
        offers = Offers((), ()) if self._seen is None else self._offers(self._seen)
        devices = with_blocked(offers.devices, self._state, inventory.gpus)
        doubts, withheld = offers.doubts, offers.withheld
        if self._device_plugin and self._withholds:
            devices = ()
            withheld = (*withheld, *(Withheld(gpu.pci, BESIDE_DEVICE_PLUGIN) for gpu in inventory.gpus))
        elif self._device_plugin:
            beside = Taint(TAINT_DEVICE_PLUGIN, self._device_plugin[0], "NoSchedule")
            devices = tuple(replace(device, taints=(*device.taints, beside)) for device in devices)
        if self._failure is not None:
            failed = taint_of_failure(self._failure)
            devices = tuple(replace(device, taints=(*device.taints, failed)) for device in devices)
            doubts = (*doubts, Doubt(None, whole=True, taints=(failed,)))
        passed = replace(offers, devices=devices, doubts=doubts, withheld=withheld)
        self._on_offers(passed, frozenset(self._state.held), inventory.gpus)
        self._on_virtual_off(self._virtual_off(self._state.held))

    def _virtual_off(self, taken: Collection[str]) -> frozenset[PciAddress]:
        """The GPUs whose virtual functions should be turned on now. The lock is held."""
        if self._seen is None or self._failure is not None or not self._seen.virtual_off:
            return frozenset()
        names = (name for name in map(KINDS.parse, taken) if name is not None)
        return self._seen.virtual_off - {region.pci for name in names for region in name.regions}

    def _report(self, inventory: Inventory, offers: Offers) -> None:
        """Log and post what differs from the last check."""
        now: dict[str, object] = {
            "gpus": [str(gpu.pci) for gpu in inventory.gpus],
            "driver_version": inventory.driver_version,
            "cuda_driver_version": inventory.cuda_driver_version,
            "withheld": [f"{held.part} of {held.pci}: {held.reason}" for held in offers.withheld],
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
                # A problem with a value is an answer of the call, not a failure of it.
                if problem.reason in _FAILURES and not problem.value:
                    self._metrics.nvml_failed(cast("NvmlFailure", problem.reason))
        if changed:
            _log.info("GPUs of the node", **changed)
        self._logged = now
        self._licenses.seen(inventory.gpus)
        self._post_withheld([held for held in offers.withheld if held.part in _POSTED_PARTS])

    def _post_withheld(self, withheld: list[Withheld]) -> None:
        now = {f"{held.pci} is not offered{_POSTED_PARTS[held.part]}": held.reason for held in withheld}
        for what, reason in now.items():
            if self._withheld.get(what) != reason:
                hidden = reason == HIDDEN_BY_RULE
                event_reason = EventReason.GPU_HIDDEN if hidden else EventReason.GPU_WITHHELD
                self._events.post(event_reason, f"GPU {what}: {reason}")
        self._withheld = now


def _has_no_gpu(inventory: Inventory) -> bool:
    """Whether the node has GPUs and none of them is bound to the NVIDIA driver."""
    # Then an NVML that fails says nothing about the GPUs.
    found = inventory.pci.physical
    return bool(found) and all(function.driver != NVIDIA_KERNEL_DRIVER for function in found)


def _without_waits(inventory: Inventory, busy: Collection[PciAddress]) -> Inventory:
    """The inventory without the hanging calls of the GPUs that the plugin was changing."""
    gpus = tuple(
        replace(gpu, problems=tuple(problem for problem in gpu.problems if problem.reason != "hung"))
        if gpu.pci in busy
        else gpu
        for gpu in inventory.gpus
    )
    return replace(inventory, gpus=gpus)
