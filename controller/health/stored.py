"""Reads from the node's stored slices which faults of GPUs they tell of, and for how long."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from driver.health.placing import Marked, taken_over
from driver.kinds.registry import KINDS
from driver.slices.specs import read_devices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from driver.health.incident import Incident
    from driver.kinds.kind import Kinds


def stored_faults(
    slices: Iterable[Mapping[str, Any]], server_time: datetime, kinds: Kinds = KINDS
) -> tuple[tuple[Incident, float], ...]:
    """The faults, each with its age in seconds by the API server's clock, which gave the taints their times.

    A taint without a time that can be read is as if it were new: it may not be dropped for its age.
    """
    return taken_over(one for item in slices for one in _marked(item["spec"], server_time, kinds))


def booted_seconds() -> float:
    """How long ago this machine was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _marked(spec: Mapping[str, Any], server_time: datetime, kinds: Kinds) -> Iterator[Marked]:
    ages = {
        device["name"]: max((_age(taint, server_time) for taint in device["taints"]), default=0.0)
        for device in spec.get("devices") or []
        if device.get("taints")
    }
    devices, _ = read_devices([spec], kinds)
    return (Marked(device.regions, device.taints, ages.get(device.name, 0.0)) for device in devices)


def _age(taint: Mapping[str, Any], server_time: datetime) -> float:
    try:
        added = datetime.fromisoformat(str(taint["timeAdded"]))
        return max(0.0, (server_time - added).total_seconds())
    except (KeyError, ValueError, TypeError):
        return 0.0
