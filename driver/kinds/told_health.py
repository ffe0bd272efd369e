"""A device's health by its stored taints, for the faults that NVML cannot be asked for."""

from __future__ import annotations

from collections.abc import Iterable

from driver.devices.device import Taint
from driver.health.health_rules import HealthRules
from driver.health.incident import Incident, verdicts_of
from driver.health.placing import faults_of
from driver.health.verdict import Health, health_of
from driver.kinds.registry import KINDS

_RULES = HealthRules()


def told_health(device: str, taints: Iterable[Taint]) -> Health:
    """The kubelet's word for a device of this name with these taints; healthy where they say no fault.

    The taints say the class of a fault completely, whatever the rules: where none asks for a reset or a
    restart, the fault was contained.
    """
    faults = faults_of(taints)
    name = KINDS.parse(device) if faults else None
    if name is None or not name.regions:
        return Health("Healthy")
    return health_of(
        [
            verdict
            for fault in faults
            for verdict in verdicts_of(
                Incident(name.regions[0], fault.xid, fault.told or "contained"), _RULES
            )
        ]
    )
