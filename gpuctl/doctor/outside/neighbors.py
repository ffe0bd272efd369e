"""Checks for others on the nodes: a device plugin, and pods that see GPUs without having asked for them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from driver.devices.names import DRIVER_NAME
from gpuctl.cli.cluster import Object
from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, warn
from gpuctl.doctor.outside.programs import programs_of
from gpuctl.doctor.outside.publishing import NO_SLICES, current_devices, publishing_nodes
from gpuctl.doctor.outside.seen import ClusterSeen, containers_of, name_of, namespace_of
from gpuctl.explain.pod.hidden import WAY_OUT, hidden_by_mps
from gpuctl.fleet.pods import orphans

_NOT_HELD = "MemoryLimitNotHeld"
"""The reason that the plugin gives in the status of a claim, and in its events."""

_RESOURCES = "nvidia.com/"
_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES = frozenset({"", "void", "none"})
_ENDED = frozenset({"Succeeded", "Failed"})
_DEVICES = ("/dev/nvidia", "/dev/vfio", "/dev/dri")
_AS_MOUNTS = "/var/run/nvidia-container-devices"
_RUNTIME_SOCKETS = ("/containerd.sock", "/crio.sock", "/docker.sock")
_ANNOTATION = re.compile(
    r"(?:nvidia\.)?cdi\.k8s\.io/|(?:cdi|cdi-devices|devices|mounts)\.(?:nri\.io|noderesource\.dev|gke\.io)(?:/|$)|"
    r"io\.kubernetes\.cri-o\.Devices|devices\.crio\.io"
)
"""What gets devices by annotation: from NVIDIA's NRI plugin, by CDI, from NRI's samples, from CRI-O."""


@check
def _device_plugin(seen: ClusterSeen) -> Finding:
    """`nvidia.com/…` in the capacity of nodes, which only a device plugin sets.

    Fails if a node has it, and devices of this driver can be allocated there; warns if they are tainted.
    """
    nodes, _ = require(seen.nodes), require(seen.slices)
    publishing = require(publishing_nodes(seen), NO_SLICES)
    free = {
        node
        for node, device in current_devices(seen)
        if not any(one.get("effect") in ("NoSchedule", "NoExecute") for one in device.get("taints") or ())
    }
    twice, beside = [], []
    for node in nodes:
        resources = _plugin_resources(node)
        if resources and name_of(node) in free:
            twice.append(f"{name_of(node)}: {resources}")
        elif resources and name_of(node) in publishing:
            beside.append(f"{name_of(node)}: {resources}")
    if twice:
        return fail(
            f"a device plugin also hands out the GPUs of {counted(len(twice), 'node')}",
            "remove the device plugin from these nodes, or keep this driver off them",
            twice + beside,
        )
    if beside:
        return warn(
            f"a device plugin has the GPUs of {counted(len(beside), 'node')}, so this driver's "
            "devices there are tainted",
            "remove the device plugin from these nodes to use the GPUs through claims",
            beside,
        )
    return ok("no device plugin offers GPUs on the nodes that publish them")


def _plugin_resources(node: Object) -> str:
    """The resources that a device plugin offers on a node; empty without any."""
    # The kubelet keeps a resource in the capacity, as 0, after its device plugin has gone.
    capacity = (node.get("status") or {}).get("capacity") or {}
    found = {name: amount for name, amount in capacity.items() if name.startswith(_RESOURCES)}
    return ", ".join(f"{amount} {name}" for name, amount in sorted(found.items()) if str(amount) != "0")


@check
def _unasked_gpus(seen: ClusterSeen) -> Finding:
    """Pods on GPU nodes that get GPUs without a claim: by `NVIDIA_VISIBLE_DEVICES`, the runtime class of
    NVIDIA, mounts, or annotations for CDI, NRI and CRI-O.

    Never fails; warns about each, and says how many pods can open every device.
    """
    pods, _ = require(seen.pods), require(seen.slices)
    nodes = require(publishing_nodes(seen), NO_SLICES)
    lines, privileged = [], 0
    for pod in pods:
        if pod["spec"].get("nodeName") not in nodes or _is_past_or_ours(pod):
            continue
        # The driver's own CDI specs overrule the variable in a container with a claim.
        by_variable = () if _asks(pod) else _variables(pod["spec"])
        ways = sorted({*by_variable, *_ways_to_gpus(pod)})
        if ways:
            lines.append(
                f"{namespace_of(pod)}/{name_of(pod)} on {pod['spec']['nodeName']}: {'; '.join(ways)}"
            )
        privileged += not ways and _can_do_anything(pod["spec"])
    unknown = (
        f"{counted(privileged, 'pod')} can open every device, being privileged or having the runtime's "
        "socket; variables set by images are not checked"
    )
    if lines:
        return warn(
            f"{counted(len(lines), 'pod')} may see GPUs without having asked for one ({unknown})",
            "remove the variable, mount or annotation from these pods, unless they monitor GPUs; check "
            "that the NVIDIA runtime is not the default one, or ignores variables of "
            "unprivileged containers, and that no plugin of the runtime serves such annotations",
            lines,
        )
    return ok(f"no pod's specification gives it GPUs without a claim ({unknown})")


@check
def _deleted_claims(seen: ClusterSeen) -> Finding:
    """Whether the claims of running pods exist.

    Fails if a pod still has a claim that is gone: somebody removed its finalizer.
    """
    found = orphans(require(seen.pods), require(seen.claims))
    if not found:
        return ok("every running pod has its claims")
    return fail(
        f"{counted(len(found), 'pod')} with devices of deleted claims",
        "end these pods: the scheduler can allocate their devices again, and quotas no longer "
        "count them; the policy gpu-dra-claims-in-use keeps tenants from deleting a claim of a "
        "running pod",
        list(found),
    )


def _is_past_or_ours(pod: Object) -> bool:
    """Whether a pod has ended, or is the driver's own."""
    return (pod.get("status") or {}).get("phase") in _ENDED or bool(programs_of(pod["spec"]))


def _asks(pod: Object) -> bool:
    """Whether a pod has asked for devices."""
    spec = pod["spec"]
    limits = (
        name for one in containers_of(spec) for name in (one.get("resources") or {}).get("limits") or ()
    )
    return bool(spec.get("resourceClaims")) or any(name.startswith(_RESOURCES) for name in limits)


def _variables(spec: Object) -> Iterator[str]:
    """How a pod without a claim may get GPUs from NVIDIA's container runtime."""
    # It adds the GPUs that this variable names, unless it is told to ignore it. Images of CUDA set it, too.
    for one in containers_of(spec):
        for variable in one.get("env") or ():
            value = str(variable.get("value") or variable.get("valueFrom") or "")
            if variable.get("name") == _VARIABLE and value not in _NO_DEVICES:
                yield f"{_VARIABLE} in container {one['name']}"
    if "nvidia" in str(spec.get("runtimeClassName")):
        yield f"the runtime class {spec['runtimeClassName']}"


def _ways_to_gpus(pod: Object) -> Iterator[str]:
    """How a pod may get GPUs beside those of its claims."""
    for path in _host_paths(pod["spec"]):
        if path in ("/", "/dev") or path.startswith(_DEVICES):
            yield f"the host's {path}"
    for one in containers_of(pod["spec"]):
        # The runtime can be set to take the names of these mounts for GPUs.
        if any(str(each.get("mountPath")).startswith(_AS_MOUNTS) for each in one.get("volumeMounts") or ()):
            yield f"a mount below {_AS_MOUNTS} in container {one['name']}"
    for key, value in (pod["metadata"].get("annotations") or {}).items():
        if _ANNOTATION.match(key) and ("nvidia" in f"{key} {value}" or "/dev" in value):
            yield f"the annotation {key}"


def _host_paths(spec: Object) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        path = (volume.get("hostPath") or {}).get("path")
        if path:
            yield posixpath.normpath(str(path))


def _can_do_anything(spec: Object) -> bool:
    privileged = any((one.get("securityContext") or {}).get("privileged") for one in containers_of(spec))
    return privileged or any(path.endswith(_RUNTIME_SOCKETS) for path in _host_paths(spec))


@check
def _hidden_devices(seen: ClusterSeen) -> Finding:
    """Containers whose claims give them a device through MPS, and another one beside it.

    Fails if there is one: CUDA would hide the other device, so the container does not start.
    """
    claims = {(namespace_of(one), name_of(one)): one for one in require(seen.claims)}
    lines = [
        f"{namespace_of(pod)}/{name_of(pod)}: {line}"
        for pod in require(seen.pods)
        if (pod.get("status") or {}).get("phase") not in _ENDED
        for line in hidden_by_mps(pod, lambda *name: claims.get(name))
    ]
    if lines:
        return fail(f"MPS hides a device from {counted(len(lines), 'container')}", WAY_OUT, lines)
    return ok("CUDA shows each container all devices of its claims")


@check
def _claim_limits(seen: ClusterSeen) -> Finding:
    """The status of claims: whether the NVIDIA driver limits their memory.

    Fails if one has lost its limit.
    """
    lines = [
        f"{namespace_of(claim)}/{name_of(claim)}, {entry.get('device')}: {condition.get('message') or '?'}"
        for claim in require(seen.claims)
        for entry in (claim.get("status") or {}).get("devices") or ()
        for condition in entry.get("conditions") or ()
        if entry.get("driver") == DRIVER_NAME
        and (condition.get("reason"), condition.get("status")) == (_NOT_HELD, "False")
    ]
    if lines:
        return fail(
            f"{counted(len(lines), 'share')} of GPU memory with a limit that is not enforced",
            "the plugin retries every 15 s; `gpuctl doctor NODE` shows the limits in NVML there",
            lines,
        )
    return ok("no claim reports a limit on GPU memory that is not enforced")


NEIGHBOR_CHECKS = (_device_plugin, _unasked_gpus, _claim_limits, _deleted_claims, _hidden_devices)
