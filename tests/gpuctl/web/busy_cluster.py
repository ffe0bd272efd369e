"""A cluster on which the page has something of everything to show, with names as long as they get."""

from tests.clusters import Object, paths
from tests.gpuctl.web.pages import DRA, POOL, Page, add_claim, add_class, give, publish, waiting_pod

LONG_NODE = "gpu-worker-17.pool-of-inference-servers.eu-central-1.example.internal"
NODE = "node-a"
BROKEN_NODE = "node-c"
FIRST = "gpu-0000-1b-00-0"
WAITING = "default/waits-for-a-claim-that-does-not-exist"
BY_LIMIT = "by-limit"
FAILING = "failing"
RESOURCE = "nvidia.com/gpu"


def add_everything(page: Page) -> None:
    """Have it show GPUs of each use, problems of each kind, and pods that wait and fail.

    The page has the node ``node-a`` with all tiers already.
    """
    _nodes(page)
    _claims(page)
    _taints(page)
    # In the order of their names: the page shows the oldest first, and a new second may begin in between.
    page.api.create(pod_by_limit(BY_LIMIT))
    add_claim(page, "many", "large")
    page.api.create(waiting_pod("fits-later", "many"))
    page.api.create(waiting_pod(WAITING.partition("/")[2], "missing"))
    _failing_pod(page)
    shown = "the claim missing that the pod names", "its devices are free", "no node has nvidia", "GPU hangs"
    page.wait_words("/", *shown)


def _nodes(page: Page) -> None:
    publish(page.api_server, LONG_NODE)
    page.api.patch(paths.node(LONG_NODE), {"spec": {"unschedulable": True}})
    (stored,) = publish(page.api_server, BROKEN_NODE)
    stored["spec"]["pool"]["resourceSliceCount"] = 2
    page.api.replace(f"{DRA}/resourceslices/{stored['metadata']['name']}", stored)


def _claims(page: Page) -> None:
    add_class(page.api_server, "large")
    add_class(page.api_server, "mig-of-any-size-for-the-team-of-research", "mig")
    held = {
        "whole": (FIRST, ("trainer",)),
        "part": ("gpu-0000-43-00-0-mig-3g-40gb-0", ("tuning-with-a-long-name-of-a-stateful-set-0",)),
        "share": ("gpu-0000-52-00-0-mps-4-mem", ()),
    }
    for name, (device, users) in held.items():
        add_claim(page, name, "large")
        give(page, name, device, users=users)
    said = {"reason": "GpuLost", "message": "the GPU fell off the bus"}
    sick = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z", **said}
    device_status = {"driver": "gpu.nvidia.com", "pool": POOL, "device": FIRST, "conditions": [sick]}
    path = f"{DRA}/namespaces/default/resourceclaims/whole/status"
    page.api.patch(path, {"status": {"devices": [device_status]}})


def _taints(page: Page) -> None:
    """A GPU is tainted in all of its forms, another one in some."""
    xid = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    changing = {"key": "gpu.nvidia.com/changing", "effect": "NoSchedule"}
    for stored in page.api.list_objects(f"{DRA}/resourceslices"):
        if stored["spec"]["pool"]["name"] != POOL or not stored["spec"].get("devices"):
            continue
        for device in stored["spec"]["devices"]:
            if device["name"].startswith("gpu-0000-df-00-0"):
                device["taints"] = [xid]
            elif device["name"].startswith("gpu-0000-43-00-0-mig-1g"):
                device["taints"] = [changing]
        page.api.replace(f"{DRA}/resourceslices/{stored['metadata']['name']}", stored)


def _failing_pod(page: Page) -> None:
    """A pod whose node cannot prepare its claim, as the kubelet's event says."""
    pod = page.api.create(waiting_pod(FAILING, "whole", nodeName=NODE))
    about = {"kind": "Pod", "namespace": "default", "name": FAILING, "uid": pod["metadata"]["uid"]}
    failed = {"reason": "FailedPrepareDynamicResources", "message": "prepare claim: the GPU hangs"}
    by = {"reportingComponent": "kubelet", "source": {"component": "kubelet"}}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "event-"}, "type": "Warning"}
    page.api.create({**event, **failed, **by, "involvedObject": about})


def pod_by_limit(name: str) -> Object:
    """A pod that asks for a GPU by an extended resource in its limits."""
    container = {"name": "main", "image": "train", "resources": {"limits": {RESOURCE: "2"}}}
    return {**waiting_pod(name, ""), "spec": {"containers": [container]}}
