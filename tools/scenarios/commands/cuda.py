"""The program ``scenario-cuda``: a pretended CUDA process of a pod allocates memory, as a real one would."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driver.errors import ClaimBlocked, NodeIncomplete
from driver.kinds.registry import KINDS
from fakegpu.machine.cgroups import CGROUP_ROOT
from fakegpu.memory.cuda import CudaFailed, FakeCudaClient, OutOfMemory
from gpuctl.cli.context import connect_client
from kubernetes_rules.quantity import parse_quantity
from tools.scenarios.commands.machines import machine_of, run_program

if TYPE_CHECKING:
    from driver.kube.client import KubeClient
    from driver.nvml.pci_address import PciAddress

Object = dict[str, Any]

_STEP_BYTES = 2**30


@click.command()
@click.argument("pod")
@click.argument("memory")
@click.option("-n", "--namespace", default="default", show_default=True, help="The pod's namespace.")
def cuda(pod: str, memory: str, namespace: str) -> None:
    """Allocate so much MEMORY, such as 12Gi, in the first container of a POD, or as much of it as there is.

    It allocates in steps of 1 GiB, says what it got, and ends. On hardware any program that calls cudaMalloc
    does so.
    """
    with closing(connect_client(None)) as client:
        stored = client.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        gpu = _gpu_of(client, stored)
    machine = machine_of(stored["spec"]["nodeName"])
    cgroup = _cgroup_of(Path(machine.state.pretend_cgroups or CGROUP_ROOT), stored)
    try:
        process = machine.cuda(gpu, cgroup)
        try:
            click.echo(f"{pod}: {_allocated(process, int(parse_quantity(memory)))}")
        finally:
            process.end()
    except CudaFailed as error:
        raise NodeIncomplete(f"a CUDA process of pod {namespace}/{pod} failed: {error}") from error


def _allocated(process: FakeCudaClient, wanted_bytes: int) -> str:
    """Allocate step by step; what came of it, in words."""
    try:
        while (left := wanted_bytes - process.allocated_bytes) > 0:
            process.allocate(min(left, _STEP_BYTES))
    except OutOfMemory:
        return f"allocated {process.allocated_bytes // _STEP_BYTES} GiB, then CUDA_ERROR_OUT_OF_MEMORY"
    return f"allocated {wanted_bytes // _STEP_BYTES} GiB"


def _gpu_of(client: KubeClient, pod: Object) -> PciAddress:
    """The GPU of the first device of the pod's first claim; raises ClaimBlocked."""
    metadata = pod["metadata"]
    for entry in pod["status"].get("resourceClaimStatuses", ()):
        path = f"/apis/resource.k8s.io/v1/namespaces/{metadata['namespace']}/resourceclaims"
        claim = client.get(f"{path}/{entry['resourceClaimName']}")
        for result in claim["status"].get("allocation", {}).get("devices", {}).get("results", ()):
            name = KINDS.parse(result["device"])
            if name is not None and name.pci is not None:
                return name.pci
    raise ClaimBlocked(f"pod {metadata['namespace']}/{metadata['name']} has no GPU", "wait until it runs")


def _cgroup_of(root: Path, pod: Object) -> str:
    """The control group of the pod's first container, as NVML takes it; raises ClaimBlocked."""
    for status in pod["status"].get("containerStatuses", ())[:1]:
        container = str(status.get("containerID", "")).rpartition("/")[2]
        for folder in root.rglob(container) if container else ():
            return f"{CGROUP_ROOT}/{folder.relative_to(root)}"
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    raise ClaimBlocked(f"no container of pod {name} has a control group", "wait until it runs")


if __name__ == "__main__":
    run_program(cuda, "scenario-cuda")
