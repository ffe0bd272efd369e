"""A device's health by its stored taints, for the faults that NVML does not report a second time."""

from __future__ import annotations

from collections.abc import Iterable

from driver.devices.device import Taint
from driver.health.health_rules import HealthRules
from driver.health.placing import faults_of
from driver.health.verdict import Health, health_of
from driver.health.xid_verdicts import Incident, verdicts_of
from driver.kinds.registry import KINDS

_RULES = HealthRules()


def health_from_taints(device: str, taints: Iterable[Taint]) -> Health:
    """The health of a device of this name with these taints; healthy if none of them is a fault."""
    faults = faults_of(taints)
    name = KINDS.parse(device) if faults else None
    if name is None or not name.regions:
        return Health("Healthy")
    incidents = [Incident(name.regions[0], fault.xid, fault.xid_class) for fault in faults]
    return health_of([verdict for one in incidents for verdict in verdicts_of(one, _RULES)])
