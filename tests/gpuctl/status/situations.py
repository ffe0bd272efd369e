"""Clusters that ``gpuctl status`` is asked about, each made on an embedded API server by a function."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from controller.cliques.wanted import Doubt, pools
from envtest.embedded.server import ALWAYS
from tests.clusters import EmbeddedApiServer, Object, plan_node

DRA = "/apis/resource.k8s.io/v1"
SLICES = f"{DRA}/resourceslices"
CLIQUE = "5c2f8d1e-7a34-4b60-9e15-d30b6c8f4a72.4026"
_FIRST = "gpu-0000-1b-00-0"
_ALL_TIERS = Path(__file__).resolve().parents[3] / "deploy/examples/node-config/all-tiers.yaml"
_CUT = """version: v1
rules:
- when: gpu.index == 0
  mig: {dynamic: {profiles: [1g, 1g+me, 2g, 3g]}}
- mig: off
"""


@cache
def _planned(machine: str, node: str, config: str) -> str:
    return json.dumps(plan_node(machine, node, Path(config) if config else None).slices)


def slices(node: str = "node-a", machine: str = "a30-quad", config: str = "") -> list[Object]:
    """What a node publishes; four whole A30 unless more is said."""
    found: list[Object] = json.loads(_planned(machine, node, config))
    return found


def cut_slices(folder: Path) -> list[Object]:
    """Of eight H100 the first may be cut into 1g, 1g+me, 2g and 3g."""
    file = folder / "node.yaml"
    file.write_text(_CUT)
    return slices(machine="hgx-h100", config=str(file))


def publish(server: EmbeddedApiServer, *items: Object) -> None:
    """Have nodes publish these slices."""
    for item in items:
        server.create(SLICES, item)


def hold(
    server: EmbeddedApiServer,
    name: str,
    device: str,
    node: str = "node-a",
    namespace: str = "default",
    told: Object | None = None,
    **more: Any,
) -> None:
    """A claim has a device; the driver has ``told`` about it in the claim's status."""
    path = f"{DRA}/namespaces/{namespace}/resourceclaims"
    claim = held(name, device, node, told, **more)
    stored = server.create(path, {"metadata": claim["metadata"], "spec": claim["spec"]})
    server.replace(f"{path}/{name}/status", {**stored, "status": claim["status"]})


def held(name: str, device: str, node: str = "node-a", told: Object | None = None, **more: Any) -> Object:
    """The claim that ``hold`` makes."""
    exactly = {"deviceClassName": "gpu", "adminAccess": "adminAccess" in more}
    place = {"driver": "gpu.nvidia.com", "pool": f"{node}/gpu.nvidia.com", "device": device}
    allocation = {"devices": {"results": [{"request": "gpu", **place, **more}]}}
    devices = [{**place, **{key: more[key] for key in more if key == "shareID"}, **told}] if told else []
    return {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {"allocation": allocation, "devices": devices},
    }


def create_pod(server: EmbeddedApiServer, name: str, spec: Object, status: Object, **labels: str) -> Object:
    """A pod with this status."""
    path = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "main", "image": "a"}], **spec}
    pod = server.create(path, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    return server.replace(f"{path}/{name}/status", {**pod, "status": status})


def _create_unplaced(
    server: EmbeddedApiServer, name: str, limits: Object, reason: str = "Unschedulable"
) -> None:
    container = {"name": "main", "image": "a", "resources": {"limits": limits}}
    unplaced = {"type": "PodScheduled", "status": "False", "reason": reason, "message": f"because of {name}"}
    create_pod(server, name, {"containers": [container]}, {"phase": "Pending", "conditions": [unplaced]})


def _tell(server: EmbeddedApiServer, about: Object, reason: str, message: str, by: str) -> None:
    """A warning, as the kubelet or the driver posts it."""
    event = {"involvedObject": about, "reason": reason, "message": message, "reportingComponent": by}
    name = f"event-{len(server.objects('events')):03}"  # events are listed by name
    more = {"metadata": {"name": name}, "type": "Warning", "lastTimestamp": "2026-01-02T03:04:05Z"}
    server.create("/api/v1/namespaces/default/events", {**event, **more})


def _taint(
    items: list[Object], key: str, value: str = "", prefix: str = "", effect: str = "NoSchedule"
) -> None:
    """Taint the devices whose names begin with ``prefix``."""
    for item in items:
        for device in item["spec"].get("devices") or ():
            if device["name"].startswith(prefix):
                device["taints"] = [{"key": f"gpu.nvidia.com/{key}", "value": value, "effect": effect}]


def nothing(_server: EmbeddedApiServer, _folder: Path) -> None:
    """No node publishes anything."""


def idle(server: EmbeddedApiServer, folder: Path) -> None:
    """Nobody has anything; a look with admin access takes nothing."""
    publish(server, *cut_slices(folder))
    labels = {"resource.kubernetes.io/admin-access": "true"}
    server.create("/api/v1/namespaces", {"metadata": {"name": "monitoring", "labels": labels}})
    hold(server, "looks", _FIRST, namespace="monitoring", adminAccess=True)


def cut(server: EmbeddedApiServer, folder: Path) -> None:
    """A partition is held, and others of its GPU are no longer possible; so is one with an engine."""
    publish(server, *cut_slices(folder))
    hold(server, "tuning", f"{_FIRST}-mig-3g-40gb-4")
    hold(server, "video", f"{_FIRST}-mig-1g-10gb-me-0")


def whole(server: EmbeddedApiServer, folder: Path) -> None:
    """A GPU is held as a whole, which excludes its partitions."""
    publish(server, *cut_slices(folder))
    hold(server, "train", _FIRST)
    hold(server, "other-cluster", _FIRST, node="node-z")


def all_forms(server: EmbeddedApiServer, _folder: Path) -> None:
    """Three nodes that offer all forms, with claims of some; one share has its memory limited."""
    for node in ("node-a", "node-b", "node-c"):
        publish(server, *slices(node, "hgx-h100", str(_ALL_TIERS)))
    hold(server, "train", _FIRST)
    hold(server, "ci", "gpu-0000-43-00-0-mig-1g-10gb-0", node="node-b")
    share: Object = {"shareID": "b5a8bb66-1b2c-4a0e-9d0b-6f1a2b3c4d5e"}
    share["consumedCapacity"] = {"memory": "10Gi", "shares": "0"}
    limit = {"memoryLimitBytes": 10 << 30, "memoryUsedBytes": 3 << 30}
    hold(server, "lab", "gpu-0000-52-00-0-mps-4-mem", node="node-b", told={"data": limit}, **share)
    why = {"message": "the MPS server does not answer", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    loose = {"type": "MemoryLimit", "status": "False", "reason": "MemoryLimitNotHeld", **why}
    told = {"data": limit, "conditions": [loose]}
    share = {**share, "shareID": "c6b9cc77-1b2c-4a0e-9d0b-6f1a2b3c4d5e"}
    hold(server, "notebook", "gpu-0000-52-00-0-mps-4-mem", node="node-b", told=told, **share)


def sick(server: EmbeddedApiServer, folder: Path) -> None:
    """A GPU is lost in all of its forms; another device is blocked; one has a taint of somebody else."""
    items = cut_slices(folder)
    _taint(items, "xid", "79", _FIRST)
    _taint(items, "blocked", "in-use", "gpu-0000-43-00-0")
    _taint(items, "odd", "", "gpu-0000-52-00-0", "None")
    publish(server, *items)


def no_driver(server: EmbeddedApiServer, _folder: Path) -> None:
    """The NVIDIA driver is not loaded on one of two nodes."""
    items = slices("node-b", "hgx-h100", str(_ALL_TIERS))
    _taint(items, "driver-not-loaded", "nvmlInitWithFlags")
    publish(server, *slices("node-a", "hgx-h100", str(_ALL_TIERS)), *items)


def half_a_pool(server: EmbeddedApiServer, folder: Path) -> None:
    """Of two slices of a pool one is not published."""
    publish(server, cut_slices(folder)[1])


def generations(server: EmbeddedApiServer, _folder: Path) -> None:
    """Slices of an old generation are still there; a node has a second pool with a count of its own."""
    ((old,), (first,), (second,)) = (slices("node-a"), slices("node-b"), slices("node-b"))
    new = json.loads(json.dumps(old))
    new["metadata"]["name"] = "newer"
    new["spec"]["pool"] |= {"generation": 2, "resourceSliceCount": 2}
    new["spec"]["devices"] = new["spec"]["devices"][:1]
    second["metadata"]["name"] = "second"
    second["spec"]["pool"] |= {"name": "second", "generation": 7}
    second["spec"]["devices"] = [{**second["spec"]["devices"][0], "name": "gpu-0000-f0-00-0"}]
    publish(server, old, new, first, second)


def without_partitions(server: EmbeddedApiServer, folder: Path) -> None:
    """A node withholds partitions and says why."""
    file = folder / "node.yaml"
    file.write_text(_CUT)
    publish(server, *slices("node-a", "a30-quad", str(file)))


def broken_nodes(server: EmbeddedApiServer, _folder: Path) -> None:
    """The plugin is gone from three nodes, and so are their slices; a claim has a device of one of them.

    On another one only the MPS supervisor is left. The controller of a node without GPUs is ready.
    """
    publish(server, *slices())
    hold(server, "train", "gpu-0000-17-00-0", node="node-b")
    why = "containers with unready status: [controller]"
    for node, program, ready in (
        ("node-a", "controller", "True"),
        ("node-b", "controller", "False"),
        ("node-c", "controller", "False"),
        ("node-d", "mps", "True"),
        ("plain", "controller", "True"),
        ("plain", "mps", "True"),
    ):
        condition = {"type": "Ready", "status": ready, "message": why}
        status = {"phase": "Running", "conditions": [condition]}
        label = {"app.kubernetes.io/part-of": "gpu-dra", "app.kubernetes.io/name": f"gpu-dra-{program}"}
        create_pod(server, f"{program}-{node}", {"nodeName": node}, status, **label)


def broken_pods(server: EmbeddedApiServer, _folder: Path) -> None:
    """Pods that cannot be prepared, have no image, are given up by the scheduler, or wait.

    Two wait for claims that do not exist; those of two others do, and the scheduler has yet to look at them.
    """
    publish(server, *slices())
    asks = {"nodeName": "node-a", "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    image = {"name": "main", "image": "a", "imageID": "", "ready": False, "restartCount": 0}
    statuses = [{**image, "state": waiting}]
    create_pod(server, "no-image", asks, {"phase": "Pending", "containerStatuses": statuses})
    pod = create_pod(server, "not-prepared", asks, {"phase": "Pending"})
    create_pod(server, "starts", asks, {"phase": "Pending"})
    about = {"kind": "Pod", "namespace": "default", "name": "not-prepared", "uid": pod["metadata"]["uid"]}
    _tell(server, about, "FailedPrepareDynamicResources", "strategy MPZ (permanent)", "kubelet")
    _create_unplaced(server, "given-up", {"nvidia.com/gpu": "1"}, "SchedulerError")
    for number in range(7):
        _create_unplaced(server, f"train-{number}", {"nvidia.com/gpu": "1"})
    _create_unplaced(server, "web", {"cpu": "1"})
    hold(server, "there", "gpu-0000-17-00-0")
    made = [{"name": "gpu", "resourceClaimName": "there"}]
    for name, entry, known in (
        ("new-by-claim", {"resourceClaimName": "there"}, []),
        ("new-by-template", {"resourceClaimTemplateName": "one"}, made),
        ("a-quota-refuses-it", {"resourceClaimTemplateName": "one"}, []),
        ("a-claim-is-missing", {"resourceClaimName": "nowhere"}, []),
    ):
        asks = {"resourceClaims": [{"name": "gpu", **entry}]}
        create_pod(server, name, asks, {"phase": "Pending", "resourceClaimStatuses": known})


def withheld(server: EmbeddedApiServer, _folder: Path) -> None:
    """A node publishes three of its GPUs, another one nothing; their controllers have said why.

    A GPU of the latter was sick an hour ago.
    """
    (published,) = slices()
    gone = published["spec"]["devices"].pop()
    publish(server, published)
    kept = published["spec"]["devices"][0]
    reasons = {"node-a": "it is in MIG mode, but has no partitions", "node-b": "its layout does not fit"}
    for node, device in (("node-a", gone), ("node-a", kept), ("node-b", kept), ("node-b", gone)):
        pci = device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
        message = f"GPU {pci} is not offered: {reasons[node]}"
        _tell(server, {"kind": "Node", "name": node}, "GpuWithheld", message, "gpu-dra-controller")
    _tell(server, {"kind": "Node", "name": "node-b"}, "GpuSick", "GPU 0: XID 95", "gpu-dra-controller")


def cordoned(server: EmbeddedApiServer, _folder: Path) -> None:
    """Two nodes with GPUs are cordoned, and one without."""
    for node in ("node-a", "node-b", "node-c"):
        publish(server, *slices(node))
    for node, closed in (("node-a", True), ("node-b", True), ("node-c", False), ("plain", True)):
        server.create("/api/v1/nodes", {"metadata": {"name": node}, "spec": {"unschedulable": closed}})


def few_rights(server: EmbeddedApiServer, _folder: Path) -> None:
    """This user may read neither nodes, pods nor events."""
    publish(server, *slices())
    for path in ("/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/default/events"):
        server.fail("list", path, code=403, times=ALWAYS)


def deleted_claim(server: EmbeddedApiServer, _folder: Path) -> None:
    """A pod runs with a device of a claim that is deleted, as its node says."""
    items = slices()
    _taint(items, "blocked", "deleted-claim", "gpu-0000-17-00-0")
    publish(server, *items)
    asks = {"nodeName": "node-a", "resourceClaims": [{"name": "gpu", "resourceClaimName": "lost"}]}
    create_pod(server, "stole", asks, {"phase": "Running"})


Situation = Callable[[EmbeddedApiServer, Path], None]


def in_a_rack(server: EmbeddedApiServer, _folder: Path) -> None:
    """Two trays of a rack with four channels: one is held by a gang, one is kept back for a lost node."""
    for node in ("node-a", "node-b"):
        publish(server, *slices(node, "gb200-tray"))
    for spec in pools([CLIQUE], 4, [Doubt((CLIQUE, 3), "node-c")], ())[CLIQUE]:
        pool = {**spec["pool"], "generation": 1}
        publish(server, {"metadata": {"name": "channels"}, "spec": {**spec, "pool": pool}})
    hold(server, "gang", "channel-2", driver="channels.gpu.nvidia.com", pool=CLIQUE)


SITUATIONS: Mapping[Situation, tuple[str, ...]] = {
    nothing: ("",),
    idle: ("", "-o wide", "-o name"),
    cut: ("",),
    whole: ("",),
    all_forms: ("", "-o wide", "node-b"),
    sick: ("", "-o wide"),
    no_driver: ("", "node-b"),
    half_a_pool: ("",),
    generations: ("-o wide",),
    without_partitions: ("",),
    broken_nodes: ("", "node-b"),
    broken_pods: ("", "node-a"),
    withheld: ("", "node-b"),
    deleted_claim: ("",),
    few_rights: ("",),
    cordoned: ("", "node-b", "node-c"),
    in_a_rack: ("",),
}
"""What ``status`` is asked in each situation."""
