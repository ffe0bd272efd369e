"""A cluster as the doctor sees it, in which all is well, for tests to break."""

import base64
import copy
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpuctl.cli.cluster import Object
from gpuctl.doctor.outside.rights import NEEDED, TO_LOOK
from gpuctl.doctor.outside.seen import ClusterSeen
from tests.clusters import EmbeddedApiServer, plan_node

ROOT = Path(__file__).resolve().parents[3]
DAY_SECONDS = 86_400.0
AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUZxVr85+b+27gagh9eMy1WkCFA8wwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHd2ViaG9vazAeFw0yNjExMjMxNDUwNTJaFw0zNjExMjAxNDUw
NTJaMBIxEDAOBgNVBAMMB3dlYmhvb2swWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AATm/c3LBzVgwyxOUKBUfhMKrrMsJS+jq3WIaqQ7dcoig3GrVPm+B2w36K2AghnY
Uivv7PT3uqFo1yzDkL4V2FpNo1MwUTAdBgNVHQ4EFgQUgcV0agtIkyDo2BGNmHwn
qk+DzzkwHwYDVR0jBBgwFoAUgcV0agtIkyDo2BGNmHwnqk+DzzkwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiB4iEfWJfX4HnHStUUOJaPvA5/8D31X
S1r8cghvx5lroAIhAMQ/BQ8EQPex/v6TagUpavyX6gNFxwvxrBXSddBVOEW0
-----END CERTIFICATE-----
"""
"""A certificate that signs itself, and expires ``DAYS_LEFT`` days after ``NOW``."""

DAYS_LEFT = 400
NOW = datetime(2036, 11, 20, 14, 50, 52, tzinfo=UTC).timestamp() - DAYS_LEFT * DAY_SECONDS
NODE = "node-a"
NAMESPACE = "gpu-dra"
IMAGE = "localhost/gpu-dra:1"
GPU_LABEL = "nvidia.com/gpu.present"
PROGRAMS = ("controller", "kubeletplugin")


def well_cluster() -> ClusterSeen:
    """A cluster with one node of eight H100, the driver and its webhook, in which nothing is wrong."""
    return copy.deepcopy(_well())


@cache
def _well() -> ClusterSeen:
    shipped = _documents("deploy/admission-policy.yaml")
    return ClusterSeen(
        gpuctl_version="0.1.0",
        server_version={"gitVersion": "v1.37.1", "major": "1", "minor": "37"},
        dra_resources=("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"),
        features=dict.fromkeys(
            ("DRAPartitionableDevices", "DRAConsumableCapacity", "ResourceHealthStatus"), True
        ),
        dropped_fields=frozenset(),
        own_rights=dict.fromkeys(TO_LOOK, True),
        account_rights={
            f"{NAMESPACE}/gpu-dra-{program}": dict.fromkeys(rights, True)
            for program, rights in NEEDED.items()
        },
        nodes=(node(),),
        slices=tuple(plan_node("hgx-h100", NODE, None).slices),
        classes=tuple(_documents("deviceclasses/gpu.yaml")),
        claims=(),
        pods=tuple(driver_pod(program) for program in PROGRAMS),
        daemon_sets=tuple(daemon_set(program) for program in PROGRAMS),
        deployments=(),
        webhooks=(webhook(),),
        services=({"metadata": {"name": "gpu-dra-webhook", "namespace": NAMESPACE}, "spec": {}},),
        endpoint_slices=(endpoints(ready=True),),
        policies=tuple(one for one in shipped if one["kind"] == "ValidatingAdmissionPolicy"),
        bindings=tuple(one for one in shipped if one["kind"] == "ValidatingAdmissionPolicyBinding"),
        events=(),
        webhook_answer="",
        now=NOW,
    )


def _documents(path: str) -> list[Object]:
    return list(yaml.safe_load_all((ROOT / path).read_text()))


def node(name: str = NODE, runtime: str = "containerd://2.1.4", kubelet: str = "v1.37.1") -> Object:
    """A node with a GPU, as a feature discovery labels it."""
    info = {"containerRuntimeVersion": runtime, "kubeletVersion": kubelet}
    return {
        "metadata": {"name": name, "labels": {GPU_LABEL: "true"}},
        "spec": {},
        "status": {"capacity": {"cpu": "8"}, "nodeInfo": info},
    }


def driver_pod(program: str, image: str = IMAGE, node_name: str = NODE) -> Object:
    """A pod of the driver that runs."""
    return {
        "metadata": {"name": f"gpu-dra-{program}-x", "namespace": NAMESPACE},
        "spec": {"nodeName": node_name, **_pod_spec(program, image)},
        "status": {"phase": "Running", "containerStatuses": [status_of()]},
    }


def run_pod(server: EmbeddedApiServer, made: Object) -> None:
    """Create a pod that is said to run; its namespace and account are made where they are missing."""
    space = made["metadata"]["namespace"]
    if space not in {one["metadata"]["name"] for one in server.objects("namespaces")}:
        server.create("/api/v1/namespaces", {"metadata": {"name": space}})
    pods = f"/api/v1/namespaces/{space}/pods"
    account = made["spec"].get("serviceAccountName")
    if account and account not in {one["metadata"]["name"] for one in server.objects("serviceaccounts")}:
        server.create(f"/api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": account}})
    stored = server.create(pods, made)
    server.replace(f"{pods}/{made['metadata']['name']}/status", {**stored, "status": made["status"]})


def _pod_spec(program: str, image: str = IMAGE) -> Object:
    command = [f"gpu-dra-{program}", "--node-name=$(NODE_NAME)"]
    container = {"name": "driver", "image": image, "command": command}
    return {"serviceAccountName": f"gpu-dra-{program}", "containers": [container]}


def status_of(restarts: int = 0, **state: Any) -> Object:
    """The status of a driver's container; ``state`` is what it is in, else it runs."""
    return {"name": "driver", "ready": not state, "restartCount": restarts, "state": state or {"running": {}}}


def daemon_set(program: str, ready: int = 1, namespace: str = NAMESPACE, **placed: Object) -> Object:
    """A DaemonSet of the driver that is wanted on one node; ``placed`` are fields of its pods' spec."""
    return {
        "kind": "DaemonSet",
        "metadata": {"name": f"gpu-dra-{program}", "namespace": namespace},
        "spec": {"template": {"spec": {**_pod_spec(program), **placed}}},
        "status": {"desiredNumberScheduled": 1, "numberReady": ready},
    }


def webhook(pem: str = AUTHORITY) -> Object:
    """The shipped configuration of the webhook, with an authority."""
    (item,) = (
        one for one in _documents("deploy/webhook.yaml") if one["kind"] == "ValidatingWebhookConfiguration"
    )
    for hook in item["webhooks"]:
        hook["clientConfig"]["caBundle"] = base64.b64encode(pem.encode()).decode()
    return dict(item)


def endpoints(*, ready: bool) -> Object:
    """What stands behind the webhook's Service."""
    labels = {"kubernetes.io/service-name": "gpu-dra-webhook"}
    metadata = {"name": "gpu-dra-webhook-x", "namespace": NAMESPACE, "labels": labels}
    return {"metadata": metadata, "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]}


def ago(seconds: float) -> str:
    """A time before ``NOW`` as the API writes it."""
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def event(
    reason: str, seconds_ago: float, message: str = "GPU 0 is not offered", kind: str = "Node"
) -> Object:
    """An event of the driver about the node, or an object of another kind."""
    metadata = {"name": f"{NODE}.{reason}", "namespace": "default"}
    told = {"type": "Normal" if reason == "GpuWell" else "Warning", "reason": reason, "message": message}
    about = {"kind": "Node", "name": NODE} if kind == "Node" else {"kind": kind, "name": "c", "uid": "uid"}
    when = {"lastTimestamp": ago(seconds_ago), "involvedObject": about}
    return {"metadata": metadata, **told, **when}


def pod(name: str, **spec: Any) -> Object:
    """A pod of somebody on the node with GPUs."""
    containers = spec.pop("containers", [{"name": "main", "image": "x"}])
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"nodeName": NODE, "containers": containers, **spec},
        "status": {"phase": "Running"},
    }


def device_class(expression: str, name: str = "broken") -> Object:
    """A class with one selector."""
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def waiting_claim(name: str) -> Object:
    """A claim that asks for a class, and has nothing yet."""
    request = {"name": "gpu", "exactly": {"deviceClassName": name}}
    return {"metadata": {"name": "c", "namespace": "team"}, "spec": {"devices": {"requests": [request]}}}


INSISTING = device_class(
    "device.driver == 'gpu.nvidia.com' && 'memoryIsolation' in device.attributes['gpu.nvidia.com'] && "
    "device.attributes['gpu.nvidia.com'].memoryIsolation == 'cgroup'",
    "held",
)


def told_claim(ready: str) -> Object:
    """A claim whose status says whether it is held to its memory."""
    reason = "ShareReady" if ready == "True" else "MemoryLimitNotHeld"
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": "NVML lies"}
    entry = {"driver": "gpu.nvidia.com", "pool": "p", "device": "gpu-a", "conditions": [condition]}
    return {"metadata": {"name": "lab", "namespace": "team"}, "status": {"devices": [entry]}}
