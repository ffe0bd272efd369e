"""Each check from outside finds what it is for, and is content with a cluster in which all is well."""

from __future__ import annotations

import base64
import copy
import dataclasses
from typing import Any

import pytest

from driver.devices import taints
from gpuctl.doctor.check import Finding
from gpuctl.doctor.outside.admission import MONITORING
from gpuctl.doctor.outside.checks import OUTSIDE
from gpuctl.doctor.outside.seen import Unread, WebhookAnswer
from tests.gpuctl.doctor.clusters import (
    AUTHORITY,
    DAY_SECONDS,
    DAYS_LEFT,
    INSISTING,
    NAMESPACE,
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
from tests.gpuctl.explain.test_hidden import mixed_claim, mixed_pod
from tests.gpuctl.fleet.published import claim as held_claim

CHECKS = {check.name: check for check in OUTSIDE}
WELL = well_cluster()


def look(name: str, **broken: Any) -> Finding:
    """What a check finds where these parts of the cluster are other than in a well one."""
    return CHECKS[name].look(dataclasses.replace(well_cluster(), **broken))


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


def without_bundle(bundle: bytes | None) -> dict[str, Any]:
    item = webhook()
    if bundle is None:
        del item["webhooks"][0]["clientConfig"]["caBundle"]
    else:
        item["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
    return item


VISIBLE = {"name": "main", "image": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
UNREADABLE = Unread("this user may not look")

NEEDS = {
    "nodes": {"kubelets", "runtimes", "published", "gone-nodes", "device-plugin"},
    "slices": {"published", "gone-nodes", "pools", "pool-names", "taints", "class-devices", "class-limits"}
    | {"device-plugin", "unasked-gpus"},
    "classes": {"classes", "class-selectors", "class-devices", "class-limits"},
    "claims": {"claim-limits", "deleted-claims", "hidden-devices"},
    "pods": {"images", "restarts", "unasked-gpus", "deleted-claims", "hidden-devices"},
    "daemon_sets": {"workloads", "releases"},
    "deployments": {"workloads"},
    "webhooks": {"webhook", "webhook-authority", "webhook-endpoints", "webhook-answers"},
    "services": {"webhook-endpoints"},
    "endpoint_slices": {"webhook-endpoints"},
    "policies": {"policies", "policy-accounts", "policy-expressions"},
    "bindings": {"policies"},
    "events": {"warnings"},
}
"""What is looked at, and the checks that cannot be made without it."""

BROKEN: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "server-version",
        {"server_version": {"gitVersion": "v1.35.9"}},
        "fail",
        "the oldest supported version is 1.36",
    ),
    ("server-version", {"server_version": {"gitVersion": "unknown"}}, "skipped", "returned no version"),
    ("kubelets", {"nodes": (node(kubelet="v1.35.2"),)}, "fail", f"{NODE}: kubelet v1.35.2"),
    ("runtimes", {"nodes": (node(runtime="containerd://1.6.30"),)}, "fail", "containerd://1.6.30"),
    ("runtimes", {"nodes": (node(runtime="docker://27.0.1"),)}, "fail", "docker://27.0.1"),
    ("runtimes", {"nodes": (node(runtime="cri-o://1.22.0"),)}, "fail", "cri-o://1.22.0"),
    ("runtimes", {"nodes": (node(runtime="containerd://1.7.27"),)}, "warn", "enable_cdi = true"),
    ("runtimes", {"nodes": (node(runtime="own://3.0"),)}, "warn", "own://3.0"),
    ("api", {"dra_versions": ("v1beta1",)}, "fail", "without v1"),
    ("api", {"dra_resources": ("deviceclasses", "resourceclaims")}, "fail", "resourceslices"),
    ("api", {"dra_versions": Unread("not found")}, "fail", "is not served"),
    ("slice-fields", {"dropped_fields": frozenset({"taints"})}, "fail", "DRADeviceTaints"),
    ("slice-fields", {"dropped_fields": UNREADABLE}, "skipped", "may not look"),
    ("feature-gates", {"features": {"DRADeviceTaints": False}}, "fail", "DRADeviceTaints"),
    ("feature-gates", {"features": {"ResourceHealthStatus": False}}, "warn", "status of pods"),
    ("feature-gates", {"features": {}}, "skipped", "do not list"),
    ("own-rights", {"own_rights": without_right(WELL.own_rights)}, "warn", "list nodes"),
    ("driver-rights", {"account_rights": an_account_lacks_a_right()}, "fail", "may not get nodes"),
    ("driver-rights", {"account_rights": {"gpu-dra/x": UNREADABLE}}, "skipped", "may not look"),
    ("workloads", {"daemon_sets": (), "slices": ()}, "fail", "gpu-dra-controller and gpu-dra-kubeletplugin"),
    ("workloads", {"daemon_sets": ()}, "warn", "outside of pods"),
    (
        "workloads",
        {"daemon_sets": (daemon_set("controller"), daemon_set("kubeletplugin", ready=0))},
        "fail",
        "gpu-dra/gpu-dra-kubeletplugin: 0 of 1 pods are ready",
    ),
    (
        "releases",
        {"daemon_sets": (daemon_set("controller"), daemon_set("controller", namespace="other"))},
        "fail",
        "other/gpu-dra-controller",
    ),
    (
        "images",
        {"pods": (driver_pod("controller"), driver_pod("mps", image="older"))},
        "warn",
        "older: 1 x mps",
    ),
    ("restarts", {"pods": (cannot_run(),)}, "fail", "CrashLoopBackOff back-off"),
    ("restarts", {"pods": (restarted(),)}, "warn", "OOMKilled, exit code 137, 2 times"),
    ("warnings", {"events": (event("GpuWithheld", 60),)}, "warn", "GpuWithheld: GPU 0 is not offered"),
    ("published", {"nodes": (node(), node("node-b"))}, "fail", "node-b"),
    ("published", {"nodes": (), "slices": ()}, "fail", "no node publishes GPUs"),
    ("published", {"pods": (unready("node-b"),)}, "fail", "node-b: its controller is not ready (no plugin)"),
    ("published", {"claims": (HELD_ELSEWHERE,)}, "fail", "node-b: claim team/train has a device there"),
    (
        "published",
        {"pods": (driver_pod("kubeletplugin"), driver_pod("kubeletplugin", node_name="plain"))},
        "warn",
        "plain",
    ),
    (
        "published",
        {"pods": (driver_pod("kubeletplugin", node_name="plain"),)},
        "fail",
        "its pods cannot get their GPUs node-a",
    ),
    ("gone-nodes", {"nodes": (node("node-b"),)}, "fail", NODE),
    (
        "pools",
        {
            "slices": changed_slices(
                pool={"name": f"{NODE}/gpu.nvidia.com", "generation": 3, "resourceSliceCount": 9}
            )
        },
        "fail",
        "of 9 slices of generation 3",
    ),
    (
        "pool-names",
        {"slices": changed_slices(pool={"name": NODE, "resourceSliceCount": 1})},
        "fail",
        "another",
    ),
    ("pool-names", {"slices": (*changed_slices(), other_driver(nodeName=NODE))}, "warn", "nic.example.com"),
    (
        "taints",
        {"slices": with_device(taints=[{"key": taints.TAINT_LOST, "effect": "NoSchedule"}])},
        "warn",
        "fell off the bus",
    ),
    ("classes", {"classes": ()}, "fail", "no DeviceClass"),
    (
        "class-selectors",
        {"classes": (device_class("device.driver == 'gpu.nvidia.com' &&"),)},
        "fail",
        "broken",
    ),
    (
        "class-selectors",
        {"classes": (device_class("device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"),)},
        "fail",
        "has no answer",
    ),
    (
        "class-selectors",
        {"slices": with_attribute("driverVersion", {"int": 1}), "classes": (BY_DRIVER,)},
        "fail",
        "broken: node-a/gpu-0000-43-00-0: the selector",
    ),
    (
        "class-devices",
        {
            "classes": (device_class("device.driver == 'gpu.nvidia.com' && 1 == 2", "none"),),
            "claims": (waiting_claim("none"),),
        },
        "warn",
        "none",
    ),
    (
        "class-limits",
        {"classes": (INSISTING,), "claims": (waiting_claim("held"),)},
        "warn",
        "node-a: driver 580.95.5 is older than R615",
    ),
    (
        "class-limits",
        {
            "classes": (INSISTING,),
            "claims": (waiting_claim("held"),),
            "slices": with_limits("memoryLimitsWithheld", "cgroup v1"),
        },
        "warn",
        "node-a: cgroup v1; driver 580",
    ),
    ("class-limits", {"classes": (INSISTING,), "slices": ()}, "skipped", "nothing is published"),
    ("claim-limits", {"claims": (told_claim("False"),)}, "fail", "team/lab, gpu-a: NVML lies"),
    ("policies", {"policies": WELL.policies[1:]}, "fail", "gpu-dra-own-slices: this policy does not exist"),  # type: ignore[index] # they were read
    ("policies", {"bindings": ()}, "fail", "no binding of it has the action Deny"),
    (
        "policies",
        {
            "classes": ({"metadata": {"name": "monitoring"}, "spec": {}},),
            "policies": [one for one in WELL.policies if one["metadata"]["name"] != MONITORING],  # type: ignore[union-attr] # they were read
        },
        "fail",
        "gpu-dra-monitoring-looks: this policy does not exist",
    ),
    (
        "policy-accounts",
        {"account_rights": {"other/gpu-dra-controller": {}}},
        "fail",
        "other/gpu-dra-controller",
    ),
    ("policy-expressions", {"policies": warned_policies()}, "warn", "undefined field"),
    ("webhook", {"webhooks": (failing_hard(),)}, "warn", "failurePolicy Fail"),
    ("webhook", {"webhooks": ()}, "skipped", "no webhook is configured"),
    ("webhook-authority", {"now": NOW + (DAYS_LEFT - 10) * DAY_SECONDS}, "warn", "expires in"),
    ("webhook-authority", {"now": NOW + (DAYS_LEFT + 1) * DAY_SECONDS}, "fail", "has expired"),
    ("webhook-authority", {"webhooks": (without_bundle(None),)}, "fail", "it has no caBundle"),
    ("webhook-authority", {"webhooks": (without_bundle(b"nothing"),)}, "fail", "is not a certificate"),
    ("webhook-endpoints", {"endpoint_slices": (endpoints(ready=False),)}, "fail", "no endpoint is ready"),
    (
        "webhook-endpoints",
        {"services": ()},
        "fail",
        f"{NAMESPACE}/gpu-dra-webhook: this Service does not exist",
    ),
    (
        "webhook-answers",
        {"webhook_answer": WebhookAnswer(denied_by_it=False, message="stored")},
        "fail",
        "does not deny",
    ),
    ("device-plugin", {"nodes": (capacity("8"),)}, "fail", "8 nvidia.com/gpu"),
    ("device-plugin", {"nodes": (capacity("8"),), "slices": all_tainted()}, "warn", "8 nvidia.com/gpu"),
    ("unasked-gpus", {"pods": (pod("sees", containers=[VISIBLE]),)}, "warn", "team/sees"),
    ("unasked-gpus", {"pods": (pod("sees", ephemeralContainers=[VISIBLE]),)}, "warn", "in container main"),
    ("unasked-gpus", {"pods": (pod("sees", runtimeClassName="nvidia"),)}, "warn", "the runtime class nvidia"),
    *(
        ("unasked-gpus", {"pods": (mounting(path),)}, "warn", f"the host's {shown}")
        for path, shown in (("/dev/", "/dev"), ("/", "/"), ("/dev/nvidia0", "/dev/nvidia0"))
    ),
    *(
        ("unasked-gpus", {"pods": (annotated(key, value),)}, "warn", f"the annotation {key}")
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
        "fail",
        "pod team/stole on",
    ),
    ("hidden-devices", {"pods": (mixed_pod(),), "claims": (mixed_claim(),)}, "fail", "p: container main"),
]


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_is_content_where_all_is_well(name: str) -> None:
    found = look(name)

    assert (found.status, found.way_out) == ("ok", ""), found


@pytest.mark.parametrize(
    ("name", "broken", "status", "says"), BROKEN, ids=[f"{one[0]}-{one[2]}-{one[3]}" for one in BROKEN]
)
def test_a_check_finds_what_it_is_for(name: str, broken: dict[str, Any], status: str, says: str) -> None:
    found = look(name, **broken)

    assert found.status == status, found
    assert says in " ".join((found.message, *found.details, found.way_out))
    assert found.way_out or status == "skipped"


def test_every_check_is_broken_by_a_test() -> None:
    assert {name for name, _, status, _ in BROKEN if status in ("warn", "fail")} == CHECKS.keys()


@pytest.mark.parametrize(("part", "checks"), NEEDS.items(), ids=NEEDS)
def test_what_may_not_be_read_is_not_ok(part: str, checks: set[str]) -> None:
    unread: dict[str, Any] = {part: UNREADABLE}
    seen = dataclasses.replace(well_cluster(), **unread)

    found = {name: check.look(seen) for name, check in CHECKS.items()}

    assert {name for name, one in found.items() if one.status == "skipped"} == checks
    assert {found[name].message for name in checks} == {UNREADABLE.why}
    assert {one.status for name, one in found.items() if name not in checks} == {"ok"}


def test_one_valid_authority_is_enough_while_another_replaces_it() -> None:
    body = base64.b64decode("".join(AUTHORITY.splitlines()[1:-1])).replace(b"361120145052Z", b"271120145052Z")
    old = f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(body).decode()}-----END CERTIFICATE-----\n"

    assert look("webhook-authority", webhooks=(webhook(old),)).status == "fail"
    assert look("webhook-authority", webhooks=(webhook(old + AUTHORITY),)).status == "ok"


@pytest.mark.parametrize(
    "name",
    [
        *("kubelets", "runtimes", "gone-nodes", "pools", "pool-names", "taints", "class-devices"),
        *("device-plugin", "unasked-gpus"),
    ],
)
def test_where_there_is_nothing_to_look_at_nothing_is_ok(name: str) -> None:
    assert look(name, nodes=(), slices=()).status == "skipped"


def test_an_old_warning_and_an_old_restart_are_past() -> None:
    assert look("warnings", events=(event("GpuWithheld", 4000),)).status == "ok"
    assert look("restarts", pods=(restarted(4000),)).status == "ok"


def test_pods_that_asked_and_those_of_the_driver_see_gpus_by_right() -> None:
    asked = pod("asked", containers=[VISIBLE], resourceClaims=[{"name": "gpu"}])
    limited = pod("limited", containers=[VISIBLE | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}])
    void = pod(
        "void", containers=[{"name": "m", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}]
    )
    elsewhere = pod("elsewhere", containers=[VISIBLE], nodeName="plain")
    privileged = pod("cni", containers=[{"name": "m", "securityContext": {"privileged": True}}])

    agent, card = (
        mounting("/run/containerd/containerd.sock"),
        annotated("cdi.k8s.io/a", "nic.example.com/p=1"),
    )

    pods = (asked, limited, void, elsewhere, privileged, driver_pod("mps"), agent, card)
    found = look("unasked-gpus", pods=pods)

    assert found.status == "ok"
    assert "2 pods can open every device" in found.message


def test_classes_that_select_nothing_are_told_and_are_no_fault_while_nobody_asks() -> None:
    none = device_class("device.driver == 'gpu.nvidia.com' && 1 == 2", "none")

    found = look("class-devices", classes=(*(WELL.classes if isinstance(WELL.classes, tuple) else ()), none))

    assert found.status == "ok"
    assert "no node offers devices for none" in found.message
