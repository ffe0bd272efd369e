"""Measures how long partitions take with a slow NVML, compared with NVML alone and a whole GPU in one run.

The claims are already allocated. NVML is the fake one, whose state is in a file that this process and the
plugin change. For many partitions at once, calls that change a GPU take as long as ``--nvml-ms`` says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from driver.devices.names import gpu_device_name
from driver.kinds.partition.names import partition_device_name
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress
from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.startup import start_cluster
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.demo.driver_node import DriverNode
from proto import dra_v1_pb2 as pb
from tools.bench.kubelet_calls import Plugin, make_claim, make_namespace
from tools.bench.table import Row, Spread, finish

MACHINE = "hgx-h100"
PROFILE, PROFILE_ID, COMPUTE_PROFILE_ID = "1g.10gb", 19, 0
PLACES = range(7)
ROUNDS = 20
CROWDS = 3
_CHANGES = ("set_mig_mode", "create_gpu_instance", "create_compute_instance")


def nvml_alone(nvml: str, pci: PciAddress) -> float:
    """The milliseconds of the NVML calls for a GPU's first partition, without the driver."""
    machine = FakeMachine.open(nvml)
    session = machine.nvml()
    session.init()
    device = session.device_by_pci(pci)
    started = time.perf_counter()
    device.mig_mode()
    device.mig_without_reset()
    for profile in device.gpu_instance_profiles():
        device.gpu_instance_placements(profile.id)
    device.set_mig_mode(enabled=True)
    device.gpu_instances()
    made = device.create_gpu_instance(PROFILE_ID, Placement(6, 1))
    device.compute_instance_profiles(made.id)
    inside = device.create_compute_instance(made.id, COMPUTE_PROFILE_ID)
    device.mig_devices()
    milliseconds = (time.perf_counter() - started) * 1000
    device.destroy_compute_instance(made.id, inside.id)
    device.destroy_gpu_instance(made.id)
    device.set_mig_mode(enabled=False)
    session.shutdown()
    return milliseconds


def single(driver: DriverNode, plugin: Plugin, whole: pb.Claim, partition: pb.Claim) -> Row:
    """The time of a partition compared with NVML alone and a whole GPU; the three take turns."""
    floor, ours = [], []
    pci = min(driver.machine.state.gpus)
    for _ in range(ROUNDS):
        alone = nvml_alone(driver.nvml, pci)
        floor.append(alone + plugin.prepare(whole))
        plugin.unprepare(whole)
        ours.append(plugin.prepare(partition))
        plugin.unprepare(partition)
    return Row("partition, beside NVML alone and a whole GPU", Spread.of_ratios(ours, floor), 1.5)


def crowd(plugin: Plugin, rows_of_gpus: Sequence[Sequence[pb.Claim]]) -> Row:
    """The time of all partitions of all GPUs at once, compared with those of one GPU one after the other."""
    everything = [claim for row in rows_of_gpus for claim in row]
    in_row, at_once = [], []
    for _ in range(CROWDS):
        in_row.append(sum(plugin.prepare(claim) for claim in rows_of_gpus[0]))
        for claim in rows_of_gpus[0]:
            plugin.unprepare(claim)
        at_once.append(plugin.at_once(plugin.prepare, everything))
        plugin.at_once(plugin.unprepare, everything)
    what = f"{len(everything)} partitions at once, beside one GPU's {len(PLACES)} in a row"
    return Row(what, Spread.of_ratios(at_once, in_row), 1.3)


@click.command()
@click.option("--kubernetes", default=DEFAULT_KUBERNETES, show_default=True, help="The minor version.")
@click.option("--nvml-ms", default=300, show_default=True, help="What each change of a GPU takes in NVML.")
def main(kubernetes: str, nvml_ms: int) -> None:
    """Measure partitions on a real cluster; exits 1 when a limit is not met."""
    with start_cluster(kubernetes=kubernetes) as cluster:
        driver = DriverNode.install(cluster, machine=MACHINE)
        driver.start_plugin()
        driver.wait_serving()
        make_namespace(cluster)
        node, gpus = driver.node.name, sorted(driver.machine.state.gpus)
        whole = make_claim(cluster, "whole", node, gpu_device_name(gpus[0]))
        rows_of_gpus = [
            [
                make_claim(cluster, f"gpu-{gpu}-{start}", node, partition_device_name(pci, PROFILE, start))
                for start in PLACES
            ]
            for gpu, pci in enumerate(gpus)
        ]
        plugin = Plugin(driver.plugin_socket)
        table = [single(driver, plugin, whole, rows_of_gpus[0][6])]
        for call in _CHANGES:
            driver.machine.slow(nvml_ms / 1000, call)
        table.append(crowd(plugin, rows_of_gpus))
        plugin.close()
    finish(table, kubernetes, "times what it is beside")


if __name__ == "__main__":
    main()
