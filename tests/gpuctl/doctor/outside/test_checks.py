"""Each check from outside finds what it is for, and is content with a cluster in which all is well."""

from __future__ import annotations

import base64
import copy
import dataclasses
from typing import Any

import pytest

from driver.devices import taints
from gpuctl.cli.unread import Unread
from gpuctl.doctor.outside.admission import MONITORING
from gpuctl.doctor.outside.checks import OUTSIDE
from tests.gpuctl.approved import approve
from tests.gpuctl.doctor.clusters import (
    AUTHORITY,
    DAY_SECONDS,
    DAYS_LEFT,
    INSISTING,
    NODE,
    NOW,
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
    with_limits,
)
from tests.gpuctl.doctor.said import blamed, said
from tests.gpuctl.explain.test_hidden import mixed_claim, mixed_pod
from tests.gpuctl.fleet.published import claim as held_claim

CHECKS = {check.name: check for check in OUTSIDE}
WELL = well_cluster()


def changed_slices(**spec: Any) -> tuple[dict[str, Any], ...]:
    """The slices of the well cluster with other fields in the first."""
    slices: Any = copy.deepcopy(WELL.slices)
    slices[0]["spec"] |= spec
    return tuple(slices)


def with_device(**fields: Any) -> tuple[dict[str, Any], ...]:
    """The slices of the well cluster with other fields in the first device."""
    slices: Any = copy.deepcopy(WELL.slices)
    slices[0]["spec"]["devices"][0] |= fields
    return tuple(slices)


def with_attribute(name: str, value: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The slices of the well cluster with another value of an attribute in the second device."""
    slices: Any = copy.deepcopy(WELL.slices)
    slices[0]["spec"]["devices"][1]["attributes"][name] = value
    return tuple(slices)


BY_DRIVER = device_class("device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('5.0.0'))")


def all_tainted() -> tuple[dict[str, Any], ...]:
    slices: Any = copy.deepcopy(WELL.slices)
    for one in slices:
        for device in one["spec"].get("devices") or ():
            device["taints"] = [{"key": taints.TAINT_BLOCKED, "effect": "NoSchedule"}]
    return tuple(slices)


def without_right(rights: Any) -> dict[Any, bool]:
    """The rights but for the first."""
    first, *others = rights
    return {first: False, **dict.fromkeys(others, True)}


def an_account_lacks_a_right() -> dict[str, Any]:
    first, *others = WELL.account_rights.items()
    return {first[0]: without_right(first[1]), **dict(others)}


def restarted(seconds_ago: float = 1800) -> dict[str, Any]:
    made = driver_pod("controller")
    last = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": ago(seconds_ago)}
    made["status"]["containerStatuses"] = [status_of(2) | {"lastState": {"terminated": last}}]
    return made


def cannot_run() -> dict[str, Any]:
    made = driver_pod("controller")
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}
    made["status"]["containerStatuses"] = [status_of(9, waiting=waiting)]
    return made


def unready(node_name: str) -> dict[str, Any]:
    made = driver_pod("controller", node_name=node_name)
    made["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "no plugin"}]
    return made


def mounting(path: str) -> dict[str, Any]:
    return pod("sees", volumes=[{"name": "host", "hostPath": {"path": path}}])


def annotated(key: str, value: str) -> dict[str, Any]:
    """A pod with a claim, and an annotation that may get it more."""
    made = pod("sees", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    made["metadata"]["annotations"] = {key: value}
    return made


HELD_ELSEWHERE = held_claim("train", "gpu-0000-1b-00-0", node="node-b")


def capacity(amount: str) -> dict[str, Any]:
    made = node()
    made["status"]["capacity"]["nvidia.com/gpu"] = amount
    return made


def other_driver(**spec: Any) -> dict[str, Any]:
    pool = {"name": f"{NODE}/gpu.nvidia.com", "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": "theirs"}, "spec": {"driver": "nic.example.com", "pool": pool, **spec}}


def warned_policies() -> tuple[dict[str, Any], ...]:
    policies: Any = copy.deepcopy(WELL.policies)
    told = {"fieldRef": "spec.validations[0].expression", "warning": "undefined field 'nodeNames'"}
    policies[0]["status"] = {"typeChecking": {"expressionWarnings": [told]}}
    return tuple(policies)


def failing_hard() -> dict[str, Any]:
    item = webhook()
    item["webhooks"][0]["failurePolicy"] = "Fail"
    return item


def expired() -> str:
    """An authority that has expired."""
    body = base64.b64decode("".join(AUTHORITY.splitlines()[1:-1])).replace(b"361120145052Z", b"271120145052Z")
    return f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(body).decode()}-----END CERTIFICATE-----\n"


def without_bundle(bundle: bytes | None) -> dict[str, Any]:
    item = webhook()
    if bundle is None:
        del item["webhooks"][0]["clientConfig"]["caBundle"]
    else:
        item["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
    return item


def by_right() -> tuple[dict[str, Any], ...]:
    """Pods that asked for GPUs, see none, or are the driver's."""
    asked = pod("asked", containers=[VISIBLE], resourceClaims=[{"name": "gpu"}])
    limited = pod("limited", containers=[VISIBLE | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}])
    void = pod("void", containers=[VISIBLE | {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}])
    elsewhere = pod("elsewhere", containers=[VISIBLE], nodeName="plain")
    privileged = pod("cni", containers=[{"name": "m", "securityContext": {"privileged": True}}])
    agent = mounting("/run/containerd/containerd.sock")
    card = annotated("cdi.k8s.io/a", "nic.example.com/p=1")
    return (asked, limited, void, elsewhere, privileged, driver_pod("mps"), agent, card)


OWN: Any = WELL.classes
POLICIES: Any = WELL.policies
SELECTS_NOTHING = device_class("device.driver == 'gpu.nvidia.com' && 1 == 2", "none")
ASKED = {"classes": (INSISTING,), "claims": (waiting_claim("held"),)}
VISIBLE = {"name": "main", "image": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
UNREADABLE = Unread("this user may not look")

NOT_PREPARED = event("PrepareWaits", 60)
NOT_PREPARED["involvedObject"]["uid"] = "uid-of-claim"
WANTED = {
    "metadata": {"name": "c", "uid": "uid-of-claim"},
    "status": {"reservedFor": [{"uid": "uid"}]},
}
WAITING, STARTED = (
    {"claims": (WANTED,), "pods": ({**pod("p"), "metadata": {"uid": "uid"}, "status": {"phase": phase}},)}
    for phase in ("Pending", "Running")
)
"""A claim whose pod waits for it, or has started."""

NEEDS = {
    "nodes": {"nodes", "published", "device-plugin"},
    "slices": {"published", "pools", "taints", "class-devices", "device-plugin", "unasked-gpus"},
    "classes": {"classes", "class-devices"},
    "claims": {"claim-limits", "deleted-claims", "hidden-devices"},
    "pods": {"driver-pods", "unasked-gpus", "deleted-claims", "hidden-devices"},
    "daemon_sets": {"workloads"},
    "deployments": {"workloads"},
    "webhooks": {"webhook"},
    "webhook_answer": {"webhook"},
    "dropped_fields": {"feature-gates"},
    "policies": {"policies"},
    "bindings": {"policies"},
    "events": {"warnings"},
}
"""What is looked at, and the checks that cannot be made without it."""

ROWS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in CHECKS),
    ("server-version", {"server_version": {"gitVersion": "v1.35.9"}}),
    ("server-version", {"server_version": {"gitVersion": "unknown"}}),
    ("nodes", {"nodes": (node(kubelet="v1.35.2"),)}),
    ("nodes", {"nodes": (node(runtime="containerd://1.6.30"),)}),
    ("nodes", {"nodes": (node(runtime="docker://27.0.1"),)}),
    ("nodes", {"nodes": (node(runtime="cri-o://1.22.0"),)}),
    ("nodes", {"nodes": (node(runtime="containerd://1.7.27"),)}),
    ("nodes", {"nodes": (node(runtime="own://3.0"),)}),
    ("api", {"dra_resources": ("deviceclasses", "resourceclaims")}),
    ("api", {"dra_resources": Unread("not found")}),
    ("feature-gates", {"dropped_fields": frozenset({"taints"})}),
    ("feature-gates", {"dropped_fields": UNREADABLE}),
    ("feature-gates", {"features": {"DRADeviceTaints": False}}),
    ("feature-gates", {"features": {"ResourceHealthStatus": False}}),
    ("feature-gates", {"features": {}}),
    ("own-rights", {"own_rights": without_right(WELL.own_rights)}),
    ("driver-rights", {"account_rights": an_account_lacks_a_right()}),
    ("driver-rights", {"account_rights": {"gpu-dra/x": UNREADABLE}}),
    ("workloads", {"daemon_sets": (), "slices": ()}),
    ("workloads", {"daemon_sets": ()}),
    ("workloads", {"daemon_sets": (), "pods": ()}),
    ("workloads", {"daemon_sets": (), "pods": (), "slices": ()}),
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
    ("published", {"pods": (driver_pod("kubeletplugin"), driver_pod("kubeletplugin", node_name="plain"))}),
    ("published", {"pods": (driver_pod("kubeletplugin", node_name="plain"),)}),
    ("published", {"nodes": ()}),
    (
        "pools",
        {
            "slices": changed_slices(
                pool={"name": f"{NODE}/gpu.nvidia.com", "generation": 3, "resourceSliceCount": 9}
            )
        },
    ),
    ("pools", {"slices": changed_slices(pool={"name": NODE, "resourceSliceCount": 1})}),
    ("pools", {"slices": (*changed_slices(), other_driver(nodeName=NODE))}),
    ("taints", {"slices": with_device(taints=[{"key": taints.TAINT_LOST, "effect": "NoSchedule"}])}),
    ("classes", {"classes": ()}),
    ("classes", {"classes": (device_class("device.driver == 'gpu.nvidia.com' &&"),)}),
    (
        "classes",
        {"classes": (device_class("device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"),)},
    ),
    ("classes", {"slices": with_attribute("driverVersion", {"int": 1}), "classes": (BY_DRIVER,)}),
    (
        "class-devices",
        {
            "classes": (SELECTS_NOTHING,),
            "claims": (waiting_claim("none"),),
        },
    ),
    ("class-devices", {"classes": (INSISTING,), "claims": (waiting_claim("held"),)}),
    (
        "class-devices",
        {
            "classes": (INSISTING,),
            "claims": (waiting_claim("held"),),
            "slices": with_limits("memoryLimitsWithheld", "cgroup v1"),
        },
    ),
    ("class-devices", {"classes": (INSISTING,), "slices": ()}),
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
    ("webhook", {"webhooks": (failing_hard(),)}),
    ("webhook", {"webhooks": ()}),
    ("webhook", {"now": NOW + (DAYS_LEFT - 10) * DAY_SECONDS}),
    ("webhook", {"now": NOW + (DAYS_LEFT + 1) * DAY_SECONDS}),
    ("webhook", {"webhooks": (without_bundle(None),)}),
    ("webhook", {"webhooks": (without_bundle(b"nothing"),)}),
    ("webhook", {"webhooks": (webhook(expired()),)}),
    ("webhook", {"webhooks": (webhook(expired() + AUTHORITY),)}),
    ("webhook", {"endpoint_slices": (endpoints(ready=False),)}),
    ("webhook", {"services": ()}),
    ("webhook", {"webhook_answer": "stored"}),
    ("device-plugin", {"nodes": (capacity("8"),)}),
    ("device-plugin", {"nodes": (capacity("8"),), "slices": all_tainted()}),
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
    *((name, {"nodes": (), "slices": ()}) for name in sorted(NEEDS["nodes"] | NEEDS["slices"])),
    ("warnings", {"events": (event("GpuWithheld", 4000),)}),
    *(("warnings", {"events": (NOT_PREPARED,), **parts}) for parts in ({}, WAITING, STARTED)),
    ("driver-pods", {"pods": (restarted(4000),)}),
    ("unasked-gpus", {"pods": by_right()}),
    (
        "class-devices",
        {"classes": (*OWN, device_class("device.driver == 'gpu.nvidia.com' && 1 == 2", "none"))},
    ),
    ("class-devices", {"classes": (INSISTING,)}),
    ("class-devices", {**ASKED, "slices": with_limits("memoryIsolation", "cgroup")}),
    ("class-devices", {**ASKED, "slices": with_limits("memoryLimits", "cgroup")}),
    ("claim-limits", {"claims": (told_claim("True"), waiting_claim("held"))}),
]


def test_the_checks_say_what_is_wrong() -> None:
    text = said(CHECKS, well_cluster(), ROWS)

    approve("doctor/outside", text)
    assert blamed(text) == CHECKS.keys()


@pytest.mark.parametrize(("part", "checks"), NEEDS.items(), ids=NEEDS)
def test_what_may_not_be_read_is_not_ok(part: str, checks: set[str]) -> None:
    unread: dict[str, Any] = {part: UNREADABLE}
    seen = dataclasses.replace(well_cluster(), **unread)

    found = {name: check.look(seen) for name, check in CHECKS.items()}

    assert {name for name, one in found.items() if one.status == "skipped"} == checks
    assert {found[name].message for name in checks} == {UNREADABLE.why}
    assert {one.status for name, one in found.items() if name not in checks} == {"ok"}
