"""Valid pods, and cases made from them, each with one broken rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.conformance.area import Case
from tools.conformance.pods import changes as changes_of
from tools.conformance.validation.cases import changed

Object = dict[str, Any]

_TERM = {
    "matchExpressions": [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A100", "H100"]},
        {"key": "gpu", "operator": "Exists"},
        {"key": "gpu.count", "operator": "Gt", "values": ["2"]},
    ],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}],
}


def _metadata(name: str) -> Object:
    return {
        "name": name,
        "namespace": "default",
        "uid": "8a3ad7c8-2f0b-4b5e-8a43-26a76b4bd0a1",
        "resourceVersion": "7",
        "labels": {"app": "training", "example.com/team": "a"},
        "annotations": {"example.com/Note": "x", "controller.kubernetes.io/pod-deletion-cost": "-10"},
    }


def _main_container() -> Object:
    return {
        "name": "main",
        "image": "example.com/train:v1",
        "command": ["train"],
        "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 90, "hostPort": 90}],
        "env": [
            {"name": "A", "value": "b"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}},
            {"name": "MORE", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "key.name"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "map"}}, {"prefix": "S_", "secretRef": {"name": "secret"}}],
        "resources": {
            "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2"},
            "requests": {"cpu": "500m", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "2"},
            "claims": [{"name": "gpu"}, {"name": "shared", "request": "half"}],
        },
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch", "subPath": "a/b"},
            {"name": "host", "mountPath": "/host", "readOnly": True, "recursiveReadOnly": "Disabled"},
            {"name": "map", "mountPath": "/map", "mountPropagation": "HostToContainer"},
        ],
        "volumeDevices": [{"name": "disk", "devicePath": "/dev/disk"}],
    }


def _volumes() -> list[Object]:
    return [
        {"name": "scratch"},
        {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "host", "hostPath": {"path": "/var/lib", "type": "Directory"}},
        {"name": "map", "configMap": {"name": "map", "items": [{"key": "a", "path": "b/c", "mode": 256}]}},
        {"name": "secret", "secret": {"secretName": "secret"}},
        {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "weights", "image": {"reference": "example.com/weights"}},
    ]


def rich_pod() -> Object:
    """A valid pod that sets most fields."""
    side = {
        "name": "side",
        "image": "example.com/side",
        "restartPolicy": "Always",
        "livenessProbe": {"exec": {"command": ["true"]}},
        "resources": {"limits": {"memory": "128Mi"}},
    }
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    preference = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b c"]}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata("rich"),
        "spec": {
            "containers": [
                _main_container(),
                {
                    "name": "helper",
                    "image": "example.com/helper@sha256:" + "a" * 64,
                    "restartPolicy": "Never",
                    "restartPolicyRules": rules,
                },
            ],
            "initContainers": [
                {"name": "setup", "image": "setup:latest", "resources": {"claims": [{"name": "gpu"}]}},
                side,
            ],
            "volumes": _volumes(),
            "resourceClaims": [
                {"name": "gpu", "resourceClaimTemplateName": "one-gpu"},
                {"name": "shared", "resourceClaimName": "shared.claim"},
            ],
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "a", "value": "b"},
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10},
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 5, "preference": preference}
                    ],
                }
            },
            "readinessGates": [{"conditionType": "example.com/ready"}],
            "serviceAccountName": "trainer",
            "activeDeadlineSeconds": 3600,
            "priorityClassName": "high",
            "runtimeClassName": "nvidia",
            "preemptionPolicy": "Never",
            "hostname": "train",
            "subdomain": "jobs",
        },
    }


def _host_pod() -> Object:
    """A valid pod on the host network, with pod-level resources."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata("host"),
        "spec": {
            "nodeName": "node-1",
            "hostNetwork": True,
            "hostPID": True,
            "os": {"name": "linux"},
            "resources": {"requests": {"cpu": "100", "memory": "100Gi"}, "limits": {"memory": "200Gi"}},
            "containers": [
                {
                    "name": "main",
                    "image": "main:1",
                    "ports": [{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 90}],
                    "resources": {"limits": {"cpu": "1"}},
                }
            ],
        },
    }


def waiting_pod() -> Object:
    """A valid pod with scheduling gates, whose node affinity may still be narrowed."""
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}
    pages = {"hugepages-2Mi": "4Mi", "cpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata("waiting"),
        "spec": {
            "schedulingGates": [{"name": "example.com/quota"}, {"name": "example.com/other"}],
            "nodeSelector": {"gpu": "yes"},
            "affinity": {"nodeAffinity": affinity},
            "containers": [{"name": "main", "image": "main:1", "resources": {"limits": pages}}],
            "tolerations": [{"key": "a", "operator": "Exists"}],
        },
    }


def workload(kind: str, pod: Object) -> Object:
    """A valid Deployment or DaemonSet that makes such pods."""
    spec = {key: value for key, value in pod["spec"].items() if key != "activeDeadlineSeconds"}
    labels = {"app": "training"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "makes", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def valid_pods() -> list[Object]:
    """A valid pod of each shape."""
    return [rich_pod(), _host_pod(), waiting_pod()]


def written_cases() -> Iterator[Case]:
    """Each valid pod, then each with one rule broken, then updates."""
    for pod in valid_pods():
        yield {"op": "pod", "object": pod}
    for pod, changes in ((rich_pod(), changes_of.POD_CHANGES), (_host_pod(), changes_of.HOST_CHANGES)):
        for change in changes:
            yield {"op": "pod", "object": changed(pod, *change)}
    yield from _written_workloads()
    for pod, updates in ((rich_pod(), changes_of.UPDATES), (waiting_pod(), changes_of.WAITING_UPDATES)):
        yield {"op": "pod", "object": pod, "old": pod}
        for update in updates:
            yield {"op": "pod", "object": changed(pod, *update), "old": pod}
            # The reverse is an update too, unless the changed pod could not exist.
            if not any(path.startswith("metadata.") for path, _ in update):
                yield {"op": "pod", "object": pod, "old": changed(pod, *update)}


def _written_workloads() -> Iterator[Case]:
    """Each valid pod as a template, then each with one rule broken."""
    for kind in ("Deployment", "DaemonSet"):
        for pod in valid_pods():
            yield {"op": "pod", "object": workload(kind, pod)}
        for change in changes_of.TEMPLATE_CHANGES:
            yield {"op": "pod", "object": changed(workload(kind, rich_pod()), *change)}
    for change in changes_of.HOST_CHANGES:
        moved = [(f"spec.template.{path}", value) for path, value in change]
        yield {"op": "pod", "object": changed(workload("Deployment", _host_pod()), *moved)}
