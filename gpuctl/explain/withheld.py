"""Says where the node configuration wants partitions of a GPU, and why the driver withholds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from driver.devices.names import DRIVER_NAME
from gpuctl.explain.findings import Finding

Object = Mapping[str, Any]


def withheld(slices: Iterable[Object]) -> tuple[Finding, ...]:
    """The GPUs of this driver that say why they are not offered in partitions, by node and reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in slices:
        spec = one["spec"]
        if spec["driver"] != DRIVER_NAME:
            continue
        for device in spec.get("devices") or ():
            reason = ((device.get("attributes") or {}).get("migWithheld") or {}).get("string")
            if reason:
                found.setdefault((str(spec.get("nodeName")), str(reason)), []).append(str(device["name"]))
    return tuple(
        Finding(
            "withheld",
            f"{node}: partitions of {', '.join(dict.fromkeys(names))} are withheld: {reason}",
            "end what uses the GPU, or change the node configuration",
        )
        for (node, reason), names in sorted(found.items())
    )
