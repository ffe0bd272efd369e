"""What an explanation says of claims and pods, a text for each group of situations."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from driver.devices.names import CHANNELS_DRIVER_NAME, CLIQUE_LABEL
from tests.clusters import Explanation, Object, plan_node
from tests.gpuctl.approved import approve
from tests.gpuctl.explain.gpu_findings import COUNTERS, LIMITS, first_gpu, published
from tests.gpuctl.explain.objects import CLASS, NODE, Later, claim, held, of_claim, of_pod, pod, shown, slices
from tests.gpuctl.explain.site import WHOLE, Site, claim_spec

GPUS = ("gpu-0000-17-00-0", "gpu-0000-65-00-0", "gpu-0000-ca-00-0", "gpu-0000-e3-00-0")
CLIQUE = "5c2f8d1e-7a34-4b60-9e15-d30b6c8f4a72.4026"
NODE_B: Object = {"metadata": {"name": "node-b", "labels": {}}, "spec": {}}
OTHER: Object = {
    "metadata": {"name": "other"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "other.example.com"'}}]},
}


def asking(*requests: Object, **devices: Any) -> Object:
    """A claim with these requests, each exactly for a GPU unless it says otherwise."""
    made = claim()
    one_gpu = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    listed = [one if "firstAvailable" in one else {"exactly": {**one_gpu, **one}} for one in requests]
    named = [{"name": f"r{number}", **one} for number, one in enumerate(listed)]
    made["spec"]["devices"] = {"requests": named, **devices}
    return made


def either(name: str, count: int, **state: Any) -> Later:
    """One device of a class that nobody publishes is asked for, or else so many of this one."""
    subs = [
        {"name": f"a{number}", "deviceClassName": name, "count": count, "allocationMode": "ExactCount"}
        for number, (name, count) in enumerate((("other", 1), (name, count)))
    ]
    return of_claim(asking({"firstAvailable": subs}), classes=(CLASS, OTHER), **state)


def selecting(expression: str) -> Object:
    """A class whose one selector this is."""
    return {"metadata": CLASS["metadata"], "spec": {"selectors": [{"cel": {"expression": expression}}]}}


TAINT = {"key": "service", "effect": "NoSchedule"}
TAINTED = {"devicetaintrules": [{"spec": {"deviceSelector": {"device": GPUS[0]}, "taint": TAINT}}]}


def two_nodes() -> Later:
    """Eight GPUs are asked for; four are on one node, eight on the other, and one of each is in use."""
    both = slices() + plan_node("hgx-h100", "node-b", None).slices
    on_b = held("other", "gpu-0000-1b-00-0")
    on_b["status"]["allocation"]["devices"]["results"][0]["pool"] = "node-b/gpu.nvidia.com"
    return of_claim(claim(count=8), nodes=(NODE, NODE_B), slices=both, claims=(held("a", GPUS[0]), on_b))


def by_measure(shares: str, asked: Mapping[str, str]) -> Later:
    found = published("node-a", f"{{shared: {{strategy: MPS, {shares}}}}}", "a30-quad")
    return of_claim(asking({"capacity": {"requests": asked}}), slices=found)


def gives_up() -> Later:
    """A selector fails on a device of a second node."""
    (one,) = slices()
    hostile = json.loads(json.dumps(one).replace("node-a", "node-b"))
    hostile["spec"]["devices"][0]["attributes"]["driverVersion"] = {"int": 1}
    newer = selecting("device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('5.0.0'))")
    return of_claim(claim(), nodes=(NODE, NODE_B), slices=(one, hostile), classes=(newer,))


def selected(expression: str, **more: Any) -> Later:
    return of_claim(claim(), classes=(selecting(expression),), **more)


def about_to_change(*holders: str) -> Later:
    found = copy.deepcopy(slices())
    found[0]["spec"]["devices"][0]["taints"] = [{"key": "gpu.nvidia.com/changing", "effect": "NoSchedule"}]
    return selected("false", slices=found, claims=tuple(held(one, GPUS[0]) for one in holders))


def withheld() -> Later:
    found = copy.deepcopy(slices())
    for device in found[0]["spec"]["devices"][:2]:
        device["attributes"]["migWithheld"] = {"string": "it needs a reset"}
    return selected('device.attributes["gpu.nvidia.com"].type == "mig"', slices=found)


def said() -> Later:
    message = "GPU 0000:07:00.0 is not offered: it has no partition"
    about = {"involvedObject": {"kind": "Node", "name": "node-a"}, "message": message}
    return of_claim(claim(), slices=(), events=(about, about))


ALL = {"allocationMode": "All"}
WITHOUT = {"matchAttribute": "gpu.nvidia.com/parentUUID"}

CLAIMS: Mapping[str, Later] = {
    "it has devices": of_claim(held("theirs", GPUS[0])),
    "only one of two nodes could serve": two_nodes(),
    "a taint is in the way": of_claim(claim(count=4), **TAINTED),
    "taints make no node larger": of_claim(claim(count=5), **TAINTED),
    "a constraint on what no device has": of_claim(asking({"count": 2}, constraints=[WITHOUT])),
    "distinct values of what no device has": of_claim(
        asking({"count": 2}, constraints=[{"distinctAttribute": "gpu.nvidia.com/parentUUID"}])
    ),
    "all forms of a GPU at once": of_claim(asking(ALL), slices=first_gpu("mig: dynamic")),
    "an alternative waits, the other is not published": either("gpu", 4, claims=(held("theirs", *GPUS[:2]),)),
    "an alternative is too large, the other is not published": either("gpu", 5),
    "no alternative is published": either("other", 5),
    "memory, where shares are by number": by_measure("shares: 4", {"memory": "10Gi"}),
    "a number, where shares are by memory": by_measure("memory: {step: 5Gi}", {"shares": "2"}),
    "too much memory": by_measure("shares: 4, memory: {step: 5Gi}", {"memory": "90Gi"}),
    "the scheduler gives up at a device": gives_up(),
    "a capacity is taken for an attribute": selected("device.attributes['gpu.nvidia.com'].memory >= 40000"),
    "too little memory": selected(
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('30Gi')) >= 0"
    ),
    "another product": selected("device.attributes['gpu.nvidia.com'].productName == 'A30'"),
    "a truth value": selected("device.attributes['gpu.nvidia.com'].migCapable == false"),
    "another type, of which most is false": selected(
        "device.attributes['gpu.nvidia.com'].type == 'mig' && "
        "'profile' in device.attributes['gpu.nvidia.com'] && device.attributes['gpu.nvidia.com'].numaNode > 8"
    ),
    "an attribute of Kubernetes": selected("device.attributes['resource.kubernetes.io'].numaNode > 8 "),
    "more values than are shown": selected("device.attributes['gpu.nvidia.com'].index == 9"),
    "devices are about to change": about_to_change("a"),
    "devices change when two claims end": about_to_change("a", "b"),
    "nobody holds what is about to change": about_to_change(),
    "partitions are withheld": withheld(),
    "the driver has said something": said(),
}


def uses(*claims: str, template: str = "", **spec: Any) -> Object:
    """A pod whose container uses these claims, and one of a template."""
    entries = [{"name": one, "resourceClaimName": one} for one in claims]
    entries += [{"name": "own", "resourceClaimTemplateName": template}] if template else []
    named = [{"name": one["name"]} for one in entries]
    containers = [{"name": "main", "resources": {"claims": named}}]
    return pod(**{"resourceClaims": entries, "containers": containers, **spec})


def from_template(count: int = 1, **lists: Any) -> Later:
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim(count=count)["spec"]}}
    return of_pod(uses(template="t"), resourceclaimtemplates=[template], **lists)


def quota(resource: str, hard: str, used: str = "0", **spec: Any) -> Mapping[str, Any]:
    status = {"hard": {resource: hard}, "used": {resource: used}}
    return {"resourcequotas": [{"metadata": {"name": "tenant"}, "spec": spec, "status": status}]}


def refused_by_webhook() -> Later:
    about = {"involvedObject": {"uid": "pod"}, "message": "admission webhook said no"}
    return from_template(events=[{"reason": "FailedResourceClaimCreation", **about}])


def made_by(owner: str | None) -> Later:
    """The pod's claim was made from its template, and this pod controls it."""
    waiting, mine = uses(template="t"), claim()
    waiting["status"]["resourceClaimStatuses"] = [{"name": "own", "resourceClaimName": "mine"}]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": "pod", "controller": True}
    mine["metadata"]["ownerReferences"] = [reference] if owner else []
    return of_pod(waiting, claims=(mine,))


def unused(phase: str) -> Later:
    entries = [{"name": name, "resourceClaimName": "theirs"} for name in ("used", "for-nobody")]
    containers = [{"name": "main", "resources": {"claims": [{"name": "used"}]}}]
    return of_pod(pod(phase, resourceClaims=entries, containers=containers, nodeName="node-a"))


DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
NAMED: Object = {**CLASS, "spec": {**CLASS["spec"], "extendedResourceName": "nvidia.com/gpu"}}

TRAIN = {"podGroupName": "train"}


def of_a_group() -> Explanation:
    site = Site("node-a")
    site.runs("batch", "node-a", claim_spec(WHOLE), priority=5)
    return site.explained(site.waits("worker", claim_spec(WHOLE), priority=10, schedulingGroup=TRAIN))


PODS: Mapping[str, Later] = {
    "no claims": of_pod(pod()),
    "scheduling gates": of_pod(pod(schedulingGates=[{"name": "example.com/wait"}])),
    "it belongs to a group": of_pod(uses("c", schedulingGroup=TRAIN), claims=(claim("c"),)),
    "it belongs to a group, and devices are in use": of_a_group,
    "it has some devices already": of_pod(
        uses("first", "second"), claims=(held("first", *GPUS[:2]), claim("second", count=3))
    ),
    "its claim is not made yet": from_template(),
    "a webhook refuses its claim": refused_by_webhook(),
    "a quota with room": from_template(1, **quota(DEVICES, "4", "3")),
    "a quota with scopes": from_template(
        2, classes=(NAMED,), **quota("requests.nvidia.com/gpu", "1", scopes=["BestEffort"])
    ),
    "its own claim": made_by("train"),
    "a claim of somebody else under the name of its own": made_by(None),
    "a claim that no container uses": unused("Pending"),
    "a claim that no container of a running pod uses": unused("Running"),
}


EARLY, LATE = "2026-01-01T10:00:00Z", "2026-01-01T10:05:00Z"


def failed(at: str, message: str = "device gpu-1 is still held", **more: Any) -> Object:
    """The kubelet's event that it cannot prepare the pod's claims."""
    about = {"involvedObject": {"uid": "pod"}, "message": message, "lastTimestamp": at}
    return {"reason": "FailedPrepareDynamicResources", **about, **more}


def sandbox(status: str, since: str) -> Object:
    kind = "PodReadyToStartContainers"
    return {"conditions": [{"type": kind, "status": status, "lastTransitionTime": since}]}


def on_node(status: Object, *events: Object, node: str | None = "node-a") -> Later:
    placed = pod(**({"nodeName": node} if node else {}))
    placed["status"] = {"phase": "Pending", **status}
    return of_pod(placed, events=events)


def container(state: str, name: str = "main", **said: Any) -> Object:
    return {"name": name, "state": {state: said}}


def with_device(change: Object, *, runs: bool = True) -> Later:
    """A running pod, or a claim, whose device changed since it was allocated."""
    changed = copy.deepcopy(slices())
    changed[0]["spec"]["devices"][0].update(change)
    mine, running = held("mine", GPUS[0]), uses("mine", nodeName="node-a")
    running["status"]["phase"] = "Running"
    seen = {"slices": changed, "claims": (mine,)}
    return of_pod(running, **seen) if runs else of_claim(mine, **seen)


XID: Object = {"taints": [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}]}
NOTED: Object = {"taints": [{"key": "gpu.nvidia.com/memory", "value": "rows-pending", "effect": "None"}]}
STUCK = container("waiting", reason="CreateContainerError", message="CDI device\nnot found")
CRASHED = {
    **container("waiting", reason="CrashLoopBackOff"),
    "lastState": {"terminated": {"startedAt": LATE, "exitCode": 1}},
}
EVICTED: Object = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "the node was low on memory",
    "containerStatuses": [
        container("terminated", exitCode=137, reason="OOMKilled"),
        container("terminated", "side", exitCode=0),
    ],
}

PLACED: Mapping[str, Later] = {
    "its node cannot prepare it": on_node({}, failed(EARLY, "first"), failed(LATE, "last")),
    "its sandbox came after the failure": on_node(sandbox("True", LATE), failed(EARLY)),
    "it runs since the failure": on_node({"phase": "Running", **sandbox("True", LATE)}, failed(EARLY)),
    "an init container runs since the failure": on_node(
        {"initContainerStatuses": [container("running", startedAt=LATE)]}, failed(EARLY)
    ),
    "a container ended since the failure": on_node({"containerStatuses": [CRASHED]}, failed(EARLY)),
    "its sandbox is gone": on_node(sandbox("False", LATE), failed(LATE)),
    "it was ready before the failure": on_node(sandbox("True", EARLY), failed(LATE)),
    "its container started before the failure": on_node(
        {"phase": "Running", "containerStatuses": [container("running", startedAt=EARLY)]}, failed(LATE)
    ),
    "an event that was repeated": on_node(
        sandbox("True", EARLY), failed("", series={"lastObservedTime": "2026-01-01T10:05:00.123456Z"})
    ),
    "an event that was repeated before": on_node(
        sandbox("True", LATE), failed("", series={"lastObservedTime": EARLY})
    ),
    "a container cannot start": on_node({"containerStatuses": [STUCK]}),
    "a container of a running pod cannot start": on_node({"phase": "Running", "containerStatuses": [STUCK]}),
    "it has failed": on_node(EVICTED, failed(LATE)),
    "it has failed without a node": on_node({"phase": "Failed"}, node=None),
    "its GPU is sick": with_device(XID),
    "the GPU of a claim is sick": with_device(XID, runs=False),
    "its device is gone": with_device({"name": "gpu-other"}),
    "its GPU has a note": with_device(NOTED),
}

GPU, NIC, IMPLICIT = "nvidia.com/gpu", "example.com/nic", "deviceclass.resource.kubernetes.io/gpu"
NIC_NODE: Object = {**NODE, "status": {"allocatable": {NIC: "1"}}}


def limited(gpu: str = "", nic: str = "", **limits: str) -> Object:
    """A container with limits of extended resources."""
    asked = {GPU: gpu, NIC: nic, **limits}
    return {"name": "main", "resources": {"limits": {name: text for name, text in asked.items() if text}}}


def extended(*containers: Object, init: Object | None = None, **state: Any) -> Later:
    waiting = pod(containers=list(containers), initContainers=[init] if init else [])
    return of_pod(waiting, **{"classes": (NAMED,), **state})


def with_plugin(amount: str) -> Object:
    return {**NODE_B, "status": {"allocatable": {GPU: amount}}}


def runs(node: str, *, by_claim: bool = False, **limits: str) -> Object:
    """A pod that has extended resources of a node, from its device plugin or by a claim."""
    found = pod("Running", containers=[limited(**limits)], nodeName=node)
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}
    made = {"resourceClaimName": "x", "requestMappings": [mapping]}
    return {**found, "status": {"extendedResourceClaimStatus": made}} if by_claim else found


OTHERS = (
    runs("node-b", gpu="3"),
    runs("node-b", gpu="1"),
    runs("node-c", gpu="8"),
    runs("node-b", gpu="2", by_claim=True),
)

EXTENDED: Mapping[str, Later] = {
    "a sidecar has its own": extended(limited(gpu="3"), init={**limited(gpu="2"), "restartPolicy": "Always"}),
    "the implicit name of a class": extended(limited(**{IMPLICIT: "4"}), classes=(CLASS,)),
    "a device plugin has enough": extended(
        limited(gpu="4"), nodes=(with_plugin("8"),), slices=(), pods=(runs("node-b", gpu="4"),)
    ),
    "a device plugin has too little left": extended(
        limited(gpu="5"), nodes=(with_plugin("8"),), slices=(), pods=OTHERS
    ),
    "each node is asked for its own": extended(limited(gpu="5"), nodes=(NODE, with_plugin("4"))),
    "one by a claim, one from a device plugin": extended(limited(gpu="2", nic="1"), nodes=(NIC_NODE,)),
    "one by a claim, one in use": extended(
        limited(gpu="2", nic="1"),
        nodes=(NIC_NODE, {**NODE, "metadata": {"name": "node-b"}}),
        pods=(runs("node-a", nic="1"),),
    ),
    "a quota of claims": extended(limited(gpu="2"), **quota("count/resourceclaims.resource.k8s.io", "0")),
    "a quota that the pod is charged to already": extended(
        limited(gpu="2"), **quota(f"requests.{GPU}", "2", "2")
    ),
    "a quota of claims, and a device plugin": extended(
        limited(gpu="2"), nodes=(NODE, with_plugin("4")), **quota(DEVICES, "0")
    ),
}


def gang(*labels: str) -> Later:
    """A pod of a gang that has a channel asks for a GPU too; the nodes have these labels."""
    expression = {"key": CLIQUE_LABEL, "operator": "In", "values": [CLIQUE]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    given = {"request": "channel", "driver": CHANNELS_DRIVER_NAME, "pool": CLIQUE, "device": "channel-3"}
    allocation = {"devices": {"results": [given]}, "nodeSelector": selector}
    channel = claim(
        "gang", allocation=allocation, reservedFor=[{"resource": "pods", "name": "a", "uid": "a"}]
    )
    nodes = [
        {"metadata": {"name": name, "labels": {CLIQUE_LABEL: label}}, "spec": {}}
        for name, label in zip(("node-a", "node-b"), labels, strict=True)
    ]
    asks = [{"name": one, "resourceClaimName": one} for one in ("gang", "mine")]
    waiting = pod(resourceClaims=asks)
    waiting["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gang"}, {"name": "mine"}]}
    both = slices() + plan_node("gb200-tray", "node-b", None).slices
    used = [held(f"used-{number}", one) for number, one in enumerate(GPUS)]
    return of_pod(waiting, nodes=nodes, slices=both, claims=(channel, claim(), *used))


def without_channel() -> Later:
    """A claim for a channel, where eight gangs have those of the clique of both nodes."""
    names = [f"channel-{number}" for number in range(1, 9)]
    given = {"request": "channel", "driver": CHANNELS_DRIVER_NAME, "pool": CLIQUE}
    gangs = [
        claim(f"gang-{name}", allocation={"devices": {"results": [{**given, "device": name}]}})
        for name in names
    ]
    channels = {
        "metadata": {"name": "channels"},
        "spec": {
            "driver": CHANNELS_DRIVER_NAME,
            "pool": {"name": CLIQUE, "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": [{"name": name} for name in names],
        },
    }
    selector = {"cel": {"expression": f"device.driver == '{CHANNELS_DRIVER_NAME}'"}}
    of_channels = {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}
    state = {"nodes": (NODE, NODE_B), "slices": (channels,), "classes": (of_channels,)}
    return of_claim(claim(), **state, claims=gangs)


GANGS = {
    "without a channel": without_channel(),
    "in a clique that is full": gang(CLIQUE, "other"),
    "in a clique with room": gang("other", CLIQUE),
    "in a clique that is gone": gang("other", "other"),
}
GROUPS = {
    "claims": CLAIMS,
    "counters": COUNTERS,
    "extended resources": EXTENDED,
    "gangs": GANGS,
    "memory limits": LIMITS,
    "pods": PODS,
    "pods on nodes": PLACED,
}


@pytest.mark.parametrize("group", GROUPS)
def test_this_is_said_in_each_situation(group: str) -> None:
    texts = [f"## {name}\n{shown(build())}\n" for name, build in GROUPS[group].items()]

    approve(f"explain/findings-of-{group.replace(' ', '-')}", "\n".join(texts))
