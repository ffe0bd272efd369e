"""Makes the DaemonSet that cleans the nodes out of the plugin's, and reads how far its pods are: pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

NAME = "gpu-dra-retire"
LABELS = {"app.kubernetes.io/name": NAME}
"""None of the plugin's own, else its DaemonSet would take the pods for its own."""

FLAG = "--retire"
CONTAINER = "kubeletplugin"


@dataclass(frozen=True, slots=True)
class Progress:
    """The nodes that are clean, those that are being cleaned, and those where it failed, with the reason.

    ``missing`` is how many nodes have no pod yet.
    """

    clean: frozenset[str]
    busy: frozenset[str]
    failed: dict[str, str]
    missing: int


def retiring(plugin: Object, resting: str) -> Object:
    """A DaemonSet whose pods clean the nodes of the plugin: those of its DaemonSet, told to retire.

    They run where the plugin does, with its rights and mounts. Probes but that of readiness are left out: a
    pod that waits for something to end must not be ended. ``resting`` is the node label that keeps the
    plugin away.
    """
    pod = copy.deepcopy(plugin["spec"]["template"]["spec"])
    selector = pod.get("nodeSelector") or {}
    selector.pop(resting, None)
    container = _plugin_container(pod)
    container["args"] = [*(container.get("args") or []), FLAG]
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    for probe in ("startupProbe", "livenessProbe"):
        container.pop(probe, None)
    readiness = container.get("readinessProbe")
    if readiness is not None:
        readiness |= {"initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": plugin["metadata"]["namespace"], "labels": LABELS},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def progress(daemon_set: Object, pods: Iterable[Object]) -> Progress:
    """How far the cleaning is, by the DaemonSet's status and its pods."""
    clean: set[str] = set()
    busy: set[str] = set()
    failed: dict[str, str] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if _is_ready(pod):
            clean.add(node)
        elif words := _last_words(pod):
            failed[node] = words
        else:
            busy.add(node)
    status = daemon_set.get("status") or {}
    seen = status.get("observedGeneration", 0) >= daemon_set["metadata"].get("generation", 1)
    there = len(clean | busy | failed.keys())
    desired = status.get("desiredNumberScheduled", 0) if seen else there + 1
    return Progress(frozenset(clean), frozenset(busy), failed, max(0, desired - there))


def _plugin_container(pod: Object) -> Object:
    """The container of the plugin: the one of that name, or the only one."""
    containers: list[Object] = pod["containers"]
    return next((one for one in containers if one.get("name") == CONTAINER), containers[0])


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _last_words(pod: Object) -> str:
    """What the plugin's container said when it ended the last time, empty where it did not: its last line."""
    for status in (pod.get("status") or {}).get("containerStatuses") or []:
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            ended = state.get("terminated")
            if ended:
                lines = str(ended.get("message") or "").strip().splitlines()
                code = ended.get("exitCode")
                return lines[-1] if lines else f"its container ended with status {code}"
    return ""
