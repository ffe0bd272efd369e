"""Checks for others on the nodes: a device plugin, and pods that see GPUs without having asked for them."""

from __future__ import annotations

from collections.abc import Iterator

from gpuctl.doctor.check import Finding, check, counted, fail, ok, require, skipped, warn
from gpuctl.doctor.outside.programs import programs_of
from gpuctl.doctor.outside.publishing import NO_SLICES, current_devices, publishing_nodes
from gpuctl.doctor.outside.seen import ClusterSeen, Object, containers_of, name_of, namespace_of
from gpuctl.explain.pod.hidden import WAY_OUT, hidden_by_mps
from gpuctl.fleet.pods import orphans

_RESOURCES = "nvidia.com/"
_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES = frozenset({"", "void", "none"})
_ENDED = frozenset({"Succeeded", "Failed"})


@check(
    "device-plugin",
    "`nvidia.com/…` in the capacity of nodes, which only a device plugin sets",
    "a node has it, and devices of this driver can be allocated there; warns if they are tainted",
)
def _device_plugin(seen: ClusterSeen) -> Finding:
    nodes, publishing = require(seen.nodes), publishing_nodes(seen)
    require(seen.slices)
    if not publishing_nodes(seen):
        return skipped(NO_SLICES)
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


@check(
    "unasked-gpus",
    "pods on GPU nodes that get GPUs without a claim: by `NVIDIA_VISIBLE_DEVICES`, or mounts of `/dev`",
    "never; warns about each, and says how many pods are privileged",
)
def _unasked(seen: ClusterSeen) -> Finding:
    pods, nodes = require(seen.pods), publishing_nodes(seen)
    require(seen.slices)
    if not nodes:
        return skipped(NO_SLICES)
    lines, privileged = [], 0
    for pod in pods:
        if pod["spec"].get("nodeName") not in nodes or _asks(pod):
            continue
        ways = sorted(set(_ways_to_gpus(pod["spec"])))
        if ways:
            lines.append(
                f"{namespace_of(pod)}/{name_of(pod)} on {pod['spec']['nodeName']}: {'; '.join(ways)}"
            )
        privileged += not ways and _is_privileged(pod["spec"])
    unknown = (
        f"{counted(privileged, 'privileged pod')} can open every device; variables set by images are "
        "not checked"
    )
    if lines:
        return warn(
            f"{counted(len(lines), 'pod')} may see GPUs without having asked for one ({unknown})",
            "remove the variable or the mount from these pods, unless they monitor GPUs; check "
            "that the NVIDIA runtime is not the default one, or ignores variables of "
            "unprivileged containers",
            lines,
        )
    return ok(f"no pod's specification gives it GPUs without a claim ({unknown})")


@check(
    "deleted-claims",
    "whether the claims of running pods exist",
    "a pod still has a claim that is gone: somebody removed its finalizer",
)
def _deleted_claims(seen: ClusterSeen) -> Finding:
    found = orphans(require(seen.pods), require(seen.claims))
    if not found:
        return ok("every running pod has its claims")
    return fail(
        f"{counted(len(found), 'pod')} with devices of deleted claims",
        "end these pods: the scheduler can allocate their devices again, and quotas no longer "
        "count them; the policy gpu-dra-claims-in-use keeps tenants from deleting a claim of a "
        "running pod",
        list(map(str, found)),
    )


def _asks(pod: Object) -> bool:
    """Whether a pod has ended, is the driver's own, or has asked for devices."""
    spec = pod["spec"]
    limits = (
        name for one in containers_of(spec) for name in (one.get("resources") or {}).get("limits") or ()
    )
    return (
        (pod.get("status") or {}).get("phase") in _ENDED
        or bool(programs_of(spec))
        or bool(spec.get("resourceClaims"))
        or any(name.startswith(_RESOURCES) for name in limits)
    )


def _ways_to_gpus(spec: Object) -> Iterator[str]:
    """How a pod may see GPUs without a claim."""
    # NVIDIA's container runtime adds the GPUs that this variable names, unless it is told to ignore it.
    for one in containers_of(spec):
        for variable in one.get("env") or ():
            if variable.get("name") == _VARIABLE and str(variable.get("value") or "") not in _NO_DEVICES:
                yield f"{_VARIABLE} in container {one['name']}"
    for volume in spec.get("volumes") or ():
        path = str((volume.get("hostPath") or {}).get("path") or "")
        if path.rstrip("/") == "/dev" or path.startswith("/dev/nvidia"):
            yield f"the host's {path}"


def _is_privileged(spec: Object) -> bool:
    return any((one.get("securityContext") or {}).get("privileged") for one in containers_of(spec))


@check(
    "hidden-devices",
    "containers whose claims give them a device through MPS, and another one beside it",
    "there is one: CUDA would hide the other device, so the container does not start",
)
def _hidden(seen: ClusterSeen) -> Finding:
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


NEIGHBOR_CHECKS = (_device_plugin, _unasked, _deleted_claims, _hidden)
