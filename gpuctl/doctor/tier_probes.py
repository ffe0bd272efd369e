"""Tries every tier of the cluster: a pod with a claim says whether it got what the tier promises.

This is the only part of the doctor that changes the cluster. Each pod is deleted when it has answered, also
after Ctrl-C. One that a killed gpuctl leaves ends by itself after ACTIVE_SECONDS, and then holds no GPU.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from driver.errors import ApiError
from driver.kube.client import KubeClient
from driver.kube.errors import NotFound
from gpuctl.cli.cluster import Object
from gpuctl.cli.unread import Unread, items_of
from gpuctl.doctor.check import Result
from gpuctl.doctor.outside.classes import distinct_devices, selects
from gpuctl.doctor.outside.programs import workload_programs
from gpuctl.doctor.outside.seen import ClusterSeen, name_of, namespace_of

TIERS = (
    *("gpu.nvidia.com", "large", "medium"),
    *("mig.nvidia.com", "mig-small", "mig-medium", "mig-large"),
    *("shared-timesliced", "shared-mps", "shared-memory", "shared-mig"),
)
"""The classes that come with the driver and whose devices CUDA can use, in the order of trying them."""

NAME = "gpu-dra-probe"
"""How the names of the pods and claims begin, and their label ``app.kubernetes.io/name``."""

ACTIVE_SECONDS = 300
_END_SECONDS = 150.0
_UNPLACED_SECONDS = 20.0
_GONE_SECONDS = 60.0
_POLL_SECONDS = 0.5
_SHOWN_CHARACTERS = 1000
_DRA = "/apis/resource.k8s.io/v1"
_ENDED = ("Succeeded", "Failed")


def sleep(seconds: float) -> None:
    """Wait so many seconds."""
    threading.Event().wait(seconds)


@dataclass(frozen=True, slots=True)
class Image:
    """The driver's image as its DaemonSet names it, and what a pod needs to run it on the same nodes."""

    namespace: str
    image: str
    pull_policy: str | None
    pull_secrets: tuple[Object, ...]
    tolerations: tuple[Object, ...]


def probe_tiers(
    client: KubeClient,
    seen: ClusterSeen,
    node: str | None,
    say: Callable[[str], None],
    pause: Callable[[float], None] = sleep,
) -> Iterator[Result]:
    """Try each tier of the cluster, on a node if one is named; a result for each."""
    image = _image(seen)
    if image is None:
        message = "no DaemonSet runs gpu-dra-kubeletplugin, so the driver's image is not known"
        yield _result(NAME, "skipped", message, "run the Jobs of deploy/examples/probe yourself")
        return
    devices = [] if isinstance(seen.slices, Unread) else distinct_devices(seen)
    classes = {name_of(one): one for one in items_of(seen.classes)}
    for tier in TIERS:
        if tier not in classes or not selects(classes[tier], devices):
            continue
        say(f"trying {tier}")
        try:
            yield _tried(client, image, tier, node, pause)
        except ApiError as error:
            yield _result(tier, "skipped", f"the probe could not be made: {error.what}", error.way_out)


def _image(seen: ClusterSeen) -> Image | None:
    """The driver's image; None if no DaemonSet with it is seen."""
    for item in items_of(seen.daemon_sets):
        container = workload_programs(item).get("kubeletplugin")
        if container is None:
            continue
        spec: Object = item["spec"]["template"]["spec"]
        return Image(
            namespace_of(item),
            str(container["image"]),
            container.get("imagePullPolicy"),
            tuple(spec.get("imagePullSecrets") or ()),
            tuple(spec.get("tolerations") or ()),
        )
    return None


def _tried(
    client: KubeClient, image: Image, tier: str, node: str | None, pause: Callable[[float], None]
) -> Result:
    """Make a pod with a claim for the tier, wait for its end, read its line, and delete both."""
    name = f"{NAME}-{tier.replace('.', '-')}-{secrets.token_hex(3)}"
    space = f"/api/v1/namespaces/{image.namespace}/pods"
    try:
        pod = client.create(space, pod_of(image, name, node))
        # After the pod, so that the pod owns it: it goes with the pod, whoever deletes that.
        client.create(f"{_DRA}/namespaces/{image.namespace}/resourceclaims", claim_of(name, tier, pod))
        stored = _ended(client, f"{space}/{name}", pause)
        line = _line(client, f"{space}/{name}") if _phase(stored) in _ENDED else ""
        return _judged(tier, stored, line)
    finally:
        _delete(client, f"{space}/{name}", f"{_DRA}/namespaces/{image.namespace}/resourceclaims/{name}")


def pod_of(image: Image, name: str, node: str | None) -> Object:
    """The pod that probes, without any right that it does not need."""
    on_node: Object = {}
    if node is not None:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        on_node = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    pull = {} if image.pull_policy is None else {"imagePullPolicy": image.pull_policy}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": NAME}},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": ACTIVE_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "imagePullSecrets": list(image.pull_secrets),
            "tolerations": list(image.tolerations),
            **on_node,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "containers": [
                {
                    "name": "probe",
                    "image": image.image,
                    **pull,
                    "command": ["gpuctl", "probe"],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "resources": {"claims": [{"name": "gpu"}]},
                }
            ],
        },
    }


def claim_of(name: str, tier: str, pod: Object) -> Object:
    """The claim of the pod, for one device of the tier."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
    labels = {"app.kubernetes.io/name": NAME}
    requests = [{"name": "gpu", "exactly": {"deviceClassName": tier}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {"devices": {"requests": requests}},
    }


def _ended(client: KubeClient, path: str, pause: Callable[[float], None]) -> Object:
    """The pod once it has ended, or as it is when waiting makes no more sense."""
    began = time.monotonic()
    while True:
        pod = client.get(path)
        waited = time.monotonic() - began
        if _phase(pod) in _ENDED or waited > _END_SECONDS:
            return pod
        if not pod["spec"].get("nodeName") and waited > _UNPLACED_SECONDS:
            return pod
        pause(_POLL_SECONDS)


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _line(client: KubeClient, path: str) -> str:
    """What the probe said; empty if its log cannot be read."""
    with suppress(ApiError):
        return " ".join(client.text(f"{path}/log", {"tailLines": "5"}).split())[:_SHOWN_CHARACTERS]
    return ""


def _judged(tier: str, pod: Object, line: str) -> Result:
    """The result of a tier, by its pod and what it said."""
    phase = _phase(pod)
    if phase == "Succeeded":
        return _result(tier, "ok", line or "the probe succeeded, and its log cannot be read")
    where = pod["spec"].get("nodeName")
    if not where:
        why = f"no node has room: {_condition(pod)}"
        return _result(tier, "skipped", why, "try again when a GPU is free")
    if phase == "Failed":
        said = line or _condition(pod) or "its log cannot be read"
        way_out = f"`gpuctl doctor {where}` checks the node; docs/troubleshooting.md"
        return _result(tier, "fail", f"on {where}: {said}", way_out)
    why = _waiting(pod) or f"its phase is {phase or 'unknown'}"
    # MPS lets clients of one user in at a time, and the probe is not root.
    way_out = (
        f"`gpuctl doctor {where}`; a share by MPS may wait for processes of another user (docs/sharing.md)"
    )
    return _result(tier, "fail", f"the probe on {where} did not end: {why}", way_out)


def _condition(pod: Object) -> str:
    """Why the pod is not placed, or has failed, in the words of Kubernetes."""
    status: Any = pod.get("status") or {}
    said = [one.get("message") for one in status.get("conditions") or () if one.get("status") == "False"]
    return str(status.get("message") or next(filter(None, said), ""))[:_SHOWN_CHARACTERS]


def _waiting(pod: Object) -> str:
    """What the container waits for."""
    status: Any = pod.get("status") or {}
    for one in status.get("containerStatuses") or ():
        waiting = (one.get("state") or {}).get("waiting")
        if waiting:
            return f"{waiting.get('reason')}: {waiting.get('message', '')}"[:_SHOWN_CHARACTERS]
    return ""


def _delete(client: KubeClient, *paths: str) -> None:
    """Delete the pod and its claim, and wait until they are gone: the next tier may need the same GPU."""
    for path in paths:
        with suppress(NotFound):
            client.delete(path)
    until = time.monotonic() + _GONE_SECONDS
    for path in paths:
        while time.monotonic() < until:
            try:
                client.get(path)
            except NotFound:
                break
            sleep(_POLL_SECONDS)


def _result(tier: str, status: Any, message: str, way_out: str = "") -> Result:
    return Result(f"class/{tier}", "probe", status, message, way_out or None)
