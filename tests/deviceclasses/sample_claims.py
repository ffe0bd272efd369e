"""The claims of the sample pods, and what an empty node gives them."""

from contextlib import ExitStack
from pathlib import Path

from kubernetes_rules.pod_claims import asked_resources, class_of
from tests.clusters import Allocator, Object, PlannedNode, defaulted_claim_spec, extended_requests
from tests.deviceclasses.published_nodes import NODE
from tests.deviceclasses.shipped_classes import ALL, objects

NODE_OBJECT = {"metadata": {"name": NODE}}


def claim_of(file: Path) -> Object:
    """The claim that the pod of a sample has: its own, from its template, or from its extended resources."""
    by_kind = {one["kind"]: one for one in objects(file)}
    if "ResourceClaimTemplate" in by_kind:
        spec = by_kind["ResourceClaimTemplate"]["spec"]["spec"]
    elif "ResourceClaim" in by_kind:
        spec = by_kind["ResourceClaim"]["spec"]
    else:
        pod = by_kind["Pod"]
        classes = {name: class_of(name, list(ALL.values())) for name in asked_resources(pod)}
        found = {name: device_class for name, device_class in classes.items() if device_class is not None}
        spec = {"devices": {"requests": extended_requests(pod, found).requests}}
    return {"metadata": {"name": file.stem, "namespace": "default"}, "spec": defaulted_claim_spec(spec)}


def results(file: Path, planned: PlannedNode, pods: int = 1) -> list[list[Object]]:
    """The results of the allocation of each of so many pods of a sample; fewer when one has to wait."""
    return beside([(file, pods)], planned)[0]


def beside(samples: list[tuple[Path, int]], planned: PlannedNode) -> list[list[list[Object]]]:
    """The same for so many pods of each of several samples, one after the other on one node."""
    allocator = _allocator(planned)
    found: list[list[list[Object]]] = []
    with ExitStack() as ends:
        for file, pods in samples:
            found.append([])
            for index in range(pods):
                claim = claim_of(file)
                claim["metadata"] |= {"name": f"{file.stem}-{index}", "uid": f"{file.stem}-{index}"}
                allocations = allocator.allocate(NODE_OBJECT, [claim])
                if allocations is None:
                    break
                claim["status"] = {"allocation": allocations[0]}
                allocator.assume(claim)
                ends.callback(allocator.release, claim)
                found[-1].append(list(allocations[0]["devices"]["results"]))
    return found


_allocators: dict[int, tuple[PlannedNode, Allocator]] = {}


def _allocator(planned: PlannedNode) -> Allocator:
    """The allocator of a node, on which nothing is in use between two questions; it remembers the devices."""
    if id(planned) not in _allocators:
        _allocators[id(planned)] = (planned, Allocator(planned.slices, ALL.values(), ()))
    return _allocators[id(planned)][1]
