"""Finds what is wrong with the devices that claims have: sick GPUs, and devices that are not published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driver.devices.names import DRIVER_NAME
from driver.health.remedies import leading
from gpuctl.explain.findings import Finding
from gpuctl.explain.snapshot import Object
from gpuctl.fleet.devices import address_of, attribute, taints_of
from gpuctl.fleet.holders import Allocated, allocated, node_of_pool
from kubernetes_rules.pool_generations import newest_slices

SICK = "sick"
"""The kind of these findings."""


def sick_devices(claims: Iterable[Object], slices: Iterable[Object]) -> tuple[Finding, ...]:
    """What is wrong with the devices of this driver that these claims have."""
    held = [one for claim in claims for one in allocated(claim)]
    if not held:
        return ()
    own = [one for one in slices if one["spec"]["driver"] == DRIVER_NAME]
    devices = {
        (str(one["spec"]["pool"]["name"]), str(device["name"])): device
        for members in newest_slices(own).values()
        for one in members
        for device in one["spec"].get("devices") or ()
    }
    found = (_of_device(one, devices.get((one.pool, one.device))) for one in held)
    return tuple(dict.fromkeys(finding for findings in found for finding in findings))


def _of_device(held: Allocated, device: Object | None) -> Iterator[Finding]:
    node = node_of_pool(held.pool)
    if device is None:
        message = f"claim {held.claim} has {held.device} of {node}, which is not published any more"
        yield Finding(SICK, message, f"`gpuctl doctor {node}` looks for the reason")
        return
    taints = [one for one in taints_of(device) if one.effect != "None"]
    remedy = leading(taints)
    index, address = attribute(device, "index"), address_of(device)
    gpu = address if index is None else f"GPU {index} ({address})"
    if remedy is not None and remedy.action is not None:
        words = ", ".join(map(str, taints))
        message = f"claim {held.claim} has {held.device} on {gpu} of {node}: {remedy.meaning} ({words})"
        yield Finding(SICK, message, remedy.todo)
    elif held.trouble is not None:
        yield Finding(SICK, f"claim {held.claim} cannot use {held.device} on {gpu} of {node}: {held.trouble}")
