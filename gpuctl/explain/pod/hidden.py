"""Finds the containers of a pod in which CUDA shows only a part of what their claims have, because of MPS.

A CUDA process is the client of one MPS daemon, and sees only that daemon's devices. Such a container does not
start: gpu-memory-hook refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from driver.claims.allocation import read_claim
from driver.devices.names import DRIVER_NAME, parse_gpu_device_name
from driver.devices.sharing import split_shared_suffix
from driver.errors import ClaimBlocked, ClaimRefused
from driver.kinds.partition.names import parse_partition_name
from kubernetes_rules.pod_claims import claim_entries

Object = Mapping[str, Any]

WAY_OUT = "give each container one of the two (resources.claims[].request), and create the pod again"


def hidden_by_mps(pod: Object, claim_of: Callable[[str, str], Object | None]) -> Iterator[str]:
    """A sentence for each such container; ``claim_of`` finds a claim by its namespace and name."""
    spec, given = pod["spec"], dict[str, list[tuple[str, str, str]]]()
    for entry in claim_entries(pod):
        stored = claim_of(pod["metadata"]["namespace"], entry.claim) if entry.claim else None
        # Nothing is known yet of a claim without devices.
        with suppress(ClaimBlocked, ClaimRefused):
            name = entry.name if entry.template else entry.claim
            given[entry.name] = [
                (request, f"request {request} of claim {name}", daemon)
                for request, daemon in (_daemons(stored) if stored else ())
            ]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        seen = [
            (words, daemon)
            for one in (container.get("resources") or {}).get("claims") or ()
            for request, words, daemon in given.get(one["name"], ())
            if one.get("request") in (None, request)
        ]
        shown, its = next((one for one in seen if one[1]), ("", ""))
        hidden = next((words for words, daemon in seen if its and daemon != its), None)
        if hidden:
            yield f"container {container['name']}: {shown} is used through MPS, so CUDA would hide {hidden}"


def _daemons(stored: Object) -> Iterator[tuple[str, str]]:
    """The request of each device of a claim that CUDA uses, and its MPS daemon, empty without one."""
    claim = read_claim(stored, stored["metadata"]["uid"], DRIVER_NAME)
    for device in claim.devices:
        name, form = split_shared_suffix(device.device)
        is_gpu = parse_gpu_device_name(name) is not None
        if device.admin_access or not (is_gpu or parse_partition_name(name)):
            continue
        # One daemon serves the GPUs that a claim shares alike, and another each of its partitions.
        own, daemon = claim.uid if is_gpu else name, ""
        for config in claim.configs_of(device):
            told = config.parameters.get("sharing") if isinstance(config.parameters, Mapping) else None
            daemon = own if isinstance(told, Mapping) and told.get("strategy") == "MPS" else ""
        if form is not None:
            daemon = name if form.strategy == "MPS" else ""
        yield device.top_request, daemon
