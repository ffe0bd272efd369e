"""The programs on PATH of a scenario that do what, on a real node, hardware or its users would do.

They change the node's fake machine. ``python -m tools.scenarios.programs scenario-fault`` runs one of them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click

from driver.errors import ClaimBlocked, DriverError, NodeIncomplete
from driver.kinds.registry import KINDS
from driver.kube.client import KubeClient
from driver.nvml.api import NvmlDevice
from driver.nvml.health.calls import RecoveryAction
from driver.nvml.pci_address import PciAddress
from fakegpu.machine.cgroups import CGROUP_ROOT
from fakegpu.machine.fake_machine import FakeMachine
from fakegpu.memory.cuda import CudaFailed, FakeCudaClient, OutOfMemory
from gpuctl.cli.cluster import connect_client
from gpuctl.cli.failures import error_text
from kubernetes_rules.quantity import parse_quantity

Object = dict[str, Any]

MACHINES_VARIABLE = "SCENARIO_MACHINES"
"""The environment variable with the path of a JSON file: name of the node -> its NodeOfFakes."""
GPU = click.argument("gpu", type=click.IntRange(min=0))
"""A GPU by its index in nvidia-smi."""
_STEP_BYTES = 2**30
REPLACED = "replaced"
"""The answer of the runner if it has replaced the driver; any other answer says why not."""


@dataclass(frozen=True, slots=True)
class NodeOfFakes:
    """A node with a fake machine.

    ``nvml`` is the driver's flag ``--nvml`` for the machine, ``folder`` has the machine's files,
    ``plugins_dir`` is the kubelet's folder for plugins.
    """

    nvml: str
    folder: str
    plugins_dir: str


def node_of_fakes(node: str) -> NodeOfFakes:
    """A node of the cluster; raises UsageError without a cluster, or without such a node in it."""
    file = os.environ.get(MACHINES_VARIABLE, "")
    if not file:
        raise click.UsageError(
            f"{MACHINES_VARIABLE} is not set: python -m tools.scenarios sets it for its clusters"
        )
    nodes = json.loads(Path(file).read_text())
    if node not in nodes:
        raise click.UsageError(f"there is no node {node}: name one of {', '.join(nodes)}")
    return NodeOfFakes(**nodes[node])


def machine_of(node: str) -> FakeMachine:
    """The machine of a node of the cluster; raises what ``node_of_fakes`` raises."""
    return FakeMachine.open(node_of_fakes(node).nvml)


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
    """Allocate in steps; returns the result in words."""
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
        # The id is containerd://ID, and a runtime names the group of a container after it.
        container = str(status.get("containerID", "")).rpartition("/")[2]
        for folder in root.rglob(container) if container else ():
            return f"{CGROUP_ROOT}/{folder.relative_to(root)}"
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    raise ClaimBlocked(f"no container of pod {name} has a control group", "wait until it runs")


@click.group()
@click.argument("node")
@click.pass_context
def fault(context: click.Context, node: str) -> None:
    """Do something to a GPU of a NODE of fakes; a GPU is named by its index in nvidia-smi.

    On hardware nobody can do so: it happens there, and the NVIDIA driver tells of it.
    """
    context.obj = machine_of(node)


@fault.command()
@click.argument("code", type=click.IntRange(min=1))
@GPU
@click.pass_obj
def xid(machine: FakeMachine, code: int, gpu: int) -> None:
    """Let the NVIDIA driver tell of an XID; with 79 the GPU falls off the bus."""
    machine.xid(gpu, code)
    click.echo(f"the NVIDIA driver told of XID {code} on GPU {gpu}")


@fault.command()
@click.argument("action", type=click.Choice(get_args(RecoveryAction)))
@GPU
@click.pass_obj
def recovery(machine: FakeMachine, action: RecoveryAction, gpu: int) -> None:
    """Let the NVIDIA driver say what makes the GPU well again."""
    machine.recovery_action(gpu, action)
    click.echo(f"the NVIDIA driver says of GPU {gpu}: {action}")


@fault.command()
@GPU
@click.pass_obj
def reset(machine: FakeMachine, gpu: int) -> None:
    """Reset a GPU that nobody uses: what was sick is well again, and one that fell off the bus is back."""
    machine.reset(gpu)
    click.echo(f"GPU {gpu} is reset")


@fault.command()
@GPU
@click.pass_obj
def unlicense(machine: FakeMachine, gpu: int) -> None:
    """Take the license of a vGPU away."""
    machine.set_license(gpu, licensed=False)
    click.echo(f"GPU {gpu} has no license")


@fault.command()
@GPU
@click.pass_obj
def license(machine: FakeMachine, gpu: int) -> None:  # noqa: A001 - the command's name
    """Give a vGPU its license."""
    machine.set_license(gpu, licensed=True)
    click.echo(f"GPU {gpu} has a license")


@fault.command("unload-driver")
@click.pass_obj
def unload_driver(machine: FakeMachine) -> None:
    """Unload the NVIDIA driver of the node; modes, partitions and limits go with it."""
    machine.driver_gone()
    click.echo("the NVIDIA driver is unloaded")


@fault.command("load-driver")
@click.argument("version", required=False)
@click.pass_obj
def load_driver(machine: FakeMachine, version: str | None) -> None:
    """Load the NVIDIA driver of the node again, perhaps another VERSION."""
    machine.driver_back(version)
    click.echo(f"the NVIDIA driver {machine.state.driver_version} is loaded")


@click.command()
@click.argument("node")
@GPU
@click.argument("profiles", nargs=-1)
def mig(node: str, gpu: int, profiles: tuple[str, ...]) -> None:
    """Cut a GPU of a NODE of fakes into partitions of these PROFILES; without any, MIG mode goes off.

    Partitions that are there are destroyed before. On hardware it is `nvidia-smi -i GPU -mig 1` and
    `nvidia-smi mig -i GPU -cgi PROFILES -C`.
    """
    machine = machine_of(node)
    nvml = machine.nvml()
    nvml.init()
    try:
        device = nvml.device_by_pci(machine.pci(gpu))
        if device.mig_mode().enabled:
            _destroy_partitions(device)
        device.set_mig_mode(enabled=bool(profiles))
        for name in profiles:
            _make_partition(device, name)
    finally:
        nvml.shutdown()
    click.echo(f"GPU {gpu} of {node} has {', '.join(profiles) or 'no partitions'}")


def _destroy_partitions(device: NvmlDevice) -> None:
    """Destroy all instances; raises the error of NVML if one is in use."""
    for instance in device.gpu_instances():
        for inside in device.compute_instances(instance.id):
            device.destroy_compute_instance(instance.id, inside.id)
        device.destroy_gpu_instance(instance.id)


def _make_partition(device: NvmlDevice, name: str) -> None:
    """Make a GPU instance at the first free placement, with one compute instance of its full size."""
    known = {profile.name: profile for profile in device.gpu_instance_profiles()}
    if name not in known:
        raise click.UsageError(f"{name} is no profile of this GPU: {', '.join(known)}")
    taken = [instance.placement for instance in device.gpu_instances()]
    for placement in device.gpu_instance_placements(known[name].id):
        if not any(map(placement.overlaps, taken)):
            made = device.create_gpu_instance(known[name].id, placement)
            widest = max(device.compute_instance_profiles(made.id), key=lambda profile: profile.slices)
            device.create_compute_instance(made.id, widest.id)
            return
    raise NodeIncomplete(f"no room is left for {name}", "name fewer or smaller profiles")


def upgrade_socket(folder: Path) -> Path:
    """The socket on which the runner listens for a node whose files are in this folder."""
    return folder / "upgrade.sock"


@click.command()
@click.argument("node")
def upgrade(node: str) -> None:
    """Replace the driver's processes on a NODE, the new plugin beside the old one until it serves.

    On a cluster `helm upgrade` does so, node by node.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(upgrade_socket(Path(node_of_fakes(node).folder))))
        except OSError as error:
            raise NodeIncomplete(
                f"nobody upgrades the driver of {node}: {error.strerror}",
                "ask for needs: [upgrades] in scenario.yaml",
            ) from error
        with asking.makefile() as file:
            answer = file.read().strip()
    if answer != REPLACED:
        raise NodeIncomplete(f"the driver of {node} is not replaced: {answer or 'the runner has ended'}")
    click.echo(f"the driver of {node} is replaced")


@click.command()
@click.argument("node")
@GPU
@click.argument("busy", type=click.IntRange(0, 100))
@click.argument("memory")
def use(node: str, gpu: int, busy: int, memory: str) -> None:
    """Let a GPU of a NODE of fakes be BUSY percent of the time, with so much MEMORY used, such as 21Gi.

    On hardware the programs in the containers do so.
    """
    machine_of(node).use(gpu, compute=busy / 100, used_bytes=int(parse_quantity(memory)))
    click.echo(f"GPU {gpu} of {node} is busy for {busy} percent of the time and uses {memory} of its memory")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def on_node(node: str, command: tuple[str, ...]) -> None:
    """Run a COMMAND on a NODE of fakes: nvidia-smi is the node's, and gpuctl finds its plugin.

    On hardware that is ssh, or the plugin's pod.
    """
    there = node_of_fakes(node)
    programs = Path(there.folder) / "driver" / "usr" / "bin"
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
        "GPU_DRA_PLUGINS_DIR": there.plugins_dir,
    }
    try:
        done = subprocess.run(command, env=environment, check=False)
    except FileNotFoundError as error:
        raise click.UsageError(f"there is no program {command[0]} on {node}") from error
    sys.exit(done.returncode)


@click.command()
@click.argument("node")
def root(node: str) -> None:
    """Print the folder of a NODE of fakes, whose ``sys`` is its sysfs; on hardware that is ``/``."""
    click.echo(node_of_fakes(node).folder)


PROGRAMS: Mapping[str, click.Command] = {
    "scenario-cuda": cuda,
    "scenario-fault": fault,
    "scenario-mig": mig,
    "scenario-on": on_node,
    "scenario-root": root,
    "scenario-upgrade": upgrade,
    "scenario-use": use,
}


def main(name: str, *arguments: str) -> None:
    """Run a program; the exit code is 0, 1 for a failure, 2 for a wrong command line."""
    try:
        PROGRAMS[name](arguments, prog_name=name)
    except DriverError as error:
        click.echo(f"{name}: {error_text(error)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
