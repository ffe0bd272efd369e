"""A host whose virtual functions are off offers vGPUs once they are on, which only a rule can ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fork_server
from tests.clusters import BRISK, PACKAGE_ROOT, DriverNode, EmbeddedCluster
from tests.eventually import eventually
from tests.flow.claims import wait_published
from tests.gpus import PciAddress, read_function
from tests.vgpu_hosts import with_virtual_off

ASKED, LEFT = PciAddress.parse("0000:17:00.0"), PciAddress.parse("0000:b1:00.0")
RULES = """version: v1
rules:
  - when: gpu.pciBusID == "0000:17:00.0"
    vgpu: {profiles: [L40S-8Q], virtualFunctions: enabled}
  - vgpu: {profiles: [L40S-8Q]}
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DriverNode]:
    """A host in a cluster of its own, with the driver on it."""
    with EmbeddedCluster(1, start=fork_server.start) as cluster:
        machine = with_virtual_off(tmp_path, "vgpu-host-l40s")
        driver = DriverNode.install(cluster, 0, str(machine), launcher=BRISK)
        for name in ("gpu", "vfio", "vgpu"):
            cluster.api.apply(PACKAGE_ROOT / f"deviceclasses/{name}.yaml")
        file = driver.folder / "node-config.yaml"
        file.write_text(RULES)
        driver.start_plugin()
        driver.start_controller("--config", str(file))
        driver.wait_serving()
        yield driver


def virtual_of(driver: DriverNode, gpu: PciAddress) -> int:
    function = read_function(driver.folder / "sys", gpu)
    assert function is not None
    return len(function.virtual)


def test_vgpus_are_offered_after_the_plugin_was_asked_and_the_other_gpu_stays_as_it_is(
    host: DriverNode,
) -> None:
    def offered() -> set[str]:
        devices = [one for slice_ in wait_published(host) for one in slice_["spec"].get("devices", ())]
        return {str(one["name"])[:21] for one in devices}

    assert eventually("devices", offered) == {"gpu-0000-17-00-0-vgpu"}
    assert virtual_of(host, ASKED) == 32
    assert virtual_of(host, LEFT) == 0
