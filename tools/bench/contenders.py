"""The plugins whose times are compared, and the claims that they are asked for: drivers, and the floor."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from driver.devices.names import gpu_device_name
from envtest.client.shipped import PACKAGE_ROOT
from gpuctl.demo.driver_node import DriverNode
from proto import dra_v1_pb2 as pb
from tools.bench.claims import make_claim
from tools.bench.kubelet_calls import Plugin
from tools.bench.latency import CLAIMS_PER_ROUND

MANY = 64


def claims_of(driver: DriverNode) -> list[pb.Claim]:
    """64 claims of a node, the first eight on a GPU each; those beyond the GPUs have admin access."""
    cluster, node = driver.cluster, driver.node.name
    devices = [gpu_device_name(pci) for pci in sorted(driver.machine.state.gpus)]
    if len(devices) < CLAIMS_PER_ROUND:
        raise ValueError(f"a machine of {len(devices)} GPUs is too small, {CLAIMS_PER_ROUND} are needed")
    return [
        make_claim(cluster, f"{node}-{i}", node, devices[i % len(devices)], admin=i >= len(devices))
        for i in range(MANY)
    ]


@contextmanager
def plugin_of(driver: DriverNode) -> Iterator[Plugin]:
    """The driver's plugin, which serves already."""
    plugin = Plugin(driver.plugin_socket)
    try:
        yield plugin
    finally:
        plugin.close()


@contextmanager
def floor_beside(driver: DriverNode, claims: Sequence[pb.Claim]) -> Iterator[Plugin]:
    """The floor, running beside the driver: the same disk, the same CDI folder, specs of the same size."""
    with tempfile.TemporaryDirectory(prefix="floor-", dir=driver.folder) as name:
        folder = Path(name)
        (folder / "spec").write_bytes(_a_spec(driver, claims[0]))
        kubeconfig = driver.cluster.service_account_kubeconfig("gpu-dra-kubeletplugin", driver.node.name)
        command = (
            *(
                sys.executable,
                "-m",
                "tools.bench.floor",
                str(folder / "f.sock"),
                str(kubeconfig),
                str(folder),
            ),
            *(str(driver.node.cdi_dir), str(folder / "spec")),
        )
        process = driver.cluster.processes.start("floor", command, {"PYTHONPATH": str(PACKAGE_ROOT)})
        plugin = Plugin(folder / "f.sock")
        try:
            yield plugin
        finally:
            plugin.close()
            process.stop()


def _a_spec(driver: DriverNode, claim: pb.Claim) -> bytes:
    """The spec that the driver writes for a claim."""
    with plugin_of(driver) as plugin:
        plugin.prepare(claim)
        (spec,) = driver.node.cdi_dir.glob(f"*{claim.uid}.json")
        data = spec.read_bytes()
        plugin.unprepare(claim)
    return data
