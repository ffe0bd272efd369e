"""Each check from outside finds what it is for, and is content with a cluster in which all is well."""

import base64
import copy
import dataclasses
from typing import Any

from gpuctl.doctor.outside.admission import MONITORING
from gpuctl.doctor.outside.checks import OUTSIDE
from tests.clusters import Object, Unread
from tests.gpuctl.approved import approve
from tests.gpuctl.doctor.clusters import (
    AUTHORITY,
    DAY_SECONDS,
    DAYS_LEFT,
    GPU_LABEL,
    INSISTING,
    NODE,
    NOW,
    PROGRAMS,
    ago,
    daemon_set,
    device_class,
    driver_pod,
    endpoints,
    event,
    node,
    pod,
    status_of,
    told_claim,
    waiting_claim,
    webhook,
    well_cluster,
)
from tests.gpuctl.doctor.said import blamed, said
from tests.gpuctl.explain.test_hidden import mixed_claim, mixed_pod
from tests.gpuctl.fleet.published import claim as held_claim
from tests.gpus import taints

CHECKS = {check.name: check for check in OUTSIDE}
WELL = well_cluster()
POOL = {"name": f"{NODE}/gpu.nvidia.com", "generation": 1, "resourceSliceCount": 1}


def changed_slices(**spec: Any) -> tuple[Object, ...]:
    """The slices of the well cluster with other fields in the first."""
    slices: Any = copy.deepcopy(WELL.slices)
    slices[0]["spec"] |= spec
    return tuple(slices)


def with_attribute(name: str, **value: Any) -> tuple[Object, ...]:
    """The slices of the well cluster with another value of an attribute in the first device."""
    slices: Any = copy.deepcopy(WELL.slices)
    slices[0]["spec"]["devices"][0]["attributes"][name] = value
    return tuple(slices)


def tainted(key: str, most: int | None = None) -> tuple[Object, ...]:
    """The slices of the well cluster, of which the first devices have a taint."""
    slices: Any = copy.deepcopy(WELL.slices)
    for device in slices[0]["spec"]["devices"][:most]:
        device["taints"] = [{"key": key, "effect": "NoSchedule"}]
    return tuple(slices)


BY_DRIVER = device_class("device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('5.0.0'))")


def without_right(rights: Any) -> dict[Any, bool]:
    """The rights but for the first."""
    first, *others = rights
    return {first: False, **dict.fromkeys(others, True)}


def an_account_lacks_a_right() -> Object:
    first, *others = WELL.account_rights.items()
    return {first[0]: without_right(first[1]), **dict(others)}


def restarted(seconds_ago: float = 1800) -> Object:
    made = driver_pod("controller")
    last = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": ago(seconds_ago)}
    made["status"]["containerStatuses"] = [status_of(2) | {"lastState": {"terminated": last}}]
    return made


def cannot_run() -> Object:
    made = driver_pod("controller")
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}
    made["status"]["containerStatuses"] = [status_of(9, waiting=waiting)]
    return made


def unready(node_name: str) -> Object:
    made = driver_pod("controller", node_name=node_name)
    made["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "no plugin"}]
    return made


def healthy(device: str) -> Object:
    return event("GpuWell", 60, f"{device} is healthy again", "ResourceClaim")


def mounting(path: str) -> Object:
    return pod("sees", volumes=[{"name": "host", "hostPath": {"path": path}}])


def annotated(key: str, value: str) -> Object:
    """A pod with a claim, and an annotation that may get it more."""
    made = pod("sees", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    made["metadata"]["annotations"] = {key: value}
    return made


HELD_ELSEWHERE = held_claim("train", "gpu-0000-1b-00-0", node="node-b")


def capacity(amount: str) -> Object:
    made = node()
    made["status"]["capacity"]["nvidia.com/gpu"] = amount
    return made


def other_driver(**spec: Any) -> Object:
    return {"metadata": {"name": "theirs"}, "spec": {"driver": "nic.example.com", "pool": POOL, **spec}}


def warned_policies() -> tuple[Object, ...]:
    policies: Any = copy.deepcopy(WELL.policies)
    told = {"fieldRef": "spec.validations[0].expression", "warning": "undefined field 'nodeNames'"}
    policies[0]["status"] = {"typeChecking": {"expressionWarnings": [told]}}
    return tuple(policies)


def changed_webhook(**fields: Any) -> Object:
    item = webhook()
    item["webhooks"][0] |= fields
    return item


def expired() -> str:
    """An authority that has expired."""
    body = base64.b64decode("".join(AUTHORITY.splitlines()[1:-1])).replace(b"361120145052Z", b"271120145052Z")
    return f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(body).decode()}-----END CERTIFICATE-----\n"


def by_right() -> tuple[Object, ...]:
    """Pods that asked for GPUs, see none, or are the driver's."""
    asked = pod("asked", containers=[VISIBLE], resourceClaims=[{"name": "gpu"}])
    limited = pod("limited", containers=[VISIBLE | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}])
    void = pod("void", containers=[VISIBLE | {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}])
    elsewhere = pod("elsewhere", containers=[VISIBLE], nodeName="plain")
    privileged = pod("cni", containers=[{"name": "m", "securityContext": {"privileged": True}}])
    agent = mounting("/run/containerd/containerd.sock")
    card = annotated("cdi.k8s.io/a", "nic.example.com/p=1")
    return (asked, limited, void, elsewhere, privileged, driver_pod("mps"), agent, card)


WITHOUT_BUNDLE = {"service": webhook()["webhooks"][0]["clientConfig"]["service"]}
OWN: Any = WELL.classes
POLICIES: Any = WELL.policies
SELECTS_NOTHING = device_class("device.driver == 'gpu.nvidia.com' && 1 == 2", "none")
ASKED = {"classes": (INSISTING,), "claims": (waiting_claim("held"),)}
VISIBLE = {"name": "main", "image": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
UNREADABLE = Unread("this user may not look")

NOT_PREPARED = event("PrepareWaits", 60)
NOT_PREPARED["involvedObject"]["uid"] = "uid-of-claim"
WANTED = {"metadata": {"name": "c", "uid": "uid-of-claim"}, "status": {"reservedFor": [{"uid": "uid"}]}}
WAITING, STARTED = (
    {"claims": (WANTED,), "pods": ({**pod("p"), "metadata": {"uid": "uid"}, "status": {"phase": phase}},)}
    for phase in ("Pending", "Running")
)
"""A claim whose pod waits for it, or has started."""

ONLY_OTHERS = [
    {"matchExpressions": [{"key": "gpu-dra", "operator": "In", "values": ["yes"]}]},
    {
        "matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["4"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-c"]}],
    },
]
EXCLUDING = (
    daemon_set("controller", nodeSelector={"pool": "train"}),
    daemon_set(
        "kubeletplugin",
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": ONLY_OTHERS}
            }
        },
    ),
    daemon_set("mps", nodeSelector={GPU_LABEL: "true"}),
)
"""DaemonSets of which the first two exclude every node."""

LOST = "GPU 0000:1b:00.0: XID 95"
OVER = "GPU 0000:1b:00.0: no longer true: XID 95"
SICK = event("GpuSick", 120, f"{LOST}: reset the GPU; it gets no new pods (taint gpu.nvidia.com/xid=95)")
CLAIM = {"metadata": {"name": "c", "uid": "uid"}}
SICK_CLAIM = (event("GpuSick", 120, "gpu-a: XID 95; reset it; gpu-b: XID 79", "ResourceClaim"),)
"""Faults of a node, and of a claim with two devices."""

PARTS = (
    *("nodes", "slices", "classes", "claims", "pods", "daemon_sets", "deployments", "webhooks"),
    *("webhook_answer", "dropped_fields", "policies", "bindings", "events"),
)
"""What may not be readable."""
OF_GPUS = (*("class-devices", "device-plugin", "nodes", "pools", "published", "taints", "unasked-gpus"),)
"""The checks that need nodes and slices."""

ROWS: list[tuple[str, Object]] = [
    *((name, {}) for name in CHECKS),
    ("server-version", {"server_version": {"gitVersion": "v1.35.9"}}),
    ("server-version", {"server_version": {"gitVersion": "unknown"}}),
    ("nodes", {"nodes": (node(kubelet="v1.35.2"),)}),
    ("nodes", {"nodes": (node(runtime="containerd://1.6.30"),)}),
    ("nodes", {"nodes": (node(runtime="cri-o://1.22.0"),)}),
    ("nodes", {"nodes": (node(runtime="containerd://1.7.27"),)}),
    ("api", {"dra_resources": ("deviceclasses", "resourceclaims")}),
    ("api", {"dra_resources": Unread("not found")}),
    ("feature-gates", {"dropped_fields": frozenset({"taints"})}),
    ("feature-gates", {"features": {"DRADeviceTaints": False}}),
    ("feature-gates", {"features": {"ResourceHealthStatus": False}}),
    ("own-rights", {"own_rights": without_right(WELL.own_rights)}),
    ("driver-rights", {"account_rights": an_account_lacks_a_right()}),
    ("workloads", {"daemon_sets": (), "slices": ()}),
    ("workloads", {"daemon_sets": ()}),
    ("workloads", {"daemon_sets": (), "pods": ()}),
    ("workloads", {"daemon_sets": (daemon_set("controller"), daemon_set("kubeletplugin", ready=0))}),
    ("workloads", {"daemon_sets": (daemon_set("controller"), daemon_set("controller", namespace="other"))}),
    ("driver-pods", {"pods": (driver_pod("controller"), driver_pod("mps", image="older"))}),
    ("driver-pods", {"pods": (cannot_run(),)}),
    ("driver-pods", {"pods": (restarted(),)}),
    ("warnings", {"events": (event("GpuWithheld", 60),)}),
    ("published", {"nodes": (node(), node("node-b"))}),
    ("published", {"nodes": (), "slices": ()}),
    ("published", {"pods": (unready("node-b"),)}),
    ("published", {"claims": (HELD_ELSEWHERE,)}),
    ("published", {"pods": (*map(driver_pod, PROGRAMS), driver_pod("mps", node_name="node-b"))}),
    (
        "published",
        {"pods": (*map(driver_pod, PROGRAMS), *(driver_pod(one, node_name="plain") for one in PROGRAMS))},
    ),
    ("published", {"pods": tuple(driver_pod(one, node_name="plain") for one in PROGRAMS)}),
    ("published", {"nodes": (node(), node("node-b")), "daemon_sets": EXCLUDING}),
    (
        "published",
        {"pods": tuple(driver_pod(one, node_name="plain") for one in PROGRAMS), "daemon_sets": EXCLUDING},
    ),
    ("pools", {"slices": changed_slices(pool={**POOL, "generation": 3, "resourceSliceCount": 9})}),
    ("pools", {"slices": changed_slices(pool={"name": NODE, "resourceSliceCount": 1})}),
    ("pools", {"slices": (*changed_slices(), other_driver(nodeName=NODE))}),
    ("taints", {"slices": tainted(taints.TAINT_LOST, 1)}),
    ("classes", {"classes": ()}),
    ("classes", {"classes": (device_class("device.driver == 'gpu.nvidia.com' &&"),)}),
    ("classes", {"classes": (device_class("device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"),)}),
    ("classes", {"slices": with_attribute("driverVersion", int=1), "classes": (BY_DRIVER,)}),
    ("class-devices", {"classes": (SELECTS_NOTHING,), "claims": (waiting_claim("none"),)}),
    ("class-devices", ASKED),
    ("class-devices", {**ASKED, "slices": with_attribute("memoryLimitsWithheld", string="cgroup v1")}),
    ("claim-limits", {"claims": (told_claim("False"),)}),
    ("policies", {"policies": POLICIES[1:]}),
    ("policies", {"bindings": ()}),
    (
        "policies",
        {
            "classes": ({"metadata": {"name": "monitoring"}, "spec": {}},),
            "policies": [one for one in POLICIES if one["metadata"]["name"] != MONITORING],
        },
    ),
    ("policies", {"account_rights": {"other/gpu-dra-controller": {}}}),
    ("policies", {"policies": warned_policies()}),
    ("webhook", {"webhooks": (changed_webhook(failurePolicy="Fail"),)}),
    ("webhook", {"webhooks": ()}),
    ("webhook", {"now": NOW + (DAYS_LEFT - 10) * DAY_SECONDS}),
    ("webhook", {"now": NOW + (DAYS_LEFT + 1) * DAY_SECONDS}),
    ("webhook", {"webhooks": (changed_webhook(clientConfig=WITHOUT_BUNDLE),)}),
    ("webhook", {"webhooks": (webhook("nothing"),)}),
    ("webhook", {"webhooks": (webhook(expired()),)}),
    ("webhook", {"webhooks": (webhook(expired() + AUTHORITY),)}),
    ("webhook", {"endpoint_slices": (endpoints(ready=False),)}),
    ("webhook", {"webhook_answer": "stored"}),
    ("device-plugin", {"nodes": (capacity("8"),)}),
    ("device-plugin", {"nodes": (capacity("8"),), "slices": tainted(taints.TAINT_BLOCKED)}),
    ("unasked-gpus", {"pods": (pod("sees", containers=[VISIBLE]),)}),
    ("unasked-gpus", {"pods": (pod("sees", ephemeralContainers=[VISIBLE]),)}),
    ("unasked-gpus", {"pods": (pod("sees", runtimeClassName="nvidia"),)}),
    *(("unasked-gpus", {"pods": (mounting(path),)}) for path in ("/dev/", "/", "/dev/nvidia0")),
    *(
        ("unasked-gpus", {"pods": (annotated(key, value),)})
        for key, value in (
            ("nvidia.cdi.k8s.io/container.main", "management.nvidia.com/gpu=all"),
            ("cdi.k8s.io/any", "nvidia.com/gpu=0"),
            ("cdi-devices.noderesource.dev/container.main", "- nvidia.com/gpu=all"),
            ("devices.nri.io/pod", "- path: /dev/nvidia0"),
            ("io.kubernetes.cri-o.Devices", "/dev/nvidia0:/dev/nvidia0:rw"),
        )
    ),
    (
        "deleted-claims",
        {"pods": (pod("stole", resourceClaims=[{"name": "gpu", "resourceClaimName": "lost"}]),)},
    ),
    ("hidden-devices", {"pods": (mixed_pod(),), "claims": (mixed_claim(),)}),
    *((name, {"nodes": (), "slices": ()}) for name in OF_GPUS),
    ("warnings", {"events": (event("GpuWithheld", 4000),)}),
    ("warnings", {"events": (SICK, event("GpuWell", 60, OVER))}),
    ("warnings", {"events": (SICK, event("GpuWell", 60, "GPU 0000:1b:00.0: no longer true: XID 9"))}),
    ("warnings", {"events": (SICK, event("GpuWell", 200, OVER))}),
    ("warnings", {"events": SICK_CLAIM, "claims": (CLAIM,)}),
    ("warnings", {"events": (*SICK_CLAIM, healthy("gpu-a")), "claims": (CLAIM,)}),
    ("warnings", {"events": (*SICK_CLAIM, healthy("gpu-a"), healthy("gpu-b")), "claims": (CLAIM,)}),
    ("warnings", {"events": SICK_CLAIM}),
    ("warnings", {"events": (event("GpuWithheld", 90), event("GpuSick", 80), event("GpuWithheld", 60))}),
    *(("warnings", {"events": (NOT_PREPARED,), **parts}) for parts in ({}, WAITING, STARTED)),
    ("driver-pods", {"pods": (restarted(4000),)}),
    ("unasked-gpus", {"pods": by_right()}),
    ("class-devices", {"classes": (*OWN, SELECTS_NOTHING)}),
    ("class-devices", {"classes": (INSISTING,)}),
    ("class-devices", {**ASKED, "slices": with_attribute("memoryIsolation", string="cgroup")}),
    ("class-devices", {**ASKED, "slices": with_attribute("memoryLimits", string="cgroup")}),
    ("claim-limits", {"claims": (told_claim("True"), waiting_claim("held"))}),
]


def test_the_checks_say_what_is_wrong() -> None:
    text = said(CHECKS, well_cluster(), ROWS)

    approve("doctor/outside", text)
    assert blamed(text) == CHECKS.keys()


def test_what_may_not_be_read_is_not_ok() -> None:
    told = []
    for part in PARTS:
        unread: Object = {part: UNREADABLE}
        seen = dataclasses.replace(WELL, **unread)
        found = {name: check.look(seen) for name, check in CHECKS.items()}
        other = [
            f"{name} is {one.status}: {one.message}" for name, one in found.items() if one.status != "ok"
        ]
        told.append("\n  ".join((f"without {part}", *other)))

    approve("doctor/unread", "\n".join((*told, "")))
