"""Objects that the driver writes, as the real API server is given them."""

from tests.clusters import Object


def slice_of(node: str | None) -> Object:
    """A ResourceSlice with one GPU, of a node or, for None, of all nodes."""
    where = {"allNodes": True} if node is None else {"nodeName": node}
    owner = node or "all-nodes"
    pool = {"name": f"{owner}/gpu.nvidia.com", "generation": 1, "resourceSliceCount": 1}
    device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{owner}-gpu"},
        "spec": {"driver": "gpu.nvidia.com", "pool": pool, "devices": [device], **where},
    }


def event_of(node: str, component: str = "gpu-dra-kubeletplugin") -> Object:
    """An event about a claim, as a component on a node reports it."""
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "c", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"told-by-{component}-{node}"},
        "involvedObject": about,
        "reason": "PrepareFailed",
        "message": "m",
        "source": {"component": component, "host": node},
        "reportingComponent": component,
        "reportingInstance": node,
    }
